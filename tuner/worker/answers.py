"""Whether a server still answers as it did without settings.

JSON is compared field by field: numbers with a fraction may drift as far as the same precision
allows, everything else must be equal. Fields that the default itself does not repeat, such as an
identifier or a duration, are left out. Other answers are compared byte by byte.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tuner.errors import UsageError
from tuner.record.output_check import MAX_DRIFT_SAME, OutputCheck
from tuner.worker import reference
from tuner.worker.kept import Kept

_Fields: TypeAlias = dict[str, Any]
"""By their path in the document: outputs.0.score."""
_SHOWN = 60
_NOT_ALIKE = 1e9
"""The drift of a value that is not a number: files hold no infinite one."""
_INDEX = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")


def fields_of(answer: bytes) -> _Fields:
    """Return the fields of an answer; of one that is no JSON its digest."""
    try:
        document = json.loads(answer)
    except ValueError:
        return {"content": hashlib.sha256(answer).hexdigest()}
    return dict(_flat("", document))


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name in sorted(value):
            yield from _flat(f"{path}.{name}" if path else name, value[name])
    elif isinstance(value, list) and value:
        for number, each in enumerate(value):
            yield from _flat(f"{path}.{number}" if path else str(number), each)
    else:
        yield path, value


def _kind(field: str) -> str:
    """Return a field without its places in lists: all scores are of one kind."""
    return _INDEX.sub("*", field)


def write(path: Path, answered: Sequence[Sequence[bytes]]) -> None:
    """Write the default's answers to all requests, repeated several times, as the reference.

    Kinds of fields that differ in any of them are not compared. Raises UsageError if all kinds do.
    """
    first, *others = [[fields_of(answer) for answer in answers] for answers in answered]
    unsteady = {
        _kind(field)
        for other in others
        for one, again in zip(first, other, strict=True)
        for field, drift in apart(one, again)
        if drift > MAX_DRIFT_SAME
    }
    kept = [{k: v for k, v in one.items() if _kind(k) not in unsteady} for one in first]
    if not any(kept):
        raise UsageError("the server's answers to the same requests differ each time, in every "
                         "field, so that no setting can be shown to leave them as they are: seed "
                         "what it draws when it starts, weights too")  # fmt: skip
    content = json.dumps({"answers": kept, "unsteady": sorted(unsteady)}).encode()
    reference.write(path, {}, [Kept(np.frombuffer(content, dtype=np.uint8))])


def apart(expected: _Fields, own: _Fields) -> Iterator[tuple[str, float]]:
    """Yield how far each field of either is off: infinitely, if it is no number and not the same.

    A number is held to the largest of its kind: of probabilities 1e-9 is no figure.
    """
    scales: dict[str, float] = {}
    for field, value in expected.items():
        if _is_number(value):
            scales[_kind(field)] = max(scales.get(_kind(field), 0.0), abs(value))
    for field in dict.fromkeys((*expected, *own)):
        if field not in expected or field not in own:
            yield field, math.inf
            continue
        value, other = expected[field], own[field]
        drift = 0.0 if type(other) is type(value) and other == value else math.inf
        # 1.0 is written as 1 by some; of whole numbers on both sides, which may be classes, none
        is_figure = isinstance(value, float) or isinstance(other, float)
        if drift and is_figure and _is_number(value) and _is_number(other):
            scale = scales[_kind(field)]
            off = abs(other - value) / scale if scale else math.inf
            drift = off if math.isfinite(off) else math.inf
        yield field, drift


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def compare(path: Path, answers: Sequence[bytes], names: Sequence[str]) -> tuple[OutputCheck, str]:
    """Return how far answers are from the reference, and the fault; empty if there is none."""
    (content,) = reference.read_outputs(path)
    kept = json.loads(content.values.tobytes())
    unsteady = set(kept["unsteady"])
    drift = 0.0
    for name, wanted, answer in zip(names, kept["answers"], answers, strict=True):
        own = {k: v for k, v in fields_of(answer).items() if _kind(k) not in unsteady}
        for field, off in apart(wanted, own):
            if off > MAX_DRIFT_SAME:
                text = f"{_short(own, field)}, and with nothing set {_short(wanted, field)}"
                found = OutputCheck(drift=min(off, _NOT_ALIKE), n_inputs=len(answers))
                return found, f"it answers {name} otherwise: {field or 'the answer'} is {text}"
            drift = max(drift, off)
    return OutputCheck(drift=drift, n_inputs=len(answers)), ""


def _short(fields: _Fields, field: str) -> str:
    if field not in fields:
        return "not there"
    text = json.dumps(fields[field])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
