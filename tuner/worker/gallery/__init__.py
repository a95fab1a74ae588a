"""The models that can be tuned, from a file that states one to files that frameworks saved.

A model file imports what it states from here:

    from tuner.worker.gallery import Image, Model
"""

from tuner.record.time_to_target import Target
from tuner.worker.gallery.statement import (
    Features,
    Image,
    Input,
    Integers,
    Lookups,
    Mask,
    Model,
    Recorded,
    Tokens,
    Values,
)

__all__ = [
    "Features",
    "Image",
    "Input",
    "Integers",
    "Lookups",
    "Mask",
    "Model",
    "Recorded",
    "Target",
    "Tokens",
    "Values",
]
