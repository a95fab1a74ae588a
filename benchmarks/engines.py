"""How fast do engines carry out the built-in models, beside the framework's own best settings?

    python -m benchmarks.engines FOLDER [resnet50/torch ...] [--rounds 4] [--arms int8]

For each pair, fresh interleaved rounds of the default, of the framework's own settings that are
usually fastest (frozen and compiled, with another allocator), and of ONNX Runtime and OpenVINO, by
themselves and in as many instances as there are cores; in bf16, where the processor has it, of the
framework and of OpenVINO in instances; in int8, where the processor has VNNI. --arms: the default
and arms with a word in their name. Outputs are compared with the default's. Ratios are to the
default, with their 95 % interval over rounds. What is there in FOLDER is not measured again. Run
nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path

from benchmarks.real_regret import measure_rounds, over
from tuner.errors import TuneError
from tuner.host.identity import Host, probe
from tuner.record.configuration import Configuration, Value

PAIRS = (
    "resnet50/torch",
    "bert-base/torch",
    "ncf/torch",
    "lstm-tagger/torch",
    "resnet50/tensorflow",
    "bert-base/tensorflow",
    "ncf/tensorflow",
    "lstm-tagger/tensorflow",
)
IMAGES = ("resnet50", "mobilenet-v1")
BF16_ISA = {"avx512_bf16", "amx_bf16", "bf16"}
INT8_ISA = {"avx512_vnni", "avx_vnni", "amx_int8", "i8mm"}
Settings = Mapping[str, Value]


def arms_of(pair: str, host: Host, only: str = "") -> dict[str, Configuration]:
    """Return what is compared, by its name in the table. only: the default, and arms so named."""
    model, _, framework = pair.partition("/")
    allocator = {"launch.allocator": "mimalloc"} if "mimalloc" in host.libraries else {}
    last = {"torch.memory_format": "channels_last"} if model in IMAGES else {}
    instances: dict[str, Value] = {}
    if host.usable_cores > 1:
        instances["launch.instances"] = host.usable_cores
    several = {**allocator, **instances}
    own: dict[str, dict[str, Value]] = {
        "torch": {"torch.compile.mode": "freezing", **last},
        "tensorflow": {"tensorflow.frozen": True},
    }
    low: dict[str, dict[str, Value]] = {
        "torch": {"torch.autocast": "bf16"},
        "tensorflow": {"tensorflow.keras_policy": "mixed_bfloat16"},
    }
    arms: dict[str, dict[str, Value]] = {
        "default": {},
        "framework": {**own[framework], **allocator},
        "onnxruntime": {"engine.name": "onnxruntime"},
        "onnxruntime, instances": {"engine.name": "onnxruntime", **several},
        "openvino": {"engine.name": "openvino"},
        "openvino, instances": {"engine.name": "openvino", **instances},
    }
    if BF16_ISA & set(host.processor.isa):
        reduced: dict[str, Value] = {"engine.name": "openvino", "openvino.precision": "bf16"}
        arms["framework, bf16"] = {**own[framework], **low[framework], **allocator}
        arms["openvino, bf16"] = {**reduced, **instances}
    if INT8_ISA & set(host.processor.isa):
        small = "engine.quantization"
        arms["onnxruntime, dynamic int8"] = {"engine.name": "onnxruntime", small: "int8_dynamic"}
        arms["onnxruntime, static int8"] = {"engine.name": "onnxruntime", small: "int8_static"}
        if "openvino" in host.quantizers:
            arms["openvino, int8"] = {"engine.name": "openvino", small: "int8_static"}
    return {
        name: Configuration.of(settings)
        for name, settings in arms.items()
        if name == "default" or only in name
    }


def row(pair: str, folder: Path, n_rounds: int, host: Host, only: str) -> list[str]:
    """Measure a pair; return its line of the table."""
    arms = arms_of(pair, host, only)
    path = folder / f"{pair.replace('/', '-')}.jsonl"
    rounds = measure_rounds(path, pair, list(arms.values()), n_rounds)
    cells = [pair]
    for name, arm in arms.items():
        found = None if name == "default" else over(rounds, arm, Configuration())
        if name == "default":
            rates = [each[arm] for each in rounds if arm in each]
            cells.append(f"{math.exp(sum(rates) / len(rates)):.4g}/s" if rates else "failed")
        elif found is None:
            cells.append("failed")
        else:
            point, low, high = found
            cells.append(f"{point:.2f}x ({low:.2f} - {high:.2f})")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("pairs", nargs="*", default=list(PAIRS), metavar="PAIR")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--arms", default="", metavar="WORD", help="arms with this in their name")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    host = probe()
    heads = ["pair", *arms_of(given.pairs[0], host, given.arms)]
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for pair in given.pairs:
        try:
            cells = row(pair, given.folder, given.rounds, host, given.arms)
        except TuneError as error:
            cells = [pair, str(error)]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
