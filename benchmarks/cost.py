"""What a verdict costs, where the seconds go, and how little the tool itself computes meanwhile.

    python -m benchmarks.cost --model resnet50 --framework torch [--budget 10m] [--json OUT]
                              [--out FOLDER]

Runs one study (--out keeps it). Seconds to a verdict are counted from the start of the tool to the
end of the last round of the confirmation, with which every class was decided or the time was up.
The tool's own CPU use is that of its process while it waits for slices, as a share of one core.
Beside it, what plain habits would have spent on the same trials, by the launches of this very
study:

  one run each      every configuration once
  ten repeats       every configuration once, ten slices each
  best trial        the search as it was: what study.best_trial needs
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from tuner.app.request import Request, parse_duration
from tuner.app.tune import tune
from tuner.cli.progress import progress
from tuner.launchers.process_launch import ProcessLaunch
from tuner.record.launch import Purpose
from tuner.record.result import Result
from tuner.record.store import Store

_REPEATS = 10


class OwnUse:
    """Counts the CPU seconds of this process while slices run."""

    def __init__(self) -> None:
        self.cpu_s = self.wall_s = 0.0
        self._take_slice = ProcessLaunch.take_slice

    def watch(self) -> None:
        """Count from now on."""
        own, take_slice = self, self._take_slice

        def watched(launch: ProcessLaunch, index: int, seconds: float) -> None:
            cpu_s, wall_s = time.process_time(), time.monotonic()
            try:
                take_slice(launch, index, seconds)
            finally:
                own.cpu_s += time.process_time() - cpu_s
                own.wall_s += time.monotonic() - wall_s

        ProcessLaunch.take_slice = watched  # type: ignore[method-assign, assignment]


def seconds_to_verdict(folder: Path) -> float:
    """Return when the last round ended that was counted."""
    lines = [json.loads(line) for line in (folder / "study.jsonl").read_text().splitlines()]
    rounds = [line["used_s"] for line in lines if line["note"]["type"] == "round"]
    return float(rounds[-1] if rounds else lines[-1]["used_s"])


def plain_habits(folder: Path) -> dict[str, float]:
    """Return the seconds that plain habits would have spent on the same trials."""
    with Store(folder) as store:
        searched = (Purpose.BASELINE, Purpose.SEARCH)
        first = [r for r in store.launches.values() if r.request.purpose in searched and r.slices]
        pacer_s = sum(
            r.slicing_s for r in store.launches.values() if r.request.purpose is Purpose.PACER
        )
    slice_s = [record.slicing_s / len(record.slices) for record in first]
    fixed_s = [record.total_s - record.slicing_s for record in first]
    return {
        "one run each": sum(fixed_s) + sum(slice_s),
        "ten repeats": sum(fixed_s) + _REPEATS * sum(slice_s),
        "best trial": sum(record.total_s for record in first) + pacer_s,
    }


def measure(model: str, framework: str, budget: str, out: Path) -> dict[str, Any]:
    """Run the study and return its figures."""
    command = f"tune-framework --model {model} --framework {framework} --budget {budget}"
    request = Request(
        model=model,
        frameworks=(framework,),
        budget_s=parse_duration(budget),
        out=out,
        command=command,
    )
    use = OwnUse()
    use.watch()
    with progress(quiet=True) as listen:
        (finished,) = tune(request, listen)
    if finished.result is None:
        sys.exit(finished.error)
    result: Result = finished.result
    seconds = msgspec.to_builtins(result.seconds)
    known = sum(value for name, value in seconds.items() if name != "wall")
    return {
        "model": model,
        "framework": framework,
        "verdicts": {name: winner.verdict for name, winner in result.winners.items()},
        "n_trials": len(result.trials),
        "seconds_to_verdict": seconds_to_verdict(finished.folder),
        "seconds": {**seconds, "rest": seconds["wall"] - known},
        "own_cpu_share_during_slices": use.cpu_s / use.wall_s,
        "plain_habits": plain_habits(finished.folder),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--framework", default="torch")
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    parser.add_argument("--out", type=Path, help="keep the study there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = arguments.out or Path(folder) / "study"
        if out.exists():
            sys.exit(f"{out} exists: a study that was begun before cannot be timed; name another")
        found = measure(arguments.model, arguments.framework, arguments.budget, out)
    print(f"{found['model']}, {found['framework']}: {found['verdicts']}")
    print(f"seconds to the verdict: {found['seconds_to_verdict']:.0f}, {found['n_trials']} trials")
    for name, value in found["seconds"].items():
        print(f"  {name:10} {value:6.0f} s")
    print(f"own CPU use during slices: {found['own_cpu_share_during_slices']:.2%} of a core")
    for name, value in found["plain_habits"].items():
        print(f"{name:14} {value:6.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
