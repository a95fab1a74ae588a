"""Every knob that this tool can apply and read back, with its general properties.

A search space gives a knob its values and says where it is live. This module holds what does not
depend on the host. Any other environment variable may be searched too, as `env.NAME`. Nothing can
read it back, so that it stays `environment_only`.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Iterable

import msgspec

from tuner.engines import FRAMEWORK
from tuner.frameworks import FRAMEWORKS, OFFERED
from tuner.record.configuration import VARIABLE_NAME, Configuration, Value
from tuner.record.numerics import Level
from tuner.record.winner_class import WinnerClass
from tuner.space.knob import Applies, Knob
from tuner.space.knobs_of import allocators, engines, launch, onednn, openmp
from tuner.space.knobs_of.launch import BATCH


def _of_frameworks() -> Iterable[Knob]:
    """Yield the knobs of one framework, declared in the module that its entry names."""
    for name, entry in FRAMEWORKS.items():
        for knob in importlib.import_module(entry.knobs).KNOBS:
            yield msgspec.structs.replace(knob, frameworks=(name,))


def _of_engines() -> Iterable[Knob]:
    for knob in engines.KNOBS:
        yield msgspec.structs.replace(knob, frameworks=OFFERED)


SIZING = ("env.OMP_NUM_THREADS", "env.MKL_NUM_THREADS", "env.TF_NUM_INTRAOP_THREADS")
"""How many threads a framework has, and so another engine."""


def _in_the_framework(knob: Knob) -> Knob:
    """Return a knob that another engine does not have, but for the number of threads."""
    return knob if knob.id in SIZING else msgspec.structs.replace(knob, engines=(FRAMEWORK,))


KNOBS: dict[str, Knob] = {
    knob.id: knob
    for knob in (
        *launch.KNOBS,
        *(k if not k.frameworks else _in_the_framework(k) for k in allocators.KNOBS),
        *_of_engines(),
        *map(_in_the_framework, (*openmp.KNOBS, *onednn.KNOBS, *_of_frameworks())),
    )
}
"""By id, in the order in which spaces list them."""


def is_known(knob: str) -> bool:
    """Tell whether a knob exists: one of the catalogue, or an environment variable."""
    is_variable = knob.startswith("env.") and VARIABLE_NAME.fullmatch(knob.removeprefix("env."))
    return knob in KNOBS or bool(is_variable)


def describe(knob: str) -> Knob:
    """Return a knob; an environment variable outside the catalogue is a launch knob."""
    return KNOBS.get(knob) or Knob(knob, Applies.LAUNCH, f"environment variable {knob[4:]}")


def fault_of_value(knob: str, value: Value) -> str | None:
    """Return why a value is invalid for a knob on any host, or None if it is valid.

    A variable is judged by its text: 4 and "4" are equal. "unset" in a space leaves a knob alone:
    that is not a value.
    """
    if not str(value).isprintable():  # it goes into shells, units and manifests
        return f"{knob}={value!r} holds control characters; no setting has these"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{knob}={value} is not a finite number"
    domain = KNOBS[knob].domain if knob in KNOBS else None
    if domain is None:
        return None
    is_in = domain.has_written(str(value)) if knob.startswith("env.") else domain.has(value)
    return None if is_in else f"{knob} cannot be {value!r}; allowed are: {domain.in_words()}"


_CLASSES = list(WinnerClass)
_TITLES = {
    WinnerClass.NO_CODE: "no code change",
    WinnerClass.SAME_PRECISION: "same precision",
    WinnerClass.REDUCED_PRECISION: "reduced precision",
}
_PRECISIONS = {
    "mixed_bfloat16": "bf16",
    "high": "tf32",
    "1": "tf32",
    "int8_dynamic": "int8",
    "int8_static": "int8",
}
"""Names of precisions for values that are not the name."""


def level_of(configuration: Configuration) -> Level:
    """Return the level of a configuration: the last of its settings'."""
    return max((describe(knob).level for knob, _ in configuration.settings), default=Level.SAME)


@functools.lru_cache(maxsize=1 << 16)
def narrowest_class(configuration: Configuration) -> WinnerClass:
    """Return the narrowest class that allows the configuration.

    `no_code` allows what is set without changing the program: how it is started, and the batch that
    it is called with. How long requests wait for others is in the program: `same_precision`.
    """
    knobs = [describe(knob) for knob, _ in configuration.settings]
    if level_of(configuration) > Level.SAME:
        return WinnerClass.REDUCED_PRECISION
    if any(knob.needs_code_change for knob in knobs):
        return WinnerClass.SAME_PRECISION
    return WinnerClass.NO_CODE


def class_title(winner_class: WinnerClass, configuration: Configuration | None = None) -> str:
    """Name a winner class for a reader; a reduced one by the precision that is set: bf16."""
    found = {
        _PRECISIONS.get(str(value), str(value)).lower()
        for knob, value in (configuration or Configuration()).settings
        if describe(knob).changes_numerics
    }
    is_named = winner_class is WinnerClass.REDUCED_PRECISION and found
    return " and ".join(sorted(found)) if is_named else _TITLES[winner_class]


def is_applied_inside(knob: str) -> bool:
    """Tell whether `tuner.apply` and `prepare` set a knob: it is a switch of the framework."""
    found = describe(knob)
    return found.needs_code_change and bool(found.frameworks) and not found.by_program


def is_default(configuration: Configuration) -> bool:
    """Tell whether a configuration is the default, at whatever batch."""
    return not configuration.without(BATCH).settings


def measures_itself(configuration: Configuration) -> bool:
    """Tell whether a configuration's compiler chooses by trial runs: it is prepared alone."""
    return any(value and describe(knob).measures_itself for knob, value in configuration.settings)


def compiles(configuration: Configuration) -> bool:
    """Tell whether a configuration has a compiler: a launch of it takes long."""
    return any(value and describe(knob).compiles for knob, value in configuration.settings)


def allowed_in(winner_class: WinnerClass, configuration: Configuration) -> bool:
    """Tell whether a winner class allows a configuration."""
    return _CLASSES.index(narrowest_class(configuration)) <= _CLASSES.index(winner_class)
