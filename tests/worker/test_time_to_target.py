"""Runs of real frameworks to a target: they learn, alike for one seed, and as a script does."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from tuner.errors import UsageError
from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.launchers.asking import ask
from tuner.launchers.describe import PATIENT, find_model
from tuner.record.configuration import Configuration, Value
from tuner.record.protocol import LearnToTarget
from tuner.record.time_to_target import TrainingRun
from tuner.space.launching import plan_launch

LEARNS = str(Path(__file__).parent.parent / "models" / "to_target.py")
FRAMEWORKS = ("torch", pytest.param("tensorflow", marks=pytest.mark.slow))


def trained(
    framework: str, seed: int = 0, settings: dict[str, Value] | None = None, model: str = LEARNS
) -> TrainingRun:
    ref, _ = find_model(model, MODELS)
    configuration = Configuration.of(settings or {})
    (plan,) = plan_launch(configuration, probe())
    order = LearnToTarget(ref, framework, seed, configuration.as_dict(), plan.memory_policy, 32)
    run = ask(order, [ref], PATIENT, plan=plan)
    assert isinstance(run, TrainingRun)
    return run


once = functools.cache(trained)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_model_reaches_its_target_and_stops_there(framework: str) -> None:
    run = once(framework)
    steps = [step for step, _ in run.evaluations]
    assert steps == list(range(0, 5 * len(steps), 5))
    first, *between, last = (quality for _, quality in run.evaluations)
    assert first < 0.8 <= last
    assert all(quality < 0.8 for quality in between)
    assert run.step_s > 0


@pytest.mark.slow
@pytest.mark.parametrize("framework", ("torch", "tensorflow"))
def test_a_run_repeats_for_its_seed_and_no_other(framework: str) -> None:
    again, other = trained(framework), trained(framework, seed=1)
    assert again.evaluations == once(framework).evaluations
    assert other.evaluations != again.evaluations


def test_it_learns_what_a_script_learns() -> None:
    """The same seeds, samples and steps without the tool: the same qualities."""
    import runpy

    import torch

    file = runpy.run_path(LEARNS)
    torch.manual_seed(0)
    model = file["torch"]()
    optimizer = file["torch_optimizer"](model.parameters())
    x, y = map(torch.from_numpy, file["held_out"]())
    expected = []
    for step in range(len(once("torch").evaluations) * 5 - 4):
        if step % 5 == 0:
            with torch.no_grad():
                model.eval()
                outputs = model(x).numpy()
                model.train()
            expected.append((step, float(file["quality"]([outputs], [y.numpy()]))))
        given, classes = map(torch.from_numpy, file["samples"](32, step))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(given), classes).backward()
        optimizer.step()
    assert np.allclose(once("torch").evaluations, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "settings"),
    [
        ("torch", {"torch.autocast": "bf16"}),
        ("torch", {"torch.accumulation": 2}),
        ("tensorflow", {"tensorflow.keras_policy": "mixed_bfloat16"}),
    ],
)
def test_settings_change_how_it_learns_a_little(framework: str, settings: dict[str, Value]) -> None:
    run = trained(framework, settings=settings)
    if "torch.accumulation" not in settings:  # parts of a batch without norms add up to the same
        assert run.evaluations != once(framework).evaluations
    assert run.steps_to_target() == pytest.approx(once(framework).steps_to_target(), rel=0.2)


@pytest.mark.slow
def test_dropout_is_trained_and_not_evaluated() -> None:
    run = trained("torch", model=f"{LEARNS}@dropout=0.9")
    assert run.steps_to_target() > once("torch").steps_to_target()


@pytest.mark.slow
def test_an_optimizer_that_stands_still_does_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_TEST_BROKEN", "stands still")
    run = trained("torch")
    assert run.steps_to_target() == float("inf")
    assert run.evaluations[-1][0] == 400
    assert len({quality for _, quality in run.evaluations}) == 1


@pytest.mark.slow
def test_several_processes_are_refused() -> None:
    with pytest.raises(UsageError, match="several processes are not trained to a target"):
        trained("torch", settings={"torch.ranks": 2})
