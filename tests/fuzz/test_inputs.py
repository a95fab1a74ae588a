"""Recorded inputs of every kind: a model is given what was recorded, or it is refused."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import strategies as st

from tests.fuzz.seeds import fuzzed
from tuner.errors import TuneError, UsageError
from tuner.worker.gallery import recorded
from tuner.worker.gallery.recorded import read, recorded_inputs

DTYPES = ("f2", "f4", ">f4", "f8", ">f8", "g", "i1", "i4", ">i4", "i8", "u1", "u8", "?", "c8", "U3",
          "M8[s]", "V4")  # fmt: skip
WANTED = ("", "", "float16", "float32", "int8", "int32", "int64", "uint8", "bool")
NUMBERS = (
    0,
    1,
    -1,
    2,
    127,
    128,
    255,
    2**31 - 1,
    2**31,
    2**40,
    0.5,
    70_000.0,
    1e300,
    np.inf,
    np.nan,
)


@st.composite
def recordings(draw: st.DrawFn) -> npt.NDArray[Any]:
    shape = draw(st.sampled_from(((8,), (8, 3), (9, 2, 2), (8, 0), (7, 3), (0,), ())))
    kind = np.dtype(draw(st.sampled_from(DTYPES)))
    values = draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=4))
    with np.errstate(all="ignore"):
        try:
            return np.resize(np.array(values), shape).astype(kind)
        except (ValueError, TypeError, OverflowError):
            return np.zeros(shape, kind)


def written(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def as_member(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def assert_same(read: npt.NDArray[Any], saved: npt.NDArray[Any]) -> None:
    """Assert that whole numbers are the same, and floats as near as their type allows."""
    assert read.shape == saved.shape
    assert read.dtype.isnative
    if read.dtype.kind == "f":
        near = 2e-3 if read.dtype.itemsize == 2 else 1e-6
        wide = saved.astype(np.longdouble)
        tiny = np.finfo(read.dtype).smallest_normal
        assert np.allclose(read.astype(np.longdouble), wide, rtol=near, atol=tiny)
    else:
        assert [int(x) for x in read.flat] == [int(x) for x in saved.flat]


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
@fuzzed(
    500,
    arrays=st.lists(
        st.tuples(st.sampled_from(("x", "x", "y", "", "a/b", "\x1b[2J")), recordings()),
        min_size=1,
        max_size=3,
    ),
    others=st.sampled_from(
        ((), (), (("notes.txt", b"hello"),), ((".npy", as_member(np.ones(8))),))
    ),
    wanted=st.sampled_from(WANTED),
)
def test_inputs_are_given_as_they_were_recorded_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    arrays: list[tuple[str, npt.NDArray[Any]]],
    others: tuple[tuple[str, bytes], ...],
    wanted: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / "inputs.npz"
    written(path, [*((f"{name}.npy", as_member(array)) for name, array in arrays), *others])
    by_name = dict(arrays)
    try:
        specs = recorded_inputs(str(path), {arrays[0][0]: wanted} if wanted else None)
        found = [(spec.name, read(spec)) for spec in specs]
    except TuneError as error:
        assert str(path) in str(error)
        return
    assert len(by_name) == len(arrays)
    for name, array in found:
        assert_same(array, by_name[name])
        assert not wanted or array.dtype == np.dtype(wanted)
    again = path.with_name("again.npz")
    np.savez(again, **dict(found))  # type: ignore[arg-type]  # the stub takes them for flags
    for spec, (name, array) in zip(recorded_inputs(str(again)), found, strict=True):
        assert spec.name == name
        assert np.array_equal(read(spec), array)
        assert read(spec).dtype == array.dtype


def test_arrays_larger_than_the_memory_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "x.npz", [("x.npy", as_member(np.ones((8, 2**17))))])
    monkeypatch.setattr(recorded, "read_memory", lambda: 2**20)
    with pytest.raises(UsageError, match=r"0\.0 GiB of arrays; 0\.0 GiB of memory are allowed"):
        recorded_inputs(str(path))


def test_text_beside_the_arrays_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "x.npz", [("x.npy", as_member(np.ones(8))), ("y.txt", b"hello")])
    with pytest.raises(UsageError, match="plain numbers"):
        recorded_inputs(str(path))
