"""The registry of frameworks: what derives from it, and that nothing else lists them."""

import importlib
import re
from pathlib import Path

import pytest

import tuner
from tuner.frameworks import DISTRIBUTIONS, FRAMEWORKS, OFFERED, OFFERED_TITLES
from tuner.space.catalogue import KNOBS

PACKAGE = Path(tuner.__file__).parent
OF_THE_FAKE = {
    "frameworks.py",
    "worker/frameworks/fake.py",
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


def test_the_product_names_the_fake_only_where_every_framework_has_something() -> None:
    named = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"""["']fake\b""", path.read_text())
    }
    assert named <= OF_THE_FAKE
