"""Earlier studies of other models and hosts: where to look first, until they mislead.

Runtime settings often act alike on many models, and one model's on many hosts, but not always. The
best configurations of earlier studies that exist here are tried early. Their common pattern is a
hint to the surrogate, which weighs it against the data (search/surrogate.py) and drops it if the
two disagree.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from tuner.record.configuration import Configuration
from tuner.record.winner_class import WinnerClass
from tuner.search.surrogate import Score, Surrogate
from tuner.space.catalogue import allowed_in
from tuner.space.knobs_of.launch import BATCH
from tuner.space.space import Space

_LEAST = 5
"""Configurations with a score from which on they tell anything of others."""
_STUDY_SD = 0.05
"""SD (log ratio) by which one configuration's gain differs between models and hosts."""


class Earlier(msgspec.Struct, frozen=True):
    """An earlier study's scores, less that of its default."""

    name: str
    log_ratios: dict[Configuration, float]


class Transfer:
    """What earlier studies have in common, in the terms of a space of another study."""

    def __init__(self, space: Space, studies: Sequence[Earlier] = ()) -> None:
        found: dict[Configuration, list[float]] = {}
        self.studies: list[str] = []
        """Those with configurations that exist here."""
        for study in studies:
            here = _here(space, study.log_ratios)
            if here.keys() - {Configuration()}:
                self.studies.append(study.name)
            for configuration, ratio in here.items():
                found.setdefault(configuration, []).append(ratio)
        self._means = {c: statistics.fmean(ratios) for c, ratios in found.items()}
        self.n_configurations = len(self._means)
        self._surrogate: Surrogate | None = None
        self._known: dict[Configuration, float] = {}
        if len(self._means) >= _LEAST:
            self._surrogate = Surrogate(space)
            self._surrogate.fit(
                {c: Score(m, _STUDY_SD / len(found[c]) ** 0.5) for c, m in self._means.items()}
            )

    @property
    def tells_anything(self) -> bool:
        """Whether there is a hint for every configuration."""
        return self._surrogate is not None

    def hints(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """Return the log ratio to the default that earlier studies let expect of each."""
        assert self._surrogate is not None
        new = [c for c in dict.fromkeys(configurations) if c not in self._known]
        for c, belief in zip(new, self._surrogate.beliefs(new), strict=True):
            self._known[c] = belief.mean
        return np.array([self._known[c] for c in configurations])

    def guesses(
        self,
        classes: Sequence[WinnerClass],
        is_tried: Callable[[Configuration], bool] = lambda _: False,
    ) -> Iterator[tuple[WinnerClass, Configuration]]:
        """Yield the best untried configuration of earlier studies, one per class.

        The next best are similar. The surrogate decides whether they are worth a launch: it gets
        them as hints once the first has a result.
        """
        order = sorted(self._means, key=self._means.__getitem__, reverse=True)
        better = [c for c in order if self._means[c] > 0 and c.settings]
        chosen: set[Configuration] = set()
        for winner_class in classes:
            fitting = (c for c in better if allowed_in(winner_class, c) and c not in chosen)
            found = next((c for c in fitting if not is_tried(c)), None)
            if found is not None:
                chosen.add(found)
                yield winner_class, found


def _here(space: Space, log_ratios: Mapping[Configuration, float]) -> dict[Configuration, float]:
    """Return the best ratio, at whatever batch, of each configuration that exists in a space.

    With other settings than it had, a configuration is another one: nothing is left out of it but
    the batch, which is another model's.
    """
    found: dict[Configuration, float] = {}
    fixed = space.fixed_by_user()
    for configuration, ratio in log_ratios.items():
        settings = configuration.without(BATCH).as_dict()
        if any(
            settings.get(knob, space.by_id[knob].default) != value
            for knob, value in fixed.items()
            if knob != BATCH
        ):
            continue
        mine = space.canonical({**settings, **fixed})
        if space.contains(mine):
            found[mine] = max(ratio, found.get(mine, ratio))
    return found
