"""What a model may return: tensors, also within tuples, lists and dictionaries; None is no output.

Models of Hugging Face, attention layers and others return None in the place of what was not asked
for: there is nothing to compare then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tuner.errors import UsageError

_WHOLE = "outputs"
_SHOWN = 40
"""Characters of a value that an error shows."""
_ALLOWED = "tensors of numbers, and None, also within tuples, lists and dictionaries"


def tensors_in(result: Any, is_tensor: Callable[[Any], bool]) -> list[Any]:
    """Return the tensors of an output in their order, those of dictionaries as they were entered.

    Raises UsageError with the place of what is no tensor, and where there is none at all.
    """
    found = list(_within(result, _WHOLE, is_tensor))
    if not found:
        raise no_output(result)
    return found


def _within(part: Any, place: str, is_tensor: Callable[[Any], bool]) -> Iterator[Any]:
    if part is None:
        return
    if is_tensor(part):
        yield part
    elif isinstance(part, Mapping):
        for key, value in part.items():
            yield from _within(value, f"{place}[{key!r}]", is_tensor)
    elif isinstance(part, Sequence) and not isinstance(part, str | bytes):
        for i, value in enumerate(part):
            yield from _within(value, f"{place}[{i}]", is_tensor)
    else:
        shown = repr(part)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        raise not_comparable(place, f"{type(part).__name__} {shown}")


def not_comparable(place: str, what: str) -> UsageError:
    """Return the error for a part of the output. place: for instance outputs[1]."""
    return UsageError(
        f"{place} of the model is {what}, which cannot be compared; it may return {_ALLOWED}: let "
        "it return those alone"
    )


def no_output(result: Any) -> UsageError:
    """Return the error for an output without any tensor."""
    shown = "None" if result is None else f"{type(result).__name__} without any"
    return UsageError(f"the model returns no tensor ({shown}); it may return {_ALLOWED}")
