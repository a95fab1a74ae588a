"""Runs of training to a quality target, and what pairs of them show."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import msgspec

from tuner.errors import StorageFailed, UsageError
from tuner.record.configuration import Value
from tuner.record.interval import Interval

RUNS = "time_to_target.jsonl"
"""In the folder of a study: every run, in the order in which they were made."""

MOST_STEPS = 1_000_000
"""Of a run."""

QualityVerdict = Literal["as_good", "worse", "undecided"]


class Target(msgspec.Struct, frozen=True):
    """The quality that a model has to reach, and how often it is measured."""

    quality: str
    """What the file's quality() returns, in words: accuracy. More is better."""
    at_least: float
    every: int
    """Steps between two measurements of the quality."""
    most_steps: int
    """Steps after which a run has not reached it."""


class TrainingRun(msgspec.Struct, frozen=True, tag="training_run"):
    """A model trained from new weights until it reached its target, or did not."""

    target: Target
    evaluations: tuple[tuple[int, float], ...]
    """Steps taken, and the quality after them; from 0 on. Without the last one if it was not
    finite, which ends a run."""
    step_s: float
    """Mean seconds of a step, without the first one, which compiles."""
    seconds: float
    """Of all steps; without measuring the quality."""
    versions: dict[str, str] = {}
    """Of the framework, and of what it computes with."""

    def steps_to_target(self) -> float:
        """Return after how many steps the target was first reached; infinity if it was not.

        Between two evaluations the quality is taken to change evenly.
        """
        before, quality_before = 0, -math.inf
        for step, quality in self.evaluations:
            if quality >= self.target.at_least:
                rise = quality - quality_before
                if not math.isfinite(rise) or rise <= 0:
                    return float(step)
                share = (self.target.at_least - quality_before) / rise
                return before + share * (step - before)
            before, quality_before = step, quality
        return math.inf

    def in_words(self) -> str:
        """Say how it went, on one line."""
        target, steps = self.target, self.steps_to_target()
        spent = f"{self.seconds:.1f} s of steps"
        if math.isfinite(steps):
            return f"{target.quality} {target.at_least:g} after {steps:.1f} steps ({spent})"
        last = f"{self.evaluations[-1][1]:.4g}" if self.evaluations else "not finite"
        return f"{target.quality} {last} and not {target.at_least:g} at the end ({spent})"


Pair = tuple[TrainingRun, TrainingRun]
"""A run of the default, and one of a configuration, with the same seed."""


class StoredRun(msgspec.Struct, frozen=True):
    """A run, and what was trained in it."""

    seed: int
    model: str
    """Its name and parameters, as it is typed."""
    framework: str
    device: str
    batch: int
    configuration: dict[str, Value]
    source_sha256: str
    """Of the model's file."""
    created: str
    """When it ended (UTC, ISO 8601)."""
    run: TrainingRun
    wall_s: float
    """Seconds that it took, with starting the process, compiling, and measuring the quality."""


class TargetArm(msgspec.Struct, frozen=True):
    """How the runs of one configuration went, over the seeds that both have."""

    configuration: dict[str, Value]
    steps: list[float | None]
    """To the target, by seed; None if it was not reached."""
    median_steps: float | None
    """None if half of the runs did not reach it."""
    olympic_steps: float | None
    """The mean without the lowest and the highest; None for fewer than three runs, or if more than
    one did not reach it."""
    seconds: float | None
    """Of the median number of steps, at the rate that the study confirmed; None if there is none.
    """
    cost: float | None
    """Of these seconds, if the study has a price per hour."""


class TimeToTarget(msgspec.Struct, frozen=True):
    """Whether a configuration reaches the quality target in as many steps as the default."""

    target: Target
    seeds: list[int]
    default: TargetArm
    tuned: TargetArm
    margin: float
    """The share of additional steps that is not accepted."""
    verdict: QualityVerdict
    reason: str
    steps_ratio: Interval | None
    """Steps of the configuration over those of the default, from pairs of one seed each; None if a
    run did not reach the target."""
    n_needed: int | None
    """Pairs that the first ones ask for; None before these were made."""
    speedup: Interval | None
    """Of the time to the target: the speedup of a step over the ratio of the steps."""


def read_runs(folder: Path) -> list[StoredRun]:
    """Read the runs of a study; a last line that was not written whole is left out.

    Raises UsageError for another line that cannot be read.
    """
    path = folder / RUNS
    if not path.exists():
        return []
    *lines, last = path.read_bytes().split(b"\n")
    decoder = msgspec.json.Decoder(StoredRun)
    try:
        found = [decoder.decode(line) for line in lines]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is damaged: {error}; remove it to train anew") from error
    if last:
        try:
            found.append(decoder.decode(last))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return found
    return found


def add_run(folder: Path, run: StoredRun) -> None:
    """Append a run; raises StorageFailed if the disk refuses."""
    path = folder / RUNS
    try:
        with path.open("ab") as file:
            if file.tell() and not path.read_bytes().endswith(b"\n"):  # it was cut off
                file.truncate(path.read_bytes().rfind(b"\n") + 1)
            file.write(msgspec.json.encode(run) + b"\n")
            file.flush()
    except OSError as error:
        raise StorageFailed(f"cannot write {path}: {error.strerror}") from error
