"""The environment in which a study was begun, as a baseline of its own.

Every measured process starts without it (host/environment.py), because it would tune the default
too. Users who deploy with it need to know its gain or loss.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from tuner.host.environment import is_tuning_variable, without_effect
from tuner.host.identity import Host
from tuner.host.libraries import library_named
from tuner.host.secrets import KEPT_BACK
from tuner.record.configuration import Value
from tuner.record.workload import OF_PROGRAMS, Workload
from tuner.space.baselines import Baseline, resolve_one, unusable
from tuner.space.catalogue import KNOBS, fault_of_value, is_known
from tuner.space.knobs_of.launch import OPENMP, PRELOADED
from tuner.space.launching import PRELOAD
from tuner.space.resolved_knob import UNSET, ResolvedKnob, same
from tuner.space.restrictions import slip_of
from tuner.space.space import Space
from tuner.space.variables import ON_BY_DEFAULT, unread

AS_RUN = "as_you_run_it"
_SOURCE = "the environment that this study was begun in"
NOTHING: Mapping[str, str] = MappingProxyType({})
_NUMBER = re.compile(r"0|[1-9]\d{0,17}")  # amounts of bytes among them


class Cause(enum.StrEnum):
    """Why a variable is not simply a setting."""

    NOT_WRITTEN_DOWN = "not_written_down"
    """Its value may be a secret."""
    EMPTY = "empty"
    BAD_NAME = "bad_name"
    MISSPELT = "misspelt"
    UNREAD = "unread"
    """Nothing reads it any more, or with this value."""
    IRRELEVANT = "irrelevant"
    """Another framework or device reads it, or it says nothing about speed."""
    NUMPY = "numpy"
    """It serves numpy and no framework."""
    NEEDS_OPENMP = "needs_openmp"
    """Only libiomp5 and libomp read it."""
    NO_FILE = "no_file"
    UNKNOWN_LIBRARY = "unknown_library"
    LOADED_BEFORE = "loaded_before"
    """Another library of its kind stands before it."""
    NOT_FOUND = "not_found"
    """No such library is in the folders of libraries."""
    STANDS_IN = "stands_in"
    """The host's own copy of a library is measured."""
    NO_NUMBER = "no_number"
    NOT_ALLOWED = "not_allowed"
    """No library takes the value."""
    NOT_HERE = "not_here"
    """The value requires something that this host does not have."""
    INEFFECTIVE = "ineffective"
    """It has no effect with the other settings, or in this framework."""
    OVERRIDDEN = "overridden"
    """Another name of the same setting wins, with another value."""
    DEFAULT = "default"
    """It is so without being set."""


DEAD = (Cause.EMPTY, Cause.UNREAD, Cause.IRRELEVANT, Cause.NUMPY, Cause.NEEDS_OPENMP, Cause.NO_FILE,
        Cause.LOADED_BEFORE)  # fmt: skip
"""Without effect here; LEFT_OUT: not measured, whatever the effect may be."""
LEFT_OUT = (Cause.NOT_WRITTEN_DOWN, Cause.BAD_NAME, Cause.MISSPELT, Cause.UNKNOWN_LIBRARY,
            Cause.NOT_ALLOWED)  # fmt: skip
IMPOSSIBLE = (Cause.NOT_FOUND, Cause.NO_NUMBER)
_TEXTS = {
    Cause.NOT_WRITTEN_DOWN: "left out, for its value is not written down",
    Cause.EMPTY: "it is empty",
    Cause.BAD_NAME: "left out, for no shell can set such a name",
    Cause.MISSPELT: "left out, for it seems a slip of {detail}",
    Cause.UNREAD: "{detail}",
    Cause.IRRELEVANT: "{detail}",
    Cause.NUMPY: "numpy's own threads serve no framework",
    Cause.NEEDS_OPENMP: "only libiomp5 and libomp read KMP_*, and neither is preloaded",
    Cause.NO_FILE: "there is no file that can be read",
    Cause.UNKNOWN_LIBRARY: "left out, for it is no allocator or OpenMP runtime that is known here",
    Cause.LOADED_BEFORE: "{detail} is loaded before it",
    Cause.NOT_FOUND: "no {detail} is found in the folders of libraries here",
    Cause.NOT_ALLOWED: "left out, for {detail}",
}


class Remark(msgspec.Struct, frozen=True):
    """The finding about a variable."""

    knob: str
    value: Value | None
    """None: it is not written down."""
    cause: Cause
    detail: str = ""

    @property
    def text(self) -> str:
        """The table's reason for a variable."""
        if self.cause is Cause.STANDS_IN:
            return self.detail
        shown = self.knob if self.value is None else f"{self.knob}={self.value}"
        if self.cause is Cause.NO_NUMBER:
            return f"{shown} is no number of threads or the like, and cannot be measured"
        return f"{shown}: {_TEXTS[self.cause].format(detail=self.detail)}"


