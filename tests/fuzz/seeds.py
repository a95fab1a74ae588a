"""The real files that are altered, and how often."""

import json
import os
import tomllib
from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.deploy.recommendations import recommendation
from tests.fuzz.document import Seed
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import probe
from tuner.record.configuration import Value
from tuner.record.files import write_recommendation

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
SAMPLES = sorted((Path(__file__).parents[2] / "reports/samples").glob("*.json"))
RESULTS = [Seed(p.name, p.read_bytes(), json.loads(p.read_text())) for p in SAMPLES[:2]]
SPACES = [
    Seed(p.name, p.read_bytes(), tomllib.loads(p.read_text()))
    for p in (SEARCH_SPACES / "fake.toml", SEARCH_SPACES / "xeon.toml")
]


def examples(n: int) -> settings:
    """The same on every host, unless a long run is asked for: no seed and no clock decides."""
    return settings(
        max_examples=10 * n if IS_LONG else n,
        derandomize=not IS_LONG,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),  # mutants of large files are slow to draw
    )


def shipped_in(folder: Path) -> Seed:
    """Return a recommendation as a study would write it, written into a folder."""
    path = folder / "seed.toml"
    values: dict[str, Value] = {"env.OMP_NUM_THREADS": 2, "torch.memory_format": "channels_last"}
    write_recommendation(path, recommendation(values, probe()))
    return Seed("recommended.toml", path.read_bytes(), tomllib.loads(path.read_text()))
