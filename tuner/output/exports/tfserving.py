"""`tfserving`: a script that starts TensorFlow Serving."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

from tuner.errors import UsageError
from tuner.output.exports.needs import (
    comments,
    max_wait_ms,
    notes,
    placing_command,
    refuse_command,
    refuse_training,
)
from tuner.output.exports.preloads import exports
from tuner.record.load import served_sizes
from tuner.record.recommendation import Recommendation

_FLAGS = {
    "TF_NUM_INTRAOP_THREADS": "--tensorflow_intra_op_parallelism",
    "TF_NUM_INTEROP_THREADS": "--tensorflow_inter_op_parallelism",
}
"""Settings that the server makes itself, whatever the variables say (main.cc of
tensorflow/serving)."""
_TIMEOUT_US = 1000


def render(recommendation: Recommendation, command: Sequence[str], source: str) -> str:
    """Return the script; its argument is the model's folder.

    Raises UsageError for a model of another framework.
    """
    r = recommendation
    refuse_command("tfserving", command)
    refuse_training("tfserving", r)
    if r.workload.framework != "tensorflow":
        raise UsageError(f"TensorFlow Serving serves TensorFlow models, this is one of "
                         f"{r.workload.framework}; --to torchserve serves PyTorch's")  # fmt: skip
    said = [*notes(r, source), *_limits(r)]
    waited = max_wait_ms(r)
    sizes = served_sizes(r.workload.batch) if waited is not None else ()
    variables = {k: v for k, v in r.environment.items() if k not in _FLAGS}
    apart = msgspec.structs.replace(r, environment=variables)
    flags = [f"{_FLAGS[k]}={v}" for k, v in sorted(r.environment.items()) if k in _FLAGS]
    words = [*placing_command(r.placements[0]), "tensorflow_model_server"]
    lines = [
        "#!/bin/sh",
        "# usage: SCRIPT /path/to/saved/models [FLAG...]",
        *comments(said),
        '[ $# -gt 0 ] || { echo "usage: $0 /path/to/saved/models [FLAG...]" >&2; exit 2; }',
        "base=$1; shift",
        "batching=$(mktemp) || exit 1",
        'cat > "$batching" <<END',
        f"max_batch_size {{ value: {r.workload.batch} }}",
        f"batch_timeout_micros {{ value: {_TIMEOUT_US if waited is None else 1000 * waited} }}",
        *(f"allowed_batch_sizes: {size}" for size in sizes),
        "num_batch_threads { value: 1 }",
        "END",
        *exports(apart, "SCRIPT", first_is_program=False),
        f"exec {' '.join(map(shlex.quote, words))} \\",
        '  --model_base_path="$base" --enable_batching=true \\',
        '  --batching_parameters_file="$batching" \\',
        *(f"  {shlex.quote(flag)} \\" for flag in flags),
        '  "$@"',
    ]
    return "\n".join(lines) + "\n"


def _limits(recommendation: Recommendation) -> list[str]:
    r = recommendation
    lines = ["num_batch_threads: one batch at a time, as it was measured"]
    if max_wait_ms(r) is None:
        lines.insert(
            0,
            f"batch_timeout_micros: {_TIMEOUT_US} was not measured: put what your latency allows",
        )
    if len(r.placements) > 1:
        lines.append(f"{len(r.placements)} instances: start one server each, on ports of its own; "
                     "this script places the first, the others:")  # fmt: skip
        lines += [f"  {' '.join(placing_command(p))}" for p in r.placements[1:]]
    return lines
