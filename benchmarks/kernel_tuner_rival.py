"""Kernel Tuner's strategies on a recorded table: its search space, budget and runner, replayed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from kernel_tuner.interface import Options, strategy_map
from kernel_tuner.runners.runner import Runner
from kernel_tuner.searchspace import Searchspace
from kernel_tuner.util import RuntimeFailedConfig, StopCriterionReached

from tuner.record.configuration import Configuration, Value

if TYPE_CHECKING:
    from benchmarks.rivals import Meter

Tell = Callable[[Configuration, float | None], None]


class _Budget:
    """Their budget, by the meter's clock; over, too, when nothing new is asked for, or is left."""

    def __init__(self, meter: Meter, most_idle: int) -> None:
        self._meter = meter
        self._most_idle = most_idle
        self.n_idle = 0

    def is_done(self) -> bool:
        meter = self._meter
        is_all_seen = len(meter.seen) == len(meter.table.launches)
        return meter.is_over or is_all_seen or self.n_idle > self._most_idle

    def raise_exception_if_done(self) -> None:
        if self.is_done():
            raise StopCriterionReached("the time is up")

    def get_fraction_consumed(self) -> float:
        return self._meter.spent


class _Replay(Runner):
    """Answers with recorded launches; what was launched before, from memory."""

    def __init__(
        self,
        meter: Meter,
        tell: Tell,
        budget: _Budget,
        rows: dict[tuple[Value, ...], Configuration],
        names: list[str],
    ) -> None:
        super().__init__()
        self._meter = meter
        self._tell = tell
        self._budget = budget
        self._rows = rows
        self._names = names

    def get_device_info(self) -> None:
        return None

    def get_environment(self, tuning_options: Any) -> dict[str, Any]:
        return {}

    def run(self, parameter_space: Any, tuning_options: Any) -> list[Any]:
        return [self._one(tuple(element)) for element in parameter_space]

    def _one(self, element: tuple[Value, ...]) -> dict[str, Any] | None:
        row = self._rows[element]
        if row in self._meter.seen:
            self._budget.n_idle += 1
            level = self._meter.seen[row][0]
        elif self._budget.is_done():
            return None
        else:
            self._budget.n_idle = 0
            level = self._meter.launch(row)
            self._tell(row, level)
        found: dict[str, Any] = dict(zip(self._names, element, strict=True))
        if level is None:
            return {**found, "time": RuntimeFailedConfig(), "__error__": RuntimeFailedConfig()}
        return {**found, "time": math.exp(-level)}


def tune(meter: Meter, tell: Tell, strategy: str, seed: int, most_idle: int) -> None:
    """Let a strategy search until the meter's time is over."""
    names = [f"p{k}" for k in range(len(meter.table.knobs))]
    # it sorts configurations: of a setting with numbers and text, all values are text
    kinds: list[Callable[[Value], Value]] = [
        str if any(isinstance(v, str) for v in values) else lambda v: v
        for values in meter.table.choices.values()
    ]
    params = {
        name: list(map(kind, values))
        for name, kind, values in zip(names, kinds, meter.table.choices.values(), strict=True)
    }
    rows = {
        tuple(kind(v) for kind, v in zip(kinds, values, strict=True)): row
        for values, row in meter.table.same_as.items()
    }
    cache = {",".join(map(str, values)): dict(zip(names, values, strict=True)) for values in rows}
    random.seed(seed)
    np.random.seed(seed)
    space = Searchspace(None, None, None, from_cache={"tune_params": params, "cache": cache})
    budget = _Budget(meter, most_idle)
    options = Options(
        strategy_options=Options(),
        objective=["time"],
        objective_higher_is_better=[False],
        tune_params=params,
        budget=budget,
        verbose=False,
    )
    strategy_map[strategy].tune(space, _Replay(meter, tell, budget, rows, names), options)
