"""What tuning gains on this machine's card, and what share of the card's own peaks that is.

    python -m benchmarks.gpu FOLDER [--models resnet50 bert-large ...] [--minutes 10]
    python -m benchmarks.gpu FOLDER --table

Each model is tuned by the command that users type; a study that is there already is rendered again,
so that a run that was cut off goes on. Then the table: the default, PyTorch's own guide with and
without what changes numerics, and the winners, with the share of the peaks that the reduced winner
reaches. Peaks are measured first, as every rate on a card depends on its clocks: products of large
matrices in each precision, and a copy within the card's memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tuner.output.values import ratio
from tuner.record.files import read_result
from tuner.record.result import Result, WinnerSection
from tuner.record.winner_class import WinnerClass
from tuner.space.knobs_of.launch import BATCH

MODELS = ("resnet50", "bert-large", "gpt2-decode", "dlrm-rmc2")
PEAKS = "peaks.json"
SIZE = 8192
COPIED_BYTES = 2 << 30
SECONDS = 0.5
GUIDES = ("torch_gpu_guide_same", "torch_gpu_guide_tf32", "torch_gpu_guide")


def seconds_of(torch: Any, call: Callable[[], Any]) -> float:
    """Return the seconds of a call, warm, over half a second of calls."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    began, n = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
        n += 5
    return (time.perf_counter() - began) / n


def measure_peaks() -> dict[str, float]:
    """Return operations per second in each precision, and bytes per second of a copy."""
    import torch

    found = {}
    for name, type_, precision in (
        ("fp32", torch.float32, "highest"),
        ("tf32", torch.float32, "high"),
        ("bf16", torch.bfloat16, "highest"),
        ("fp16", torch.float16, "highest"),
    ):
        torch.set_float32_matmul_precision(precision)
        a = torch.randn(SIZE, SIZE, device="cuda", dtype=type_)
        found[name] = 2 * SIZE**3 / seconds_of(torch, lambda a=a: a @ a)  # type: ignore[misc]
    source = torch.ones(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    found["bytes"] = 2 * COPIED_BYTES / seconds_of(torch, lambda: target.copy_(source))
    return found


def tune(model: str, folder: Path, minutes: float) -> None:
    """Tune a model in a process of its own, as users do."""
    command = ["--model", model, "--hw", "cuda", "--framework", "torch"]
    command += ["--budget", f"{minutes:g}m", "--out", str(folder / model)]
    subprocess.run([sys.executable, "-m", "tuner.cli.main", *command], check=False)


def share(result: Result, winner_class: WinnerClass, peaks: dict[str, float]) -> str:
    """Return what a class's winner reaches of the peaks: of arithmetic, and of the weights' bytes.

    Where none was proved, what the default reaches.
    """
    winner, facts = result.winners[winner_class], result.model_facts
    is_proved = winner.verdict == "faster"
    rate = winner.rate if is_proved else result.default.rate
    if rate is None or facts is None or facts.macs is None:
        return "-"
    batch_of_default = {BATCH: result.default.batch}
    configuration = winner.configuration if is_proved else batch_of_default
    low = {str(configuration.get(knob)) for knob in ("torch.dtype", "torch.autocast")}
    named = next((name for name in ("bf16", "fp16") if name in low), "tf32")
    if named == "tf32" and facts.kind != "cnn":
        high = configuration.get("torch.float32_matmul_precision") == "high"
        named = "tf32" if high else "fp32"
    by_products = rate.point * 2 * facts.macs / peaks[named]
    batch = int(configuration.get(BATCH, result.reference_batch))
    width = 0.5 if configuration.get("torch.dtype") in ("bf16", "fp16") else 1.0
    by_bytes = rate.point / batch * facts.parameter_bytes * width / peaks["bytes"]
    return f"{by_products:.0%} of {named} products, {by_bytes:.0%} of the bandwidth for weights"


def in_words(winner: WinnerSection) -> str:
    """Return a class's verdict as the table has it."""
    verdict = winner.verdict.replace("_", " ").replace("ambiguous", "not decided")
    return f"{ratio(winner.speedup)} {verdict}" if winner.speedup else verdict


def row(result: Result, peaks: dict[str, float]) -> str:
    """Return a model's line of the table."""
    guides = []
    for name in GUIDES:
        section = next((b for b in result.baselines if b.name == name), None)
        if section is None or not section.applicable:
            guides.append("-")
        elif section.speedup is not None:
            guides.append(ratio(section.speedup))
        else:
            seen = section.search_ratio
            guides.append(f"{seen:.2f}x in the search" if seen else section.reason or "-")
    default = result.default
    rate = f"{default.rate.point:,.0f} at {default.batch}" if default.rate else "-"
    winners = [in_words(result.winners[winner_class]) for winner_class in list(WinnerClass)[1:]]
    of_peaks = share(result, WinnerClass.REDUCED_PRECISION, peaks)
    cells = [result.model, rate, *guides, *winners, of_peaks]
    return f"| {' | '.join(cells)} |"


def table(folder: Path) -> str:
    """Return the table of every study below a folder that was finished."""
    peaks = json.loads((folder / PEAKS).read_text())
    told = ", ".join(f"{name} {value / 1e12:.3g} T/s" for name, value in peaks.items())
    heads = ["model", "default, items/s", "guide, same numerics", "with TF32", "with autocast",
             "same precision", "reduced precision",
             "reduced precision, else the default, reaches"]  # fmt: skip
    lines = [f"Peaks: {told}.", "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for path in sorted(folder.glob("*/result.json")):
        lines.append(row(read_result(path), peaks))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is not there yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--table", action="store_true", help="of what is there, nothing measured")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    if not given.table:
        peaks = given.folder / PEAKS
        if not peaks.exists():
            peaks.write_text(json.dumps(measure_peaks(), indent=1))
        for model in given.models:
            tune(model, given.folder, given.minutes)
    print(table(given.folder))


if __name__ == "__main__":
    main()
