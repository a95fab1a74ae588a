"""`torchserve`: the model-config.yaml of a model archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from tuner.errors import UsageError
from tuner.output.exports.needs import (
    comments,
    max_wait_ms,
    notes,
    placing_command,
    refuse_command,
    refuse_training,
)
from tuner.output.exports.preloads import in_a_shell
from tuner.record.configuration import Value
from tuner.record.recommendation import Recommendation

_MAX_BATCH_DELAY_MS = 100


def render(recommendation: Recommendation, command: Sequence[str], source: str) -> str:
    """Return the file: workers, batch, and compiling as far as TorchServe supports it.

    Its keys: TorchServe's documentation, "Model config" (minWorkers, maxWorkers, batchSize,
    maxBatchDelay, pt2). Raises UsageError for a model of another framework.
    """
    r = recommendation
    refuse_command("torchserve", command)
    refuse_training("torchserve", r)
    if r.workload.framework != "torch":
        raise UsageError(
            f"TorchServe serves PyTorch models, this is one of {r.workload.framework}; "
            "--to tfserving serves TensorFlow's"
        )
    n, waited = len(r.placements), max_wait_ms(r)
    config: dict[str, Any] = {
        "minWorkers": n,
        "maxWorkers": n,
        "batchSize": r.workload.batch,
        "maxBatchDelay": _MAX_BATCH_DELAY_MS if waited is None else waited,
    }
    config |= _compiled({s.knob: s.value for s in r.settings})
    body: str = yaml.safe_dump(config, sort_keys=False, allow_unicode=False)
    said = [*notes(r, source), *_around(r)]
    return "".join(f"{line}\n" for line in comments(said)) + body


def _compiled(settings: dict[str, Value]) -> dict[str, Any]:
    """Return what its base handler does for torch.compile; freezing and more it cannot."""
    mode = settings.get("torch.compile.mode")
    if mode in (None, "off", "freezing"):
        return {}
    compiled: dict[str, Any] = {"enable": True, "backend": "inductor"}
    if mode != "default":
        compiled["mode"] = mode
    return {"pt2": {"compile": compiled}}


def _around(recommendation: Recommendation) -> list[str]:
    """Say how TorchServe itself is started, which hands all of it to its workers."""
    r = recommendation
    lines = [
        "TorchServe is no longer maintained (https://docs.pytorch.org/serve/)",
    ]
    if max_wait_ms(r) is None:
        lines.append(
            f"maxBatchDelay: {_MAX_BATCH_DELAY_MS} ms was not measured: put what your latency "
            "allows"
        )
    if r.environment:
        lines.append("start torchserve itself with (workers inherit it):")
        lines += [f"  {name}={value}" for name, value in sorted(in_a_shell(r).items())]
    placed = [" ".join(placing_command(p)) for p in r.placements]
    if len(placed) > 1:
        lines.append("workers cannot be placed one by one; measured as:")
        lines += [f"  {each}" for each in placed]
    elif placed[0]:
        lines.append(f"start it by: {placed[0]} torchserve ...")
    return lines
