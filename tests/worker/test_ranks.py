"""Several processes that train one model, each on its part of the batch."""

from pathlib import Path

import psutil
import pytest

from tests.worker.test_training import launched
from tuner.record.configuration import Value
from tuner.record.launch import Checked
from tuner.record.load import TRAINING, Load
from tuner.record.outcome import Outcome
from tuner.record.protocol import Failed, Prepare
from tuner.space.knobs_of.torch import LOADER_WORKERS

LOADING = str(Path(__file__).parent.parent / "models" / "loading.py")
TWO: dict[str, Value] = {"torch.ranks": 2, "env.OMP_NUM_THREADS": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


def test_two_processes_train_as_one_does_and_end_with_the_launch(folder: Path) -> None:
    with launched(folder, "torch", TWO, "fc@size=64") as launch:
        alone = launch.prepare()
        read_back = {item.knob: item for item in alone.read_back}
        assert launch.measured().slice.rate > 0
        started = _ranks()
        checked = launch.checked()
    assert (read_back["torch.ranks"].observed, read_back["torch.ranks"].evidence) == (
        2,
        "effective",
    )
    assert isinstance(checked, Checked), checked
    assert len(started) == 1
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive


def _ranks() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [each for each in children if "tuner.worker.rank" in each.cmdline()]


@pytest.mark.slow
def test_a_norm_over_a_part_of_the_batch_trains_otherwise(folder: Path) -> None:
    with launched(folder, "torch", TWO) as launch:
        launch.prepare()
        checked = launch.checked()
    assert isinstance(checked, Failed)
    assert checked.outcome is Outcome.WRONG_OUTPUT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "model", "batch", "told"),
    [
        ({"torch.ranks": 3}, "fc@size=64", 64, "cannot be divided into 3 equal parts"),
        (TWO | {LOADER_WORKERS: 1}, LOADING, 16, "a part of each batch of the loader"),
    ],
)
def test_what_cannot_be_divided_does_not_apply(
    folder: Path, settings: dict[str, Value], model: str, batch: int, told: str
) -> None:
    with launched(folder, "torch", settings, model) as launch:
        failed = launch.begin()
        if not isinstance(failed, Failed):
            failed = launch.ask(Prepare(Load(TRAINING, batch)))
    assert isinstance(failed, Failed)
    assert failed.outcome is Outcome.NOT_APPLICABLE
    assert told in failed.reason
