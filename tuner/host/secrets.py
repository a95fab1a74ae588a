"""Secrets that must not be stored: passwords in addresses, variables that hold secrets.

The tool itself stores no variables but those that tune (host/environment.py). A program's output,
an exception or a command line may contain others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tuner.host.environment import is_tuning_variable, tuning_variables

_TELLING = re.compile(
    r"TOKEN|SECRET|PASS|CREDENTIAL|PRIVATE|AUTH|DSN|API_?KEY|_KEY$", re.IGNORECASE
)
"""In the name of a variable: its value is a secret."""
_SHORTEST = 6
"""Length of a value that is searched for: a shorter one occurs in unrelated text."""
_IN_ADDRESS = re.compile(
    r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)|(?<=[?&]password=)[^&\s]+|(?<=[?&]passwd=)[^&\s]+",
    re.IGNORECASE,
)
_HIDDEN = "***"
_HELD_BACK: set[str] = set()
"""Variables whose values are secrets in this process, whatever their names."""
KEPT_BACK = _HIDDEN
"""Stands for the value of a tuning variable that is not written down."""
_OUR_OWN = ("KMP_DUPLICATE_LIB_OK", "True")
"""threadpoolctl 3 sets it in this process when it is imported: no user did."""
_LONGEST = 1000
"""Characters of a tuning variable's value: a longer one is no setting to put into a table."""


def hold_back(names: Iterable[str]) -> None:
    """Treat the values of these variables as secrets from now on, in this process."""
    _HELD_BACK.update(names)


def names_a_secret(header: str) -> bool:
    """Tell whether the value of a header is a secret, by its name."""
    name = header.replace("-", "_")
    return bool(_TELLING.search(name)) or "cookie" in name.lower()


def redacted(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return a text without secrets."""
    secrets = [(value, name) for name, value in environment.items() if _is_secret(name, value)]
    for value, name in sorted(secrets, key=lambda pair: -len(pair[0])):  # one may hold another
        text = text.replace(value, f"{_HIDDEN} ({name})")
    return _IN_ADDRESS.sub(_HIDDEN, text)


def _is_secret(name: str, value: str) -> bool:
    if name in _HELD_BACK:
        return bool(value)
    is_telling = len(value) >= _SHORTEST and _TELLING.search(name)
    return bool(is_telling) and not is_tuning_variable(name)


def stated(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the tuning variables of an environment, with those values that may be written down.

    A value is kept back that may be a secret, cannot be printed or is longer than any setting.
    """
    return {
        name: environment[name] if _may_be_written(name, environment[name]) else KEPT_BACK
        for name in tuning_variables(environment)
        if name.isprintable() and (name, environment[name]) != _OUR_OWN
    }


def _may_be_written(name: str, value: str) -> bool:
    is_telling = _TELLING.search(name) or _IN_ADDRESS.search(value)
    return not is_telling and value.isprintable() and len(value) <= _LONGEST


def redact_file(path: Path) -> None:
    """Write a log anew without secrets, if it holds any; one that cannot be read stays as it is."""
    try:
        text = path.read_bytes().decode(errors="surrogateescape")
        if (clean := redacted(text)) != text:
            path.write_bytes(clean.encode(errors="surrogateescape"))
    except OSError:
        return
