"""The real files that are altered, and how often."""

import inspect
import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.deploy.recommendations import recommendation
from tests.fuzz.document import Seed
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import probe
from tuner.record.configuration import Value
from tuner.record.files import read_result, write_recommendation
from tuner.record.result import SCHEMA_VERSION

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
SAMPLES = sorted((Path(__file__).parents[2] / "reports/samples").glob("*.json"))


def _of_this_version(path: Path) -> Seed:
    """Write a result as this version does: what was read then equals what stands in the file."""
    result = msgspec.structs.replace(read_result(path), schema_version=SCHEMA_VERSION)
    data = msgspec.json.encode(result)
    return Seed(path.name, data, json.loads(data))


RESULTS = [_of_this_version(path) for path in SAMPLES[:2]]
SPACES = [
    Seed(p.name, p.read_bytes(), tomllib.loads(p.read_text()))
    for p in (SEARCH_SPACES / "fake.toml", SEARCH_SPACES / "xeon.toml")
]


FEW = 10
"""Of so many examples the fast tier tries one: the first ones of those that `slow` tries."""


def _examples(n: int) -> settings:
    """The same on every host, unless a long run is asked for: no seed and no clock decides."""
    return settings(
        max_examples=10 * n if IS_LONG else n,
        derandomize=not IS_LONG,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),  # mutants of large files are slow to draw
    )


def fuzzed(
    n_examples: int, **drawn: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a property a test with few examples in the fast tier, and with all of them in `slow`."""

    def decorate(property_: Callable[..., None]) -> Callable[..., None]:
        counts = (n_examples // FEW, n_examples)
        few, all_ = (_examples(count)(given(**drawn)(property_)) for count in counts)

        def test(tries: Callable[..., None], **fixtures: Any) -> None:
            tries(**fixtures)

        own = inspect.Parameter("tries", inspect.Parameter.KEYWORD_ONLY)
        fixtures = inspect.signature(few).parameters.values()
        vars(test)["__signature__"] = inspect.Signature(
            [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (own, *fixtures)]
        )
        test.__name__, test.__doc__ = property_.__name__, property_.__doc__
        test.__module__, test.__qualname__ = property_.__module__, property_.__qualname__
        cases = (few, pytest.param(all_, marks=pytest.mark.slow))
        mark = pytest.mark.parametrize("tries", cases, ids=("few", "all"))
        decorated: Callable[..., None] = mark(test)
        return decorated

    return decorate


def shipped_in(folder: Path) -> Seed:
    """Return a recommendation as a study would write it, written into a folder."""
    path = folder / "seed.toml"
    values: dict[str, Value] = {"env.OMP_NUM_THREADS": 2, "torch.memory_format": "channels_last"}
    write_recommendation(path, recommendation(values, probe()))
    return Seed("recommended.toml", path.read_bytes(), tomllib.loads(path.read_text()))
