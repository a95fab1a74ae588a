"""What every reader owes: the value that stands in the file, or one error of ours in one line."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tuner.cli.errors import in_one_line
from tuner.errors import TuneError

_T = TypeVar("_T")
LONGEST_MESSAGE = 3000
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters but tab and newline, the two of C1 and ESC among them."""


def read_or_refused(read: Callable[[Path], _T], path: Path, data: bytes) -> _T | None:
    """Write the bytes and read them; return None where they are refused as they should be.

    Any exception but ours goes through and fails the test.
    """
    path.write_bytes(data)
    try:
        return read(path)
    except TuneError as error:
        said = str(error)
        assert said.strip()
        assert path.name in said or str(path.parent) in said, said
        line = in_one_line(said)
        assert len(line) < LONGEST_MESSAGE, line[:300]
        assert not CONTROL.search(line), line
        assert "Error" not in said.split(":", maxsplit=1)[0], said
        return None


def assert_carried(read: Any, stands: Any, where: str = "$") -> None:
    """Assert that what was read is what stands in the file; keys that nobody knows aside.

    Of a key that is missing, the default was read. A whole number where a float belongs is a float.
    """
    if isinstance(read, dict):
        assert isinstance(stands, dict), where
        for key, value in read.items():
            if key in stands:
                assert_carried(value, stands[key], f"{where}.{key}")
    elif isinstance(read, list):
        assert isinstance(stands, list), where
        assert len(read) == len(stands), where
        for i, (one, other) in enumerate(zip(read, stands, strict=True)):
            assert_carried(one, other, f"{where}[{i}]")
    elif isinstance(read, float) and isinstance(stands, int) and not isinstance(stands, bool):
        assert read == float(stands), where
    else:
        assert type(read) is type(stands), (where, read, stands)
        assert read == stands, (where, read, stands)
