"""A worker that is forked after PyTorch was imported is the one that would have been started."""

from pathlib import Path

import pytest

from tests.virtual import STARTS
from tests.wants import needs
from tests.worker.conftest import Ask
from tests.worker.workers import Launched
from tuner.record.configuration import Value
from tuner.record.launch import Checked

pytestmark = [pytest.mark.slow, needs("torch")]


def is_forked(launched: Launched) -> bool:
    return "seed.py" in Path(f"/proc/{launched.worker.pid}/cmdline").read_text()


def test_a_forked_worker_tells_what_a_started_one_does(
    tmp_path: Path, references: Path, told: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = told("torch", {})
    monkeypatch.setenv(STARTS, "1")
    with Launched(tmp_path, "torch", {}, references=references) as launched:
        assert not is_forked(launched)
        prepared = launched.prepare()
        checked = launched.checked(n_inputs=128)
    seen, started = (
        [(each.knob, each.observed, each.evidence) for each in items]
        for items in (forked.prepared.read_back, prepared.read_back)
    )
    assert seen == started
    assert isinstance(checked, Checked)
    assert isinstance(forked.checked, Checked)
    assert forked.checked.check == checked.check


@pytest.mark.parametrize(
    ("settings", "environment", "expected"),
    [
        ({}, {}, True),
        ({"torch.compile.mode": "default"}, {"TORCHINDUCTOR_CACHE_DIR": "elsewhere"}, True),
        ({"env.OMP_NUM_THREADS": 1}, {}, False),
        ({}, {"TORCH_COMPILE_DISABLE": "1"}, False),
        ({}, {"CXX": "/bin/false"}, False),
        ({}, {"MALLOC_ARENA_MAX": "1"}, False),
    ],
)
def test_a_worker_is_started_where_pytorch_would_read_something_else(
    tmp_path: Path,
    references: Path,
    settings: dict[str, Value],
    environment: dict[str, str],
    expected: bool,
) -> None:
    with Launched(
        tmp_path, "torch", settings, environment=environment, references=references
    ) as launched:
        assert is_forked(launched) is expected
