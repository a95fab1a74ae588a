"""tune-framework export: a recommendation in the format of a deployment target."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tuner.errors import UnknownName, UsageError
from tuner.output.exports import EXECUTABLE, TARGETS
from tuner.record.files import write_whole
from tuner.record.recommendation import Placement, Recommendation
from tuner.space.knobs_of.launch import (
    CORES_PER_INSTANCE,
    CPUS,
    INSTANCES,
    MEMORY_POLICY,
    NUMA_NODE,
    PLACEMENT,
)
from tuner.space.recommended import read_recommended

_PLACING = (INSTANCES, CORES_PER_INSTANCE, PLACEMENT, CPUS, NUMA_NODE, MEMORY_POLICY)


def main(path: Path, target: str, out: Path | None, command: Sequence[str]) -> None:
    """Print the file of a target, or write it."""
    if target not in TARGETS:
        raise UnknownName("target", target, TARGETS, f"there are {', '.join(TARGETS)}")
    recommendation = read_recommended(path)
    _refuse_unplaced(path, recommendation)
    text = TARGETS[target](recommendation, command, _file_of(path))
    if out is None:
        print(text, end="")
    else:
        write_whole(out, text, executable=target in EXECUTABLE)
        source = path / _file_of(path) if path.is_dir() else path
        if target == "python" and out.resolve().parent != source.resolve().parent:
            print(f"{out} reads {source.name}: copy {source} next to it", file=sys.stderr)


def _file_of(path: Path) -> str:
    """Return the name of a recommendation's file; a study's folder stands for its own."""
    return "recommended.toml" if path.is_dir() else path.name


def _refuse_unplaced(path: Path, recommendation: Recommendation) -> None:
    """Reject a file that says how to place the program, but not where that led."""
    placing = [s.knob for s in recommendation.settings if s.knob in _PLACING]
    if placing and recommendation.placements == [Placement()]:
        raise UsageError(
            f"{path} was written by an older version, which did not note where {placing[0]} put "
            "the program; tune again, or start it by tune-framework run"
        )
