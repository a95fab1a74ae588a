"""Inputs that a user recorded, from NumPy files; reading them never executes anything."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import UsageError
from tuner.host.limits import read_memory
from tuner.worker.gallery.statement import Recorded

MIN_ROWS = 8
"""Fewer do not show whether outputs still depend on the input."""


TEXTS = "string"
"""TensorFlow's name of the type of an input that takes texts, which NumPy has no name for."""
_OF_TEXTS = "US"


def read(recorded: Recorded) -> npt.NDArray[Any]:
    """Return a recorded array, the samples first; float64 becomes float32.

    Raises UsageError for a file that cannot be used.
    """
    arrays = _arrays(recorded.path)
    name = recorded.name or next(iter(arrays), "")
    if name not in arrays:
        raise UsageError(
            f"{recorded.path} holds no array {name!r}; it holds {', '.join(arrays) or 'none'}"
        )
    array = arrays[name]
    if array.ndim < 1 or len(array) < MIN_ROWS:
        rows = len(array) if array.ndim else 0
        raise UsageError(
            f"{recorded.path} holds {rows} samples of {name or 'its array'}; at least {MIN_ROWS} "
            "are needed to see whether outputs still depend on the input"
        )
    if recorded.dtype == TEXTS:
        if array.dtype.kind not in _OF_TEXTS:
            raise UsageError(f"{recorded.path}: {name} is of {array.dtype}, the model takes texts")
        return array
    if array.dtype.kind not in "fiub":
        raise UsageError(f"{recorded.path}: {name} is of {array.dtype}, which is no number")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise UsageError(f"{recorded.path}: {name} holds values that are not a number (NaN)")
    dtype = array.dtype.newbyteorder("=")  # the frameworks take no other
    if recorded.dtype:
        dtype = np.dtype(recorded.dtype)
    elif dtype.kind == "f" and dtype.itemsize >= 8:
        dtype = np.dtype(np.float32)
    return array if dtype == array.dtype else _as_type(array, dtype, recorded)


def _as_type(array: npt.NDArray[Any], dtype: np.dtype[Any], recorded: Recorded) -> npt.NDArray[Any]:
    """Return an array in another type; raises UsageError for values that the type cannot hold.

    Whole numbers stay exact; floats are rounded, and none becomes infinite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        changed = array.astype(dtype)
    if dtype.kind == "f":
        is_held = bool((np.isfinite(changed) | ~np.isfinite(array)).all())
    else:
        is_held = bool((changed == array).all())
    if not is_held:
        name = recorded.name or "its array"
        raise UsageError(f"{recorded.path}: {name} holds values that {dtype} cannot hold")
    return changed


_UNREADABLE = (
    OSError, ValueError, EOFError, MemoryError, KeyError, TypeError, RuntimeError, SyntaxError,
    struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What numpy and the archive raise for files that are damaged, or claim more than there is."""


def _arrays(path: str) -> dict[str, npt.NDArray[Any]]:
    if not Path(path).is_file():
        raise UsageError(f"there is no file {path} with inputs")
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"": loaded}
            with loaded:
                _check_members(path, loaded.zip.infolist())
                return {name: loaded[name] for name in loaded}
    except _UNREADABLE as error:
        raise UsageError(f"{path} is not a NumPy file (.npz or .npy) of plain numbers") from error


def _check_members(path: str, members: Sequence[zipfile.ZipInfo]) -> None:
    """Raise unless an archive holds only arrays, each with its own name.

    Raises UsageError if they are larger than the memory: a small archive may expand to much.
    """
    size, memory = sum(member.file_size for member in members), read_memory()
    if size > memory:
        raise UsageError(
            f"{path} holds {size / 2**30:.1f} GiB of arrays; {memory / 2**30:.1f} GiB of memory "
            "are allowed here: record fewer samples"
        )
    names = [member.filename.removesuffix(".npy") for member in members]
    if "" in names or len(set(names)) != len(names):
        raise ValueError("an array without a name of its own")
    if not all(member.filename.endswith(".npy") for member in members):
        raise ValueError("something that is no array")


def recorded_inputs(
    path: str, types: Mapping[str, str] | None = None, *, by_order: bool = False
) -> tuple[Recorded, ...]:
    """Return the inputs in a file of --inputs.

    types: the model's inputs in its order, each with its NumPy type ("" for any); None if unknown.
    Arrays are matched by name, and others ignored. A single array is the single input. With
    `by_order`, as many arrays as inputs are taken in their order.

    Raises UsageError if they do not fit, or if they hold different numbers of samples.
    """
    arrays = _arrays(path)
    found = list(arrays)
    wanted = types or dict.fromkeys(found, "")
    if set(wanted) <= set(found):
        found = list(wanted)
    elif len(wanted) != len(found) or (len(found) > 1 and not by_order):
        raise UsageError(
            f"{path} holds {', '.join(found) or 'nothing'}; the model takes {', '.join(wanted)}: "
            "give the arrays these names"
        )
    for name, dtype in zip(found, wanted.values(), strict=True):
        if dtype == "bfloat16":
            raise UsageError(
                f"{path}: the model takes {name} in {dtype}; give it in float32, the default that "
                "settings are compared with"
            )
        if (
            dtype
            and dtype != TEXTS
            and arrays[name].dtype.kind == "f"
            and np.dtype(dtype).kind in "iub"
        ):
            raise UsageError(f"{path}: {name} is of {arrays[name].dtype}, the model takes {dtype}")
    counts = {name: len(arrays[name]) if arrays[name].ndim else 0 for name in found}
    if len(set(counts.values())) != 1:
        text = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise UsageError(f"{path}: arrays hold equally many samples each, not {text or 'none'}")
    return tuple(
        Recorded(path, name, dtype) for name, dtype in zip(found, wanted.values(), strict=True)
    )