class Translated(msgspec.Struct):
    """The settings that an environment amounts to, and the variables that are not among them."""

    settings: dict[str, Value] = {}
    """By the names of the environment."""
    remarks: list[Remark] = []

    def remark(self, knob: str, value: Value | None, cause: Cause, detail: str = "") -> None:
        """Say something of a variable."""
        self.remarks.append(Remark(knob, value, cause, detail))

    def texts(self, causes: Collection[Cause]) -> list[str]:
        """Return the findings with one of these causes."""
        return [remark.text for remark in self.remarks if remark.cause in causes]


def as_run(
    environment: Mapping[str, str],
    host: Host,
    workload: Workload,
    space: Space,
    earlier: Sequence[Baseline],
) -> Baseline | None:
    """Resolve the tuning variables with which a study was begun; None if none was set.

    environment: as host/secrets.py states it. earlier: the other baselines; it may be equal to one
    of them.
    """
    if not environment:
        return None
    found = translate(environment, host, workload, space)
    settings = space.unaliased(found.settings)
    judge_values(settings, found, space)
    left_out = found.texts(LEFT_OUT)
    impossible = [*found.texts(IMPOSSIBLE), *(left_out if not settings else [])]
    if impossible:
        return unusable(AS_RUN, _SOURCE, impossible[0])
    free = [knob for knob in settings if knob.startswith("env.")]
    baseline = resolve_one(AS_RUN, _SOURCE, settings, host, workload, space, earlier, free=free)
    if not baseline.is_applicable:
        return baseline
    return msgspec.structs.replace(
        baseline,
        dead_settings=(*left_out, *found.texts(DEAD), *baseline.dead_settings),
        substituted=(*found.texts((Cause.STANDS_IN,)), *baseline.substituted),
    )


def translate(
    environment: Mapping[str, str],
    host: Host,
    workload: Workload,
    space: Space,
    preloaded: Mapping[str, str] = NOTHING,
) -> Translated:
    """Translate tuning variables into settings, each under its own name.

    preloaded: libraries by their knob that are loaded as well.
    """
    found = Translated({knob: name for knob, name in preloaded.items() if knob in space.by_id})
    for name, value in environment.items():
        knob = f"env.{name}"
        if value == KEPT_BACK:
            found.remark(knob, None, Cause.NOT_WRITTEN_DOWN)
        elif not value:
            found.remark(knob, "", Cause.EMPTY)
        elif name == PRELOAD:
            _translate_preload(value, host, found)
        elif not is_known(knob):
            found.remark(knob, value, Cause.BAD_NAME)
        elif knob not in KNOBS and (meant := slip_of(knob, KNOBS)):
            found.remark(knob, value, Cause.MISSPELT, meant)
        elif entry := unread(name, value):
            found.remark(knob, value, Cause.UNREAD, entry.reason)
        elif name.startswith("OPENBLAS_") and workload.card.form not in OF_PROGRAMS:
            found.remark(knob, value, Cause.NUMPY)
        elif why := without_effect(name, workload.framework, workload.device):
            found.remark(knob, value, Cause.IRRELEVANT, why)
        else:
            found.settings[knob] = int(value) if _NUMBER.fullmatch(value) else value
    for knob in [k for k in found.settings if k.startswith("env.KMP_") and k not in space.by_id]:
        if not _reads_kmp(found.settings, space):
            found.remark(knob, found.settings.pop(knob), Cause.NEEDS_OPENMP)
    return found


def judge_values(settings: dict[str, Value], found: Translated, space: Space) -> None:
    """Remark on values that cannot be, and take those out that no library takes.

    settings: under the names of the space.
    """
    for knob, value in settings.items():
        known = _numbers(space.by_id.get(knob))
        is_count = isinstance(value, int) and value > 0
        if known and not is_count and not any(same(value, number) for number in known):
            found.remark(knob, value, Cause.NO_NUMBER)
    faulty = {remark.knob for remark in found.remarks}
    for knob in [knob for knob in settings if knob not in faulty]:
        if fault := fault_of_value(knob, settings[knob]):
            found.remark(knob, settings.pop(knob), Cause.NOT_ALLOWED, fault)


