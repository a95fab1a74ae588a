"""The registry of frameworks: what derives from it, and that nothing else lists them."""

import importlib
import re
from pathlib import Path

import pytest

import tuner
from tuner.frameworks import DISTRIBUTIONS, FRAMEWORKS, OFFERED, OFFERED_TITLES
from tuner.galleries import SEARCH_SPACES
from tuner.record.workload import CUDA
from tuner.space.catalogue import KNOBS
from tuner.space.profile_file import load_profile

PACKAGE = Path(tuner.__file__).parent
APPLIED_BY_MODELS = {"tensorflow": {"tensorflow.data_format"}}
"""The layout a model is built in: guides name it, and no adapter can change it afterwards."""
OF_THE_FAKE = {
    "frameworks.py",
    "worker/frameworks/fake/parts.py",
    "worker/frameworks/fake/surface.py",
    "space/knobs_of/fake.py",
}
"""Its entry, its adapter, its knobs: what any framework has."""


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_framework_has_an_adapter(name: str) -> None:
    module, attribute = FRAMEWORKS[name].adapter
    assert callable(getattr(importlib.import_module(module), attribute))


def test_what_comes_with_the_tool_is_not_offered() -> None:
    assert OFFERED == ("torch", "tensorflow")
    assert OFFERED_TITLES == ("PyTorch", "TensorFlow")
    assert DISTRIBUTIONS == ("torch", "tensorflow", "keras")


def test_every_knob_is_one_of_a_registered_framework() -> None:
    named = {name for knob in KNOBS.values() for name in knob.frameworks}
    assert named <= FRAMEWORKS.keys()
    for name in FRAMEWORKS:
        own = [knob for id, knob in KNOBS.items() if id.startswith(f"{name}.")]
        assert all(knob.frameworks == (name,) for knob in own)


def ways_of(name: str) -> set[str]:
    """Return the knobs that a framework applies or reads back on any device."""
    ways = importlib.import_module(f"tuner.worker.frameworks.{name}.knobs").ADAPTERS
    tables = ways.values() if len(FRAMEWORKS[name].devices) > 1 else [ways]
    return {knob for table in tables for knob in table}


def test_every_knob_that_is_searched_on_a_card_is_read_back_there() -> None:
    ways = importlib.import_module("tuner.worker.frameworks.torch.knobs").ADAPTERS[CUDA]
    searched = {entry.id for entry in load_profile("cuda", SEARCH_SPACES).knob}
    assert {knob for knob in searched if knob.startswith("torch.")} <= ways.keys()


@pytest.mark.parametrize("name", ["torch", "tensorflow"])
def test_every_knob_of_a_program_has_one_entry_that_applies_and_reads_it(name: str) -> None:
    """Its file declares it, one table in the measured process does the rest."""
    ways = ways_of(name)
    declared = {id for id, knob in KNOBS.items() if knob.frameworks == (name,)}
    of_programs = {id for id in declared if not id.startswith(("env.", "launch."))}
    assert of_programs - ways == APPLIED_BY_MODELS.get(name, set())
    assert {id for id in ways if id.startswith(f"{name}.")} <= of_programs


def test_the_product_names_the_fake_only_where_every_framework_has_something() -> None:
    named = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"""["']fake\b""", path.read_text())
    }
    assert named <= OF_THE_FAKE
