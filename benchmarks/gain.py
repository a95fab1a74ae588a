"""What does what ships gain in truth, on recorded noise?

    python -m benchmarks.gain [--sources noise-one,noise-several] [--budgets 600,300]
                              [--studies 80] [--together N --share S]
    python -m benchmarks.gain --sources costly-idle,costly-little,costly-worth

Whole studies, minimising and confirmation included, on noise that was recorded on this host
(benchmarks/replay.py), with settings worth as in benchmarks/golden.py. Counted is what the winner
of `same` and of `reduced` gains in truth where it was called faster, else 0.

--together, --share: launches are prepared so many side by side, in that share of the seconds.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence

import msgspec

from benchmarks import replay
from benchmarks.false_claims import recordings
from benchmarks.golden import EXACTLY, ON_NOISE
from benchmarks.processes import processes
from benchmarks.recorded_bench import add_side_by_side
from benchmarks.tape import Recording
from tuner.app.plan import Plan
from tuner.launchers.recorded import SideBySide
from tuner.record.winner_class import WinnerClass
from tuner.study.confirm import make_claims
from tuner.study.planner import Planner
from tuner.study.study import CLASS_ORDER

CLASSES = CLASS_ORDER[:2]
_ON_COSTLY: Mapping[str, float] = {
    "launch.allocator=tcmalloc": math.log(1.4),
    "env.FAKE_THREADS=4": math.log(1.05),
    "fake.layout=blocked": math.log(1.1),
    "fake.compile=fast": math.log(1.25),
    "fake.precision=bf16": math.log(1.7),
}
"""What settings are worth where two are costly; `fake.streams` beside them."""
COSTLY: Mapping[str, float] = {
    "costly-idle": math.log(0.97),
    "costly-little": math.log(1.05),
    "costly-worth": math.log(1.3),
}
"""Sources in which two settings raise memory: what the costlier of them is worth."""
_RAISED = replay.Raised(
    memory={"fake.streams=2": math.log(1.9), "fake.compile=fast": math.log(1.7)},
    seconds={"fake.compile=fast": 10.0},
)
"""As two instances and a compiler do with resnet50 in PyTorch (benchmarks/history)."""


class Job(msgspec.Struct, frozen=True):
    """One study to replay."""

    plan: Plan
    recording: Recording
    source: str
    budget_s: float
    seed: int
    side_by_side: SideBySide


class Found(msgspec.Struct, frozen=True):
    """What came of a class in one study."""

    gain: float
    """Of what is called faster, in truth; 0 where nothing is."""
    is_faster: bool
    half_width: float | None
    """Of the claim's interval (log); None without one."""
    n_settings: int
    """Of the winner, where it is called faster."""
    n_proposals: int
    is_costly: bool
    """Whether it ships the setting that nearly doubles memory."""


def play(job: Job) -> dict[WinnerClass, Found]:
    """Carry out a study; return what came of each class."""
    effects, raised = ON_NOISE.get(job.source), None
    if effects is None:
        effects, raised = {**_ON_COSTLY, "fake.streams=2": COSTLY[job.source]}, _RAISED
    with replay.study_of(
        job.plan, job.recording, effects, job.budget_s, job.seed, job.side_by_side, raised
    ) as study:
        Planner(study).run(replay.PHASES)
        claims = make_claims(study)
        found = {}
        for winner_class in CLASSES:
            claim = claims.claim(winner_class)
            settings = [f"{k}={v}" for k, v in claim.configuration.settings]
            log_gain = sum(effects.get(setting, 0.0) for setting in settings)
            is_faster = claim.verdict == "faster"
            width = math.log(claim.speedup.high / claim.speedup.low) / 2 if claim.speedup else None
            found[winner_class] = Found(
                math.expm1(log_gain) if is_faster else 0.0,
                is_faster,
                width,
                len(settings) if is_faster else 0,
                study.n_proposed(),
                is_faster and raised is not None and "fake.streams=2" in settings,
            )
        return found


def line(found: Sequence[Found]) -> str:
    """Return the figures of a class in words."""
    gains = [f.gain for f in found]
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    settings = [f.n_settings for f in found if f.is_faster]
    widths = [f.half_width for f in found if f.half_width is not None]
    return (
        f"gains {statistics.fmean(gains):6.1%} +- {error:.1%}, faster "
        f"{statistics.fmean(f.is_faster for f in found):4.0%}, half-width "
        f"{statistics.median(widths) if widths else math.nan:5.1%}, settings "
        f"{statistics.fmean(settings) if settings else math.nan:3.1f}, proposals "
        f"{statistics.fmean(f.n_proposals for f in found):4.1f}, costly "
        f"{statistics.fmean(f.is_costly for f in found):4.0%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", default="noise-one,noise-several")
    parser.add_argument("--budgets", default="600,300", help="virtual seconds")
    parser.add_argument("--studies", type=int, default=80)
    add_side_by_side(parser)
    given = parser.parse_args()
    plan, noises = replay.fake_plan(), recordings()
    side_by_side = SideBySide(given.together, given.share)
    for source in given.sources.split(","):
        for budget_s in map(float, given.budgets.split(",")):
            jobs = [
                Job(plan, noises[seed % len(noises)], source, budget_s, seed, side_by_side)
                for seed in range(given.studies)
            ]
            found = []
            with processes(EXACTLY, most=len(jobs)) as pool:
                for n, each in enumerate(pool.map(play, jobs), 1):
                    found.append(each)
                    print(f"\r{n} of {len(jobs)}", end="", file=sys.stderr, flush=True)
            print(file=sys.stderr)
            for winner_class in CLASSES:
                told = line([each[winner_class] for each in found])
                print(f"{source:14} {budget_s:5.0f} s  {winner_class:8} {told}", flush=True)


if __name__ == "__main__":
    main()
