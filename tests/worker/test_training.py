"""Training in real frameworks: steps are the default's, settings are in force, faults are seen."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.recommendations import written
from tests.wants import needs
from tests.worker.workers import Launched
from tuner.errors import UsageError
from tuner.galleries import MODELS
from tuner.launchers.describe import describe_model, find_model
from tuner.record.configuration import Value
from tuner.record.launch import Checked
from tuner.record.load import TRAINING, Load
from tuner.record.outcome import Outcome
from tuner.record.protocol import Failed, Prepare

LEARNING = str(Path(__file__).parent.parent / "models" / "learning.py")
UNLEARNABLE = str(Path(__file__).parent.parent / "models" / "unlearnable.py")
FRAMEWORKS = ("torch", pytest.param("tensorflow", marks=pytest.mark.slow))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("training")


def launched(
    folder: Path,
    framework: str,
    settings: dict[str, Value],
    model: str = LEARNING,
    broken: str = "",
) -> Launched:
    environment = {"TUNE_TEST_BROKEN": broken} if broken else {}
    return Launched(
        folder, framework, settings, model, environment, references=folder, mode=TRAINING
    )


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_default_trains_as_its_reference_does(folder: Path, framework: str) -> None:
    with launched(folder, framework, {}) as launch:
        prepared = launch.prepare()
        assert all(item.requested is None and item.in_force for item in prepared.read_back)
        assert launch.measured().slice.rate > 0
        checked = launch.checked()
    assert isinstance(checked, Checked), checked
    assert checked.check.drift < 1e-6
    assert checked.check.n_inputs == 4


@pytest.mark.parametrize(
    "broken",
    [
        "detached",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("frozen", "adding", "constant", "underflow")
        ),
    ],
)
def test_a_step_that_learns_otherwise_is_wrong(folder: Path, broken: str) -> None:
    with launched(folder, "torch", {}, broken=broken) as launch:
        launch.prepare()
        checked = launch.checked(reduced=True)
    assert isinstance(checked, Failed), checked
    assert checked.outcome is Outcome.WRONG_OUTPUT


@pytest.mark.parametrize(
    ("framework", "settings"),
    [
        ("torch", {"torch.optimizer": "fused"}),
        pytest.param("torch", {"torch.optimizer": "foreach"}, marks=pytest.mark.slow),
        pytest.param("torch", {"torch.optimizer": "for_loop"}, marks=pytest.mark.slow),
        pytest.param(
            "torch",
            {"torch.compile.mode": "default"},
            marks=[pytest.mark.slow, needs("a C++ compiler")],
        ),
        pytest.param("tensorflow", {"tensorflow.jit_compile": True}, marks=pytest.mark.slow),
    ],
)
def test_a_setting_of_training_is_in_force(
    folder: Path, framework: str, settings: dict[str, Value]
) -> None:
    with launched(folder, framework, settings) as launch:
        read_back = launch.read_back()
        checked = launch.checked()
    for knob, value in settings.items():
        assert (read_back[knob].observed, read_back[knob].evidence) == (value, "effective")
    assert isinstance(checked, Checked), checked


@pytest.mark.slow
def test_parts_of_a_batch_are_wrong_where_a_norm_takes_their_statistics(folder: Path) -> None:
    with launched(folder, "torch", {"torch.accumulation": 2}) as launch:
        item = launch.read_back()["torch.accumulation"]
        checked = launch.checked()
    assert (item.observed, item.evidence) == (2, "effective")
    assert isinstance(checked, Failed)
    assert checked.outcome is Outcome.WRONG_OUTPUT


@pytest.mark.slow
def test_an_optimizer_without_the_asked_way_does_not_apply(folder: Path) -> None:
    with launched(folder, "torch", {"torch.optimizer": "fused"}, broken="rprop") as launch:
        launch.begin()
        failed = launch.ask(Prepare(Load(TRAINING, 16)))
    assert isinstance(failed, Failed)
    assert failed.outcome is Outcome.NOT_APPLICABLE
    assert "Rprop of this version of PyTorch has no fused implementation" in failed.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "settings"),
    [
        pytest.param("torch", {"torch.compile.mode": "default"}, marks=needs("a C++ compiler")),
        ("tensorflow", {"tensorflow.jit_compile": True}),
    ],
)
def test_dropout_is_left_out_of_the_comparison(
    folder: Path, framework: str, settings: dict[str, Value]
) -> None:
    with launched(folder, framework, settings, f"{LEARNING}@dropout=0.5") as launch:
        launch.prepare()
        checked = launch.checked()
    assert isinstance(checked, Checked), checked


@pytest.mark.slow
def test_parts_of_a_batch_train_alike_without_norms(folder: Path) -> None:
    with launched(folder, "torch", {"torch.accumulation": 2}, "fc") as launch:
        launch.prepare()
        checked = launch.checked()
    assert isinstance(checked, Checked), checked


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("nan", "not finite"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("in_place", "changes its inputs in place"),
                ("frozen", "nothing to train"),
                ("no_floats", "no tensor of floats"),
            )
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_with_the_reason(function: str, told: str) -> None:
    ref, _ = find_model(f"{UNLEARNABLE}:{function}", MODELS)
    with pytest.raises(UsageError, match=told):
        describe_model(ref, "torch", 0, mode=TRAINING)


APPLIED = """
import sys, torch, tuner
from tuner.errors import UsageError
from pathlib import Path
tuned = tuner.apply(sys.argv[1])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters())
try:
    tuned.prepare(model)
except UsageError as error:
    print(error)
model = tuned.prepare_training(model, optimizer)
x = torch.randn(16, 8)
losses = []
for _ in range(20):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(type(model).__name__, losses[0] > losses[-1], optimizer.param_groups[0]["fused"])
print(tuned.missing)
"""


def test_a_loop_of_the_user_s_own_trains_under_a_recommendation(tmp_path: Path) -> None:
    settings: dict[str, Value] = {"torch.optimizer": "fused", "torch.accumulation": 2}
    path = written(tmp_path, settings, scenario=TRAINING)
    script = tmp_path / "train.py"
    script.write_text(APPLIED)
    done = subprocess.run(
        [sys.executable, script, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    refused, trained, missing = done.stdout.splitlines()
    assert refused == "the recommendation is for training: call prepare_training() instead"
    assert trained == "Sequential True True"
    assert "torch.accumulation=2" in missing
