"""The headline of a result as data: a line for each class of winners, the best confirmed first.

Terminal, reports, index and comparison all render these lines.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import msgspec

from tuner.engines import FRAMEWORK
from tuner.output.continuing import going_on, model_file
from tuner.output.phrases import same_settings
from tuner.output.price import short_call, short_memory
from tuner.output.serving import highest_rate
from tuner.output.values import value_of
from tuner.output.why import explanation_of
from tuner.record.configuration import Configuration
from tuner.record.figures import duration, figure
from tuner.record.identities import card
from tuner.record.interval import Interval
from tuner.record.journal import Phase
from tuner.record.load import INFERENCE, SCENARIOS, TRAINING, mode_of
from tuner.record.output_check import OutputCheck
from tuner.record.result import Result, Verdict, WinnerSection
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import CPU, OF_PROGRAMS
from tuner.space.catalogue import class_title, describe, narrowest_class
from tuner.space.knobs_of.engines import ENGINE
from tuner.space.knobs_of.launch import BATCH, INSTANCES
from tuner.space.knobs_of.torch import RANKS

ANY_PROGRAM = {INFERENCE: "python serve.py", TRAINING: "python train.py"}
"""Stands for the user's own in commands, by mode."""
EXPLAIN = "explain"
"""The label of the step that explains a recommendation."""
_MANY_TOP1 = 64
"""Inputs that a comparison of classes needs; settings that keep the numerics get fewer."""
_RANKS: dict[Verdict, int] = {"faster": 0, "ambiguous": 1, "keep_default": 2}


class ClassLine(msgspec.Struct, frozen=True):
    """The finding of a class, each part in words; parts without content are empty."""

    winner_class: WinnerClass
    name: str
    verdict: Verdict
    gain: str
    """2.53x faster; 1.20x, not decided; 1.20x, too costly so far; keep the default."""
    interval: str
    """Of the gain: 2.12 - 3.01."""
    evidence: str
    """The evidence of a verdict without a claim, and what would decide it."""
    value: str
    """41 items/s."""
    memory: str
    """681 MiB (default 423)."""
    outputs: str
    """How far reduced precision changes them: drift 2 %, top-1 98 %."""
    code: str
    """The changes that the program needs: 3 lines of code."""
    call: str
    """The time of a call, if the metric does not state it: call 1,435 ms (default 326)."""
    same_as: WinnerClass | None
    """A narrower class with the same winner."""

    @property
    def reached(self) -> str:
        """Return the gain with its interval, and of a class that claims nothing all evidence."""
        text = f"{self.gain} ({self.interval})" if self.interval else self.gain
        return f"{text}, {self.evidence}" if self.evidence else text

    @property
    def price(self) -> list[str]:
        """Return the costs next to a confirmed gain, the most important first."""
        parts = (self.value, self.memory, self.outputs, self.code, self.call)
        return [part for part in parts if part]


class NextStep(msgspec.Struct, frozen=True):
    """A command to copy."""

    label: str
    command: str
    file: str = ""
    """The file of the study's folder that it needs."""


def class_lines(result: Result) -> list[ClassLine]:
    """Return a line for each class: confirmed ones by their gain, then others by theirs."""

    def order(winner_class: WinnerClass) -> tuple[int, bool, float]:
        section = result.winners[winner_class]
        known = section.speedup
        if known is None and section.verdict == "faster":  # the default misses the bound
            known = value_of(section)
        reached = known.point if known else section.search_ratio or 0.0
        return _RANKS[section.verdict], bool(_earlier(result, winner_class)), -reached

    found = [_line(result, winner_class) for winner_class in sorted(WinnerClass, key=order)]
    has_costs = False
    for i, line in enumerate(found):  # the default's is told once
        found[i] = _without_default(line) if has_costs else line
        has_costs = has_costs or bool(line.memory or line.call)
    return found


def _without_default(line: ClassLine) -> ClassLine:
    memory, call = (text.partition(" (")[0] for text in (line.memory, line.call))
    return msgspec.structs.replace(line, memory=memory, call=call)


def _line(result: Result, winner_class: WinnerClass) -> ClassLine:
    winner = result.winners[winner_class]
    configuration = Configuration.of(winner.configuration)
    is_faster = winner.verdict == "faster"
    earlier = _earlier(result, winner_class)
    is_priced = is_faster and not earlier
    gain, interval, evidence = _reached(result, winner)
    if earlier:
        gain, interval, evidence = f"as {class_title(earlier)}", "", ""
    name, verdict = class_name(winner, winner_class), winner.verdict
    if earlier and (better := winner.left_out) is not None:
        name = class_title(winner_class, Configuration.of(better.configuration))
        gain = f"{better.search_ratio:.2f}x in the search, not confirmed"
        evidence, verdict = f"about {more_time(better.seconds)} would decide it", "ambiguous"
    is_reduced = narrowest_class(configuration) is WinnerClass.REDUCED_PRECISION
    return ClassLine(
        winner_class=winner_class,
        name=name,
        verdict=verdict,
        gain=gain,
        interval=interval,
        evidence=evidence,
        value=_value(winner, result) if is_priced else "",
        memory=short_memory(winner, result.default) if is_priced else "",
        outputs=_outputs(winner.output_drift) if is_priced and is_reduced else "",
        code=_code(configuration) if is_priced else "",
        call=short_call(winner, result) if is_priced else "",
        same_as=earlier,
    )


