"""What a report says of the data and the memory of a step of training."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.analysis.test_time_to_target import ALIKE, SETTINGS, concluded
from tests.output.test_price import MIB, result, words
from tuner.output.headline import next_steps
from tuner.output.measured import measured
from tuner.output.report import render
from tuner.record.interval import Interval
from tuner.record.result import ModelSection, Result
from tuner.record.workload import StepMemory

TEMPLATES = pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])


def trained(
    of_default: Interval | None = None, memory: StepMemory | None = None, **of_winner: Any
) -> Result:
    found = result(**of_winner)
    facts = ModelSection("mlp", "code", [], 4, "", None, None, "")
    return msgspec.structs.replace(
        found,
        default=msgspec.structs.replace(found.default, loading=of_default),
        model_facts=msgspec.structs.replace(facts, learns="the loss; AdamW", step_memory=memory),
    )


@TEMPLATES
def test_a_step_that_waits_says_how_long_and_what_is_to_be_gained(template: str) -> None:
    fed = Interval(1.02, 0.99, 1.05, 0.95)
    found = trained(Interval(2.0, 1.6, 2.5, 0.95), loading=msgspec.to_builtins(fed))
    told = words(render(found, template))
    assert "Loading takes 50 % (38 - 60 %) of a step of the default" in told
    assert "with batches in memory steps would be at most 2.00x (1.60 - 2.50) as fast" in told
    assert "Of a step as recommended it takes 2 % (0 - 5 %)" in told
    assert "of a step, for loading" in measured(found).heads


@TEMPLATES
def test_a_step_that_does_not_wait_says_so(template: str) -> None:
    told = words(render(trained(Interval(1.01, 0.97, 1.06, 0.95)), template))
    assert "not measurably slowed by loading their batches" in told


@TEMPLATES
def test_batches_in_memory_are_no_subject(template: str) -> None:
    assert "oading" not in render(trained(), template).partition("How to use it")[0]


@TEMPLATES
def test_the_memory_of_a_step_is_told_by_what_it_holds(template: str) -> None:
    memory = StepMemory(16, 100 * MIB, 99 * MIB, 198 * MIB, 800 * MIB)
    found = trained(memory=memory)
    told = words(render(found, template))
    assert "weights 100 MiB, gradients 99 MiB, state of the optimizer 198 MiB" in told
    assert "activations of a batch of 16 800 MiB" in told
    room = found.host.identity["memory_gib"] * 1024 - 397
    assert f"a batch of at most about {float(f'{room / 50:.2g}'):.0f} would fit" in told.replace(
        ",", ""
    )


def test_what_several_processes_train_is_started_by_torchrun() -> None:
    found = trained(configuration={"torch.ranks": 2, "env.OMP_NUM_THREADS": 1})
    assert next_steps(found)[0].command.endswith("-- torchrun --nproc-per-node 2 train.py")


@TEMPLATES
def test_activations_that_nothing_shows_are_left_out(template: str) -> None:
    told = words(render(trained(memory=StepMemory(16, MIB, MIB, 2 * MIB, None)), template))
    assert "state of the optimizer 2 MiB" in told
    assert "activations of a batch" not in told


@TEMPLATES
def test_a_target_is_the_next_step_until_it_was_trained_to(template: str) -> None:
    found = trained(configuration=SETTINGS)
    assert found.model_facts is not None
    facts = msgspec.structs.replace(found.model_facts, has_target=True)
    found = msgspec.structs.replace(
        found,
        model_facts=facts,
        command="tune-framework --model mine.py --mode training",
        verdict="faster",
    )
    step = "tune-framework time-to-target x/recommended.toml --model mine.py"
    assert step in [each.command for each in next_steps(found, Path("x"), Path("x"))]
    done = msgspec.structs.replace(found, time_to_target=[concluded(*ALIKE)])
    assert step not in [each.command for each in next_steps(done, Path("x"), Path("x"))]
    assert "it learns as well as the default" in words(render(done, template))
    several = trained(configuration={"torch.ranks": 2})
    several = msgspec.structs.replace(several, model_facts=facts, verdict="faster")
    assert not [each for each in next_steps(several) if "time-to-target" in each.command]
