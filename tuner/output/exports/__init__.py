"""A recommendation in the format of a deployment target: one file per target.

Each target is a function of a recommendation, the program's command line and the name of the
recommendation's file, and returns the text of a file. Comments in it say what the target cannot
express, and what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.output.exports import (
    docker,
    environment,
    kubernetes,
    python,
    shell,
    systemd,
    tfserving,
    torchserve,
)
from tuner.record.recommendation import Recommendation

Export = Callable[[Recommendation, Sequence[str], str], str]

TARGETS: dict[str, Export] = {
    "env": environment.render,
    "shell": shell.render,
    "docker": docker.render,
    "kubernetes": kubernetes.render,
    "systemd": systemd.render,
    "torchserve": torchserve.render,
    "tfserving": tfserving.render,
    "python": python.render,
}
EXECUTABLE = ("shell", "tfserving")
"""Targets whose file is executable."""