def effects(
    environment: Mapping[str, str],
    host: Host,
    workload: Workload,
    space: Space,
    preloaded: Mapping[str, str] = NOTHING,
) -> list[Remark]:
    """Return the findings about each variable, under the name used in the environment.

    preloaded: further loaded libraries, by their knob.
    """
    found = translate(environment, host, workload, space, preloaded)
    own, settings = found.settings, space.unaliased(found.settings)
    names = _names(own, settings, space)
    for knob, value in own.items():
        resolved = space.by_id.get(knob)
        target = knob if knob in settings or resolved is None else resolved.alias_of
        winner = names.get(target, knob)
        if winner != knob and not same(settings.get(target, value), value):
            found.remark(knob, value, Cause.OVERRIDDEN, winner.removeprefix("env."))
    judged = Translated()
    judge_values(settings, judged, space)
    for knob, value in list(settings.items()):
        resolved = space.by_id.get(knob)
        if resolved is None and not knob.startswith("env."):
            found.remark(PRELOAD, value, Cause.IRRELEVANT, "not read by this framework")
        elif resolved is not None:
            gone = (why for dropped, why in resolved.dropped if dropped == value)
            if why := next(gone, ""):
                judged.remark(knob, settings.pop(knob), Cause.NOT_HERE, why)
            elif knob in ON_BY_DEFAULT and same(value, resolved.default):
                judged.remark(knob, value, Cause.DEFAULT, ON_BY_DEFAULT[knob])
    for knob, why in space.ineffective(settings, is_literal=True):
        judged.remark(knob, settings[knob], Cause.INEFFECTIVE, why)
    renamed = [msgspec.structs.replace(remark, knob=names.get(remark.knob, remark.knob))
               for remark in judged.remarks]  # fmt: skip
    return [each for each in found.remarks if each.cause is not Cause.STANDS_IN] + renamed


def _names(own: Mapping[str, Value], settings: Mapping[str, Value], space: Space) -> dict[str, str]:
    """Return the name by which each setting got its value: PyTorch reads MKL_NUM_THREADS.

    own: settings by their own names. settings: by those of the space.
    """
    names = {knob: knob for knob in own}
    for knob in own:
        resolved = space.by_id.get(knob)
        target = "" if resolved is None or knob in settings else resolved.alias_of
        if target in settings and (target not in own or (resolved and resolved.is_stronger)):
            names[target] = knob
    return names


def _reads_kmp(settings: Mapping[str, Value], space: Space) -> bool:
    knob = space.by_id.get(OPENMP)
    default = knob.default if knob else UNSET
    return settings.get(OPENMP, default) in PRELOADED[OPENMP]


def _translate_preload(value: str, host: Host, found: Translated) -> None:
    """Translate LD_PRELOAD: known allocators and OpenMP runtimes are settings, others none.

    The dynamic linker splits it at colons and spaces, and passes over a file that is not there.
    """
    for path in re.split(r"[:\s]+", value.strip(": ")):
        if not path:
            continue
        name = library_named(path)
        knob = next((k for k, names in PRELOADED.items() if name in names), None)
        if "/" in path and "$" not in path and not os.access(path, os.R_OK):
            found.remark(PRELOAD, path, Cause.NO_FILE)
        elif name is None or knob is None:
            found.remark(PRELOAD, path, Cause.UNKNOWN_LIBRARY)
        elif knob in found.settings:
            found.remark(PRELOAD, path, Cause.LOADED_BEFORE, str(found.settings[knob]))
        elif name not in host.libraries:
            found.remark(PRELOAD, path, Cause.NOT_FOUND, name)
        else:
            found.settings[knob] = name
            here = host.libraries[name]
            if "/" in path and os.path.realpath(path) != os.path.realpath(here):
                detail = f"{knob}={name} ({here}) stands in for {path}"
                found.remark(PRELOAD, path, Cause.STANDS_IN, detail)


def _numbers(knob: ResolvedKnob | None) -> list[Value]:
    """Return the values of a knob that counts something; none of one that does not."""
    if knob is None:
        return []
    known = [v for v in (knob.default, *knob.all_values) if v != UNSET]
    is_count = all(isinstance(v, int) and not isinstance(v, bool) for v in known)
    return known if is_count else []


def shown(environment: Mapping[str, str]) -> str:
    """Write variables on one line."""
    return ", ".join(f"{name}={value}" for name, value in environment.items())


def removal(environment: Mapping[str, str], baseline: Baseline | None) -> str:
    """Say that a study measures without these variables, and what becomes of them instead."""
    text = f"{shown(environment)}: set in this shell, and removed from every measured process"
    if baseline is None:
        return text
    if not baseline.is_applicable:
        return f"{text}; {AS_RUN} is not measured: {baseline.reason}"
    if baseline.same_as == "default":
        return f"{text}; without effect here"
    return f"{text}; measured as the baseline {AS_RUN}"


def named(baselines: Iterable[Baseline]) -> Baseline | None:
    """Return the baseline of the environment; None if there is none."""
    return next((b for b in baselines if b.name == AS_RUN), None)


def change(first: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Say that a study continues in another environment than it was begun in; empty if not.

    The first environment stays the baseline: its measurements would be lost otherwise.
    """
    if {k: v for k, v in first.items() if is_tuning_variable(k)} == now:
        return ""
    return (
        f"this study was begun with {shown(first) or 'no tuning variable set'}, and this shell has "
        f"{shown(now) or 'none'}: {AS_RUN} stays what it was begun with; to measure this shell's "
        "environment, name another folder with --out"
    )
