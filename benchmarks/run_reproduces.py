"""Does a plain script gain under `tune-framework run` what the study claims for no_code?

    python -m benchmarks.run_reproduces reports/resnet50-torch-offline-12345678 [--rounds 8]

A round runs the script of twenty lines twice, with and without `run recommended.no_code.toml`,
in random order; the script knows nothing of this tool. Printed: the ratio with its 95 % interval,
beside the claim.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
from pathlib import Path

from benchmarks.default_agrees import image_size
from tuner.galleries import MODELS
from tuner.host.environment import untuned
from tuner.launchers.describe import describe_model, find_model
from tuner.measurement.confirmation import t_interval
from tuner.space.recommended import read_recommended

HERE = Path(__file__).resolve().parent
SCRIPT_S = 1.0


def rate(command: list[str]) -> float:
    """Run a command that prints items per second last; return that figure."""
    done = subprocess.run(
        command, env=untuned(os.environ), capture_output=True, text=True, timeout=300, check=True
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a finished study of an image model")
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    recommended = arguments.folder / "recommended.no_code.toml"
    recommendation = read_recommended(recommended)
    workload = recommendation.workload
    ref, _ = find_model(workload.model, MODELS)
    height, width = image_size(describe_model(ref, workload.framework, 0))
    numbers = map(str, (height, width, workload.batch, SCRIPT_S))
    script = [sys.executable, str(HERE / f"plain_{workload.framework}.py"), ref.path, *numbers]
    under = [sys.executable, "-m", "tuner.cli.main", "run", "-q", str(recommended), "--", *script]
    draw = random.Random(0)
    logs = []
    for _ in range(arguments.rounds):
        found = {}
        for name in draw.sample(("plain", "run"), 2):
            found[name] = rate(script if name == "plain" else under)
        logs.append(math.log(found["run"] / found["plain"]))
        print(f"plain {found['plain']:.2f} items/s, under run {found['run']:.2f}", flush=True)
    point, low, high = (math.exp(v) for v in t_interval(logs, 0.05))
    claim = recommendation.claim.speedup
    told = f"{claim.point:.2f}x ({claim.low:.2f} - {claim.high:.2f})" if claim else "nothing"
    print(f"run / plain = {point:.3f} ({low:.3f} - {high:.3f}); the study claims {told}")


if __name__ == "__main__":
    main()
