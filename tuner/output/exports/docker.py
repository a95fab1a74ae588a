"""`docker`: lines for a Dockerfile, with the docker run that places it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from tuner.engines import EngineEntry
from tuner.output.exports.needs import (
    comments,
    engine_of,
    heading,
    needs_compiler,
    needs_gpu,
    on_the_node,
    placing_command,
    program_changes,
)
from tuner.output.exports.preloads import Library, in_image, libraries
from tuner.record.recommendation import Placement, Recommendation


def render(recommendation: Recommendation, command: Sequence[str], source: str) -> str:
    """Return lines for the end of a Dockerfile: a preload there affects every RUN."""
    r = recommendation
    needed = libraries(r)
    packages = [library.debian for library in needed if library.debian]
    packages += ["g++"] if needs_compiler(r) else []
    lines = comments(
        [*heading(r, source), *program_changes(r, source), *on_the_node(r), *_versions(r)]
    )
    if packages:
        lines += [
            "RUN apt-get update \\",
            f" && apt-get install -y --no-install-recommends {' '.join(packages)} \\",
            " && rm -rf /var/lib/apt/lists/*",
        ]
    for library in needed:
        if library.pypi:
            lines += _from_pypi(library)
    if (engine := engine_of(r)) is not None:
        lines.append(f"RUN pip install {' '.join(_pinned(r, engine))}")
    paths = [library.in_image for library in needed]
    if paths:
        lines += comments(["the loader goes on without what it lacks: better to fail here"])
        lines.append("RUN " + " && ".join(f"test -e {shlex.quote(path)}" for path in paths))
    lines += [f"ENV {name}={shlex.quote(value)}" for name, value in sorted(in_image(r).items())]
    if command:
        lines.append(f"CMD {json.dumps(list(command))}")
    lines += comments(_runs(r))
    return "\n".join(lines) + "\n"


def _pinned(recommendation: Recommendation, engine: EngineEntry) -> list[str]:
    """Return the distributions of an engine, as they were when it was measured."""
    versions = recommendation.versions
    return [f"{d}=={versions[d]}" if d in versions else d for d in engine.distributions]


def _versions(recommendation: Recommendation) -> list[str]:
    name = recommendation.workload.framework
    version = recommendation.versions.get(name)
    return [f"measured with {name} {version}"] if version else []


def _from_pypi(library: Library) -> list[str]:
    path = shlex.quote(library.in_image)
    found = f'"$(find / -xdev -name {shlex.quote(library.name)} | head -n 1)"'
    return [
        f"RUN pip install --no-cache-dir {shlex.quote(library.pypi)} \\",
        f" && {{ test -e {path} || ln -s {found} {path}; }}",
    ]


def _runs(recommendation: Recommendation) -> list[str]:
    """Say how the container is placed."""
    placements = recommendation.placements
    card = "--gpus 1 " if needs_gpu(recommendation) else ""
    placed = [f"{card}{_flags(placement)}".strip() for placement in placements]
    if not any(placed):
        return []
    intro = "run it so"
    if len(placements) > 1:
        intro = f"run {len(placements)} containers, one instance each"
    lines = [f"{intro}:", *(f"  docker run {flags} ..." for flags in placed)]
    if any(p.memory_policy.startswith("interleave") for p in placements):
        lines.append(
            "interleaved memory: numactl in the image, --cap-add SYS_NICE (docker's seccomp "
            "profile refuses set_mempolicy without), and before the program:"
        )
        lines += [f"  {' '.join(placing_command(p))}" for p in placements]
    if len(placements) > 1:
        lines.append("TUNE_FRAMEWORK_RANK and its like are not set there")
    return lines


def _flags(placement: Placement) -> str:
    flags = [f"--cpuset-cpus={placement.cpus}"] if placement.cpus else []
    policy, _, nodes = placement.memory_policy.partition(":")
    if policy == "bind":
        flags.append(f"--cpuset-mems={nodes}")
    if policy == "interleave":
        flags.append("--cap-add SYS_NICE")
    return " ".join(flags)
