"""What the search returns: a proposal, that none is left, and its estimates."""

from __future__ import annotations

import msgspec

from tuner.record.configuration import Configuration

UNION = "union"
"""Who proposes what unites the gains of several configurations."""
RANDOM = "random"
"""The source of proposals that are drawn without regard to any measurement."""


class Proposal(msgspec.Struct, frozen=True):
    """A configuration to try, with the number of its Optuna trial."""

    number: int
    configuration: Configuration
    source: str
    """Who proposed it."""


class Exhausted(Exception):
    """Nothing new is left in the class."""


class Belief(msgspec.Struct, frozen=True):
    """The surrogate's estimate of a configuration's score."""

    mean: float
    sd: float
