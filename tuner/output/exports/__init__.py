"""A recommendation in the words of what it is deployed with: one file per target.

Each target is a function of a recommendation, the program's command line and the name of the
recommendation's file, and returns the whole text of a file. What a target cannot express, or needs,
stands in it as a comment.
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
"""Targets whose file is run."""