def _earlier(result: Result, winner_class: WinnerClass) -> WinnerClass | None:
    """Return a narrower class with the same winner and verdict, or None."""
    winner = result.winners[winner_class]
    earlier = same_settings(result, winner_class) if winner.configuration else None
    is_same = earlier is not None and result.winners[earlier].verdict == winner.verdict
    return earlier if is_same else None


def _reached(result: Result, winner: WinnerSection) -> tuple[str, str, str]:
    """Return the gain, its interval, and the evidence of a gain that is not claimed."""
    speedup = winner.speedup
    if winner.verdict == "faster":
        if speedup is not None:
            return f"{speedup.point:.2f}x faster", _interval(speedup), ""
        by_default = "answers none" if result.default_silence else "misses the bound at any rate"
        return f"in time at {highest_rate(winner, result)}", "", f"where the default {by_default}"
    if winner.verdict == "keep_default":
        if speedup is None:
            return "keep the default", "", ""
        tried = f"tried {speedup.point:.2f}x ({_interval(speedup)})"
        return "keep the default", "", tried
    known = _undecided(winner, is_over=_is_over(result))
    if speedup is not None:
        lacking = "too costly so far" if winner.is_unjustified else "not decided"
        return f"{speedup.point:.2f}x, {lacking}", _interval(speedup), known
    if winner.search_ratio is not None and winner.search_ratio >= 1:
        return f"{winner.search_ratio:.2f}x in the search, not decided", "", known
    return "not decided", "", known


def _interval(speedup: Interval) -> str:
    high = f"{speedup.high:.2f}" if speedup.high < 1000 else "unbounded"
    return f"{speedup.low:.2f} - {high}"


def _undecided(winner: WinnerSection, *, is_over: bool) -> str:
    """Write what is known of an undecided class, and the budget that would decide it."""
    won = ""
    if winner.n_won is not None:
        won = f"won {winner.n_won} of {_counted(winner.n_compared, 'round')}"
    if not is_over and winner.configuration:
        return f"{won}: not confirmed yet" if won else "not confirmed yet"
    if winner.speedup is None and winner.seconds_to_decide is None:
        return winner.reason
    if winner.seconds_to_decide is not None:
        needed = f"about {more_time(winner.seconds_to_decide)} would decide it"
        return f"{won}: {needed}" if won else needed
    is_large = winner.speedup is not None and winner.speedup.point > 1 + winner.noise_floor
    return f"{won}: more time would hardly decide it" if won and is_large else won


def more_time(seconds: float) -> str:
    """Write seconds that a study should go on for: 1 more minute, 12 more minutes."""
    return _counted(_minutes(seconds), "more minute")


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _minutes(seconds: float) -> int:
    return max(1, math.ceil(seconds / 60))


def _value(winner: WinnerSection, result: Result) -> str:
    value = value_of(winner)
    if value is None or winner.speedup is None:  # else the gain holds it
        return ""
    return f"{figure(value.point)} {result.objective.unit}"


def _outputs(check: OutputCheck | None) -> str:
    """Say how far outputs are from the default's, and how often the class is the same."""
    if check is None or not check.n_inputs:
        return ""
    text = f"drift {100 * check.drift:.2g} %"
    if check.accuracy is not None:
        return f"{text}, accuracy {check.accuracy:.4g}"
    agree = check.top1_agreement if check.top1_all is None else check.top1_all
    if agree is None or check.n_inputs < _MANY_TOP1:
        return text
    return f"{text}, top-1 {100 * agree:.3g} %"


def _code(configuration: Configuration) -> str:
    n = sum(describe(knob).needs_code_change for knob, _ in configuration.settings)
    return f"{_counted(n, 'line')} of code" if n else ""


def class_name(winner: WinnerSection, winner_class: WinnerClass) -> str:
    """Name a class for a reader: bf16, same precision, no code change."""
    return class_title(winner_class, Configuration.of(winner.configuration))


def in_short(result: Result) -> str:
    """Return the headline in a few words, as a title has them: bf16 2.53x faster."""
    best = class_lines(result)[0]
    if best.verdict == "faster":
        return f"{best.name} {best.gain}"
    return "not decided" if best.verdict == "ambiguous" else "keep the default"


