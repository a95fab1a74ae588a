"""The designed part: columns of their own for what is to be told apart, and cells for a model."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from tests.space.spaces import TENSORFLOW_DEFAULTS, TORCH_DEFAULTS, machine, model, workload
from tuner.errors import UsageError
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import Host
from tuner.record.configuration import Value
from tuner.record.journal import DesignFixed
from tuner.space.design import (
    N_CELLS,
    Factors,
    is_set,
    most_telling_first,
    resolve_design,
)
from tuner.space.profile_file import load_profile
from tuner.space.resolve import resolve_space
from tuner.space.restrictions import Restrictions


def design(
    host: Host, framework: str, kind: str = "cnn", restrictions: Restrictions | None = None
) -> DesignFixed:
    profile = load_profile("xeon", SEARCH_SPACES)
    defaults = TORCH_DEFAULTS if framework == "torch" else TENSORFLOW_DEFAULTS
    asked, facts = workload(framework, kind), model(defaults)
    space = resolve_space(profile, host, asked, facts, restrictions or Restrictions())
    return resolve_design(profile, Factors(profile, host, asked, facts, space), space)


def settings(found: DesignFixed, *factors: str) -> dict[str, Value]:
    """Return the settings of the cell with just these factors."""
    (cell,) = [cell for cell in found.cells if set(cell.factors) == set(factors)]
    return cell.configuration.as_dict()


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_effects_and_what_interacts_stand_in_columns_of_their_own(framework: str) -> None:
    factors = load_profile("auto", SEARCH_SPACES).factor
    columns = {f.name: f.column for f in factors if framework in f.frameworks}
    signs = {
        name: tuple(is_set(column, cell) for cell in range(N_CELLS))
        for name, column in columns.items()
    }
    pairs = [(f.name, other) for f in factors for other in f.interacts]
    pairs = [pair for pair in pairs if set(pair) <= columns.keys()]
    assert len(pairs) >= 4
    for one, other in pairs:
        signs[f"{one} with {other}"] = tuple(
            a != b for a, b in zip(signs[one], signs[other], strict=True)
        )
    assert all(sum(each) == N_CELLS / 2 for each in signs.values())
    for (name, own), (other, others) in itertools.combinations(signs.items(), 2):
        alike = sum(a is b for a, b in zip(own, others, strict=True))
        assert alike == N_CELLS / 2, (name, other)


def test_every_model_gets_the_same_cells_as_far_as_they_have_an_effect(tmp_path: Path) -> None:
    host = machine(tmp_path, cores=4)
    images, words = design(host, "torch"), design(host, "torch", "transformer")
    assert [cell.number for cell in images.cells] == list(range(1, N_CELLS))
    assert not images.left_out
    why = "only image tensors have a channels-last layout"
    assert words.left_out == {"layout": f"torch.memory_format=channels_last: {why}"}
    for one, other in zip(images.cells, words.cells, strict=True):
        assert set(one.factors) - {"layout"} == set(other.factors)
    assert settings(words, "compile", "folded", "instances", "openmp") == {
        "launch.instances": 2,
        "launch.openmp": "libiomp5",
        "torch.compile.mode": "freezing",
    }
    assert settings(words, "allocator", "folded", "openmp", "threads") == {
        "env.OMP_NUM_THREADS": host.usable_cores // 2,
        "launch.allocator": "tcmalloc",
        "launch.openmp": "libiomp5",
        "torch.jit.mode": "freeze",
    }
    assert all(not cell.fault and cell.same_as is None for cell in words.cells)
    assert ("compile", "layout") in images.pairs
    assert ("compile", "layout") not in words.pairs


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_where_time_is_short_as_many_cells_tell_of_as_many_settings(
    tmp_path: Path, framework: str
) -> None:
    found = design(machine(tmp_path, cores=2), framework)
    ordered = most_telling_first(found.cells, found.pairs)
    assert sorted(cell.number for cell in ordered) == list(range(1, N_CELLS))
    names = sorted({name for cell in ordered for name in cell.factors})
    for n_cells in range(1, len(ordered)):
        table = [[name in cell.factors for name in names] for cell in ordered[:n_cells]]
        rank = np.linalg.matrix_rank(np.array(table, dtype=float))
        assert rank == min(n_cells, len(names))
    # an interrupted study goes on where it was
    assert most_telling_first(ordered[5:], found.pairs, ordered[:5]) == ordered[5:]


def test_what_changes_nothing_beside_the_others_is_idle_in_that_cell(tmp_path: Path) -> None:
    """Two processes on two cores have a thread each whether one is asked for or not."""
    found = design(machine(tmp_path, cores=2), "torch", "transformer")
    both = [cell for cell in found.cells if {"instances", "threads"} <= {*cell.factors, *cell.idle}]
    assert both
    assert all("threads" in cell.idle and "threads" not in cell.factors for cell in both)


def test_what_the_user_rules_out_is_set_in_no_cell(tmp_path: Path) -> None:
    host = machine(tmp_path)
    same = design(host, "torch", restrictions=Restrictions(numerics="same"))
    assert same.left_out == {"autocast": "ruled out by --numerics same"}
    assert not any("torch.autocast" in cell.configuration.as_dict() for cell in same.cells)
    only = design(
        host, "tensorflow", restrictions=Restrictions(excluded=("tensorflow.jit_compile",))
    )
    assert set(only.left_out) == {"xla"}


def test_a_cell_that_is_another_is_not_measured_twice(tmp_path: Path) -> None:
    """With next to nothing left to set, cells fall together."""
    excluded = ("torch.compile.mode", "torch.jit.mode", "torch.autocast", "torch.memory_format",
                "launch.openmp", "env.OMP_NUM_THREADS")  # fmt: skip
    found = design(machine(tmp_path), "torch", restrictions=Restrictions(excluded=excluded))
    distinct = [cell for cell in found.cells if cell.same_as is None]
    assert len({cell.configuration for cell in distinct}) == len(distinct) == 3
    assert {cell.same_as for cell in found.cells} == {None, 0, *(c.number for c in distinct)}


def test_what_is_fixed_in_every_cell_has_no_default_to_compare_with(tmp_path: Path) -> None:
    fixed = Restrictions(fixed={"launch.allocator": "tcmalloc"})
    with pytest.raises(UsageError, match=r"--fix sets launch\.allocator in every cell"):
        design(machine(tmp_path), "torch", restrictions=fixed)


def test_a_profile_without_factors_has_no_design(tmp_path: Path) -> None:
    host = machine(tmp_path)
    profile = load_profile("cuda", SEARCH_SPACES)
    asked, facts = workload("torch"), model(TORCH_DEFAULTS)
    space = resolve_space(profile, host, asked, facts, Restrictions())
    with pytest.raises(UsageError, match="cuda names no factors for torch"):
        resolve_design(profile, Factors(profile, host, asked, facts, space), space)
