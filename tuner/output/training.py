"""What a step of training waits for and keeps in memory, and how many a target takes."""

from __future__ import annotations

from tuner.output.values import ratio
from tuner.record.configuration import Configuration
from tuner.record.figures import figure
from tuner.record.interval import Interval
from tuner.record.result import Result
from tuner.record.time_to_target import TargetArm, TimeToTarget
from tuner.record.workload import CPU


def share_in_words(loading: Interval) -> str:
    """Write the share of a step that loading takes: 43 % (38 - 47 %)."""
    point, low, high = (
        round(100 * max(0.0, 1 - 1 / each)) for each in (loading.point, loading.low, loading.high)
    )
    return f"{point} % ({low} - {high} %)"


def loading_in_words(result: Result) -> str:
    """Say whether steps wait for their batches; empty where these lie in memory."""
    own = result.default.loading
    if own is None:
        return ""
    if own.low <= 1:
        text = (
            "Steps of the default are not measurably slowed by loading their batches: with these "
            f"in memory they would be {ratio(own)} as fast"
        )
    else:
        text = (
            f"Loading takes {share_in_words(own)} of a step of the default: with batches in memory "
            f"steps would be at most {ratio(own)} as fast"
        )
    recommended = result.winners[result.recommended_class]
    if result.verdict != "faster" or recommended.loading is None:
        return f"{text}."
    return f"{text}. Of a step as recommended it takes {share_in_words(recommended.loading)}."


def step_memory(result: Result) -> str:
    """Say what a step of the default keeps, and about how large a batch fits; empty if unknown."""
    kept = None if result.model_facts is None else result.model_facts.step_memory
    if kept is None:
        return ""
    fixed = kept.weights + kept.gradients + kept.optimizer
    text = (
        f"weights {_mib(kept.weights)}, gradients {_mib(kept.gradients)}, state of the optimizer "
        f"{_mib(kept.optimizer)}"
    )
    if kept.activations is None:
        return text
    text += f", activations of a batch of {kept.batch} {_mib(kept.activations)}"
    room = _memory_bytes(result) - fixed
    most = room * kept.batch / kept.activations if kept.activations else 0
    if most < kept.batch:
        return text
    fits = _rounded(most, 2)
    return f"{text}; without workspace of operators, a batch of at most about {fits} would fit"


def time_to_target_in_words(found: TimeToTarget) -> str:
    """Say whether a configuration needs more steps to its target, and what its time to it is."""
    target, n = found.target, len(found.seeds)
    verdict = {
        "as_good": "it learns as well as the default",
        "worse": "it needs more steps than the default",
        "undecided": "not decided whether it needs more steps than the default",
    }[found.verdict]
    parts = [
        f"{target.quality} {figure(target.at_least)} with {_label(found.tuned)}: {verdict}: "
        f"{found.reason}"
    ]
    if found.steps_ratio is not None:
        parts.append(f"{ratio(found.steps_ratio)} the steps of the default in {n} pairs of runs")
    parts.append(f"default {_arm(found.default)}; tuned {_arm(found.tuned)}")
    if found.speedup is not None:
        parts.append(f"the target is reached {ratio(found.speedup)} as fast")
    return ". ".join(_capitalised(part) for part in parts) + "."


def _label(arm: TargetArm) -> str:
    return Configuration.of(arm.configuration).label()


def _arm(arm: TargetArm) -> str:
    """Write the steps and the time of an arm: 312 steps (median), 14.2 s."""
    if arm.median_steps is None:
        return "did not reach it in half of its runs, or more"
    text = f"{_rounded(arm.median_steps, 3)} steps (median"
    if arm.olympic_steps is not None:
        text += f"; mean without the lowest and the highest {_rounded(arm.olympic_steps, 3)}"
    text += ")"
    if arm.seconds is not None:
        text += f", {_rounded(arm.seconds, 3)} s"
    if arm.cost is not None:
        text += f", which cost {_rounded(arm.cost, 3)}"
    return text


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _memory_bytes(result: Result) -> float:
    """Return the memory of what computed."""
    identity = result.host.identity
    if result.device == CPU:
        return float(identity["memory_gib"]) * 2**30
    return float(identity["gpus"][0]["memory_bytes"]) if identity["gpus"] else 0.0


def _mib(n_bytes: int) -> str:
    return f"{_rounded(n_bytes / 2**20, 3)} MiB"


def _rounded(value: float, n_digits: int) -> str:
    return figure(float(f"{value:.{n_digits}g}"))
