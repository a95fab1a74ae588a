"""What the search answers: a configuration to try, that none is left, what it believes."""

from __future__ import annotations

import msgspec

from tuner.record.configuration import Configuration

UNION = "union"
"""Who proposes what unites the gains of several configurations."""
RANDOM = "random"
"""Who proposes what is drawn without regard to anything that was measured."""


class Proposal(msgspec.Struct, frozen=True):
    """A configuration to try, with the number of the Optuna trial that will be told."""

    number: int
    configuration: Configuration
    source: str
    """Who proposed it."""


class Exhausted(Exception):
    """Nothing new is left in the class that was asked about."""


class Belief(msgspec.Struct, frozen=True):
    """What is believed of a configuration's worth."""

    mean: float
    sd: float
