"""Training on batches from a DataLoader of the user's."""

from pathlib import Path

import psutil
import pytest

from tests.worker.workers import Launched
from tuner.errors import UsageError
from tuner.galleries import MODELS
from tuner.launchers.describe import describe_model, find_model
from tuner.record.configuration import Value
from tuner.record.launch import Checked
from tuner.record.load import TRAINING
from tuner.space.knobs_of.torch import LOADER_PREFETCH, LOADER_WORKERS

LOADING = str(Path(__file__).parent.parent / "models" / "loading.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loading")


def launched(
    folder: Path,
    settings: dict[str, Value],
    loader: str = "dataset",
    framework: str = "torch",
) -> Launched:
    environment = {"TUNE_TEST_LOADER": loader}
    return Launched(
        folder, framework, settings, LOADING, environment, references=folder, mode=TRAINING
    )


def test_the_worker_processes_that_are_set_make_the_batches_and_end_with_the_launch(
    folder: Path,
) -> None:
    with launched(folder, {LOADER_WORKERS: 2, LOADER_PREFETCH: 4}) as launch:
        before = set(psutil.Process().children(recursive=True))
        prepared = launch.prepare()
        read_back = {item.knob: item for item in prepared.read_back}
        assert prepared.call_there_s > 0
        launch.measured()
        made = set(psutil.Process().children(recursive=True)) - before
        checked = launch.checked()
    assert (read_back[LOADER_WORKERS].observed, read_back[LOADER_WORKERS].evidence) == (
        2,
        "effective",
    )
    assert read_back[LOADER_PREFETCH].observed == 4
    assert isinstance(checked, Checked), checked
    assert len(made) >= 2
    psutil.wait_procs(made, timeout=60)
    assert not any(each.is_running() for each in made)


@pytest.mark.slow
@pytest.mark.parametrize(("loader", "known"), [("dataset", {LOADER_WORKERS}), ("stream", set())])
def test_only_a_loader_of_a_data_set_with_indices_has_settings(
    folder: Path, loader: str, known: set[str]
) -> None:
    with launched(folder, {}, loader) as launch:
        read_back = launch.read_back()
        assert launch.measured().slice.rate > 0
    assert {knob for knob in read_back if knob.startswith("torch.loader")} == known


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "loader", "expected"),
    [
        (
            "torch",
            "number",
            "loader() returned an object of type int; it must return a torch.utils.data",
        ),
        (
            "torch",
            "words",
            "loader() gives a list of others; a batch must be a tensor, or a list or tuple",
        ),
        ("torch", "generator", "which ends with its first epoch"),
        ("torch", "empty", "loader() gives no batch of the stated size in an epoch"),
        (
            "torch",
            "inputs alone",
            "loader() gives a batch of shapes (16, 32); the model's file states (16, 32), (16,)",
        ),
        ("torch", "small", "loader() gives no batch of the stated size in an epoch"),
        ("torch", "failing", "loader() raised OSError: disk is gone"),
        ("tensorflow", "words", "a batch with an object of type str; it must hold arrays or"),
        ("tensorflow", "workers", "a PyDataset with workers=4, which fit() alone starts"),
        (
            "tensorflow",
            "inputs alone",
            "of shapes (16, 32); the model's file states (16, 32), (16,)",
        ),
    ],
)
def test_what_gives_no_batches_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, framework: str, loader: str, expected: str
) -> None:
    monkeypatch.setenv("TUNE_TEST_LOADER", loader)
    ref, _ = find_model(LOADING, MODELS)
    with pytest.raises(UsageError) as caught:
        describe_model(ref, framework, 0, mode=TRAINING)
    assert expected in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("loader", ["dataset", "numbered"])
def test_tensorflow_trains_on_the_batches_of_its_loaders(folder: Path, loader: str) -> None:
    with launched(folder, {}, loader, "tensorflow") as launch:
        prepared = launch.prepare()
        assert prepared.call_there_s > 0
        assert launch.measured().slice.rate > 0
        checked = launch.checked()
    assert isinstance(checked, Checked), checked
