"""Every knob that this tool can apply and read back, as data.

A search space gives a knob its values and says where it is live; here stands what does not depend
on the host. Any other environment variable may be searched too, as `env.NAME`: nothing can be read
back of it, so it stays `environment_only`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable

import msgspec

from tuner.frameworks import FRAMEWORKS
from tuner.space.knob import Knob
from tuner.space.knobs_of import allocators, launch, onednn, openmp


def _of_frameworks() -> Iterable[Knob]:
    """Yield what one framework alone has, declared in the module that its entry names."""
    for name, entry in FRAMEWORKS.items():
        for knob in importlib.import_module(entry.knobs).KNOBS:
            yield msgspec.structs.replace(knob, frameworks=(name,))


KNOBS: dict[str, Knob] = {
    knob.id: knob
    for knob in (
        *launch.KNOBS,
        *allocators.KNOBS,
        *openmp.KNOBS,
        *onednn.KNOBS,
        *_of_frameworks(),
    )
}
"""By id, in the order in which spaces list them."""
