"""What a model may return: tensors, also in tuples, lists and dictionaries; None is no output.

Models of Hugging Face, attention layers and others return None for outputs that were not requested.
These are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tuner.errors import UsageError

_WHOLE = "outputs"
_SHOWN = 40
"""Characters of a value that an error shows."""
_ALLOWED = "dense tensors of real numbers, and None, also within tuples, lists and dictionaries"


def tensors_in(
    result: Any, is_tensor: Callable[[Any], bool], fault: Callable[[Any], str] = lambda _: ""
) -> list[Any]:
    """Return the tensors of an output in their order, those of dictionaries as they were entered.

    fault: why a tensor cannot be compared; empty if it can. Raises UsageError with the place of
    such a tensor or of anything that is not a tensor, and if there is no tensor at all.
    """

    def within(part: Any, place: str, around: tuple[int, ...]) -> Iterator[Any]:
        if part is None:
            return
        if is_tensor(part):
            if what := fault(part):
                raise not_comparable(place, what)
            yield part
        elif id(part) in around:
            raise not_comparable(place, f"a {type(part).__name__} that holds itself")
        elif isinstance(part, Mapping):
            for key, value in part.items():
                yield from within(value, f"{place}[{key!r}]", (*around, id(part)))
        elif isinstance(part, Sequence) and not isinstance(part, str | bytes):
            for i, value in enumerate(part):
                yield from within(value, f"{place}[{i}]", (*around, id(part)))
        else:
            raise not_comparable(place, _shown(part))

    found = list(within(result, _WHOLE, ()))
    if not found:
        raise no_output(result)
    return found


def _shown(part: Any) -> str:
    shown = repr(part)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return f"{type(part).__name__} {shown}"


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
