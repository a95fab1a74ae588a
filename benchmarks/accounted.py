"""How much of a difference in speed do the classes of operators hold that `explain` names?

    python -m benchmarks.accounted FOLDER [resnet50/torch ...] [--budget 10m]

Models of four families in both frameworks, each with settings that are known to make it faster.
For every pair: the speedup, the share of the difference in classes of operators (framework overhead
and operators of unknown class are not counted), and the first reason. What is there in FOLDER is
not measured again. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

import tuner
from tuner.errors import TuneError
from tuner.output.why import findings
from tuner.record.why import Why

COMPILED = ("torch.compile.mode=freezing",)
XLA = ("tensorflow.jit_compile=true",)
PAIRS = {
    "resnet50/torch": (*COMPILED, "torch.memory_format=channels_last"),
    "bert-base/torch": COMPILED,
    "ncf/torch": ("launch.allocator=mimalloc",),
    "lstm-tagger/torch": ("launch.instances=2",),
    "resnet50/tensorflow": XLA,
    "bert-base/tensorflow": XLA,
    "ncf/tensorflow": (*XLA, "launch.instances=2", "workload.batch=2048"),
    "lstm-tagger/tensorflow": XLA,
}


def explained(pair: str, folder: Path, budget: str) -> Why:
    """Return what is stored of a pair; measure it first if there is nothing."""
    path = folder / f"{pair.replace('/', '-')}.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Why)
    model, _, framework = pair.partition("/")
    found = tuner.explain(model=model, framework=framework, fix=PAIRS[pair], budget=budget)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2))
    return found


def row(pair: str, found: Why) -> str:
    """Write a line of the table."""
    accounted = "no difference" if found.accounted is None else f"{100 * found.accounted:.0f} %"
    reason = next(iter(findings(found)), "none")
    settings = " ".join(f"{knob}={value}" for knob, value in found.configuration.items())
    ratio = found.default_s / found.tuned_s
    return f"| {pair} | {settings} | {found.n_rounds} | {ratio:.2f}x | {accounted} | {reason} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("pairs", nargs="*", default=list(PAIRS), metavar="PAIR")
    parser.add_argument("--budget", default="10m")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    print("| model | settings | rounds | speedup | accounted for | first reason |")
    print("|---|---|---|---|---|---|")
    for pair in given.pairs:
        try:
            print(row(pair, explained(pair, given.folder, given.budget)), flush=True)
        except TuneError as error:
            print(f"| {pair} | {' '.join(PAIRS[pair])} | {error} | | | |", flush=True)


if __name__ == "__main__":
    main()