def what_was_tuned(result: Result) -> str:
    """Write what was measured, where, and for how long: resnet50 · torch · offline · ..."""
    identity = result.host.identity
    cores = identity["quota_cores"] or identity["physical_cores"]
    host = f"{identity['processor']['model']}, {figure(cores)} core{'' if cores == 1 else 's'}"
    if result.device != CPU:
        host = card(identity["gpus"][0])
    parts = (result.model, result.framework, result.load_in_words(), host)
    return " · ".join((*parts, duration(result.seconds.wall)))


def next_steps(result: Result, folder: Path = Path(), files: Path = Path()) -> list[NextStep]:
    """Return the commands that ship the confirmed winners, and the one that continues the study.

    folder: the study's, as seen from where it was begun. files: the same, as seen from where the
    commands that need its files will be typed.
    """
    steps = []
    for line in class_lines(result):
        winner = result.winners[line.winner_class]
        if winner.verdict != "faster" or _earlier(result, line.winner_class):
            continue
        is_recommended = winner.configuration == _recommended(result)
        file = "recommended.toml" if is_recommended else f"recommended.{line.winner_class}.toml"
        label = "ship" if is_recommended else f"with {line.name}"
        program = _program(result, winner)
        command = f"tune-framework run {shlex.quote(str(files / file))} -- {program}"
        steps.append(NextStep(label, command, file))
    steps.sort(key=lambda step: step.label != "ship")
    if command := _why(result, folder):
        steps.append(NextStep(EXPLAIN, command))
    if command := _to_target(result, folder):
        steps.append(NextStep("train", command))
    if command := _goes_on(result, folder):
        steps.append(NextStep("go on", command))
    return steps


def _recommended(result: Result) -> dict[str, object] | None:
    is_any = result.verdict == "faster"
    return dict(result.winners[result.recommended_class].configuration) if is_any else None


def _program(result: Result, winner: WinnerSection) -> str:
    """Stand for the user's own program, as a winner has it started."""
    if (n := winner.configuration.get(RANKS, 1)) != 1:
        return f"torchrun --nproc-per-node {n} train.py"
    return ANY_PROGRAM[mode_of(result.scenario)]


def _why(result: Result, folder: Path) -> str:
    """Return the command that says why the recommendation is faster.

    Empty if it was said, or if no profiler looks into what was tuned.
    """
    facts = result.model_facts
    settings = result.winners[result.recommended_class].configuration
    is_within = settings.get(ENGINE, FRAMEWORK) == FRAMEWORK
    is_seen = is_within and facts is not None and facts.form not in OF_PROGRAMS
    is_served = result.scenario in SCENARIOS and SCENARIOS[result.scenario].is_served
    if result.verdict != "faster" or not is_seen or is_served or explanation_of(result) is not None:
        return ""
    return _about_the_recommendation("explain", result, folder)


def _about_the_recommendation(command: str, result: Result, folder: Path) -> str:
    words = ["tune-framework", command, str(folder / "recommended.toml")]
    if (file := model_file(result.command, result.model)) is not None:
        words += ["--model", file]
    return shlex.join(words)


def _to_target(result: Result, folder: Path) -> str:
    """Return the command that trains the recommendation to the target of the model's file.

    Empty if the file states none, if it was decided, or if several processes would be trained.
    """
    facts = result.model_facts
    if facts is None or not facts.has_target or result.verdict != "faster":
        return ""
    won = result.winners[result.recommended_class].configuration
    settings = {knob: value for knob, value in won.items() if knob != BATCH}
    decided = [e.tuned.configuration for e in result.time_to_target if e.verdict != "undecided"]
    if settings in decided or any(won.get(knob, 1) != 1 for knob in (RANKS, INSTANCES)):
        return ""
    return _about_the_recommendation("time-to-target", result, folder)


def _goes_on(result: Result, folder: Path) -> str:
    """Return the command that measures for as long as would decide all; empty if none would.

    Of a study that is not over, that which resumes it.
    """
    if not _is_over(result):
        return result.command if result.command.startswith("tune-framework ") else ""
    seconds = [
        winner.seconds_to_decide
        for winner in result.winners.values()
        if winner.verdict == "ambiguous" and winner.seconds_to_decide is not None
    ]
    seconds += [each.left_out.seconds for each in result.winners.values() if each.left_out]
    if not seconds:
        return ""
    extend = f"{_minutes(max(seconds))}m"
    return going_on(result.command, result.model, result.framework, folder, extend)


def _is_over(result: Result) -> bool:
    """Tell whether the study came to its end; a result is also written with an early verdict."""
    return str(Phase.CONFIRM) in result.phases
