"""The environment that a study was begun in, as a baseline of its own.

Every measured process starts without it (host/environment.py), or it would tune the default too.
Whoever deploys with it needs to know what that costs or gains.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

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

AS_RUN = "as_you_run_it"
_SOURCE = "the environment that this study was begun in"
_NUMBER = re.compile(r"0|[1-9]\d{0,8}")
LEFT_OUT = "left out, for "
"""How the reasons begin for which a variable is not measured, whatever its effect may be."""
NO_FILE = "there is no file that can be read"
NO_NUMBER = " is no number of threads or the like"


class _Translated:
    """What an environment comes to in settings, and what of it is not among them."""

    def __init__(self) -> None:
        self.settings: dict[str, Value] = {}
        self.dead: list[str] = []
        """What has no effect here, each with the reason."""
        self.left_out: list[str] = []
        """What may have an effect and is not measured, each with the reason."""
        self.substituted: list[str] = []
        self.impossible = ""


def as_run(
    environment: Mapping[str, str],
    host: Host,
    workload: Workload,
    space: Space,
    earlier: Sequence[Baseline],
) -> Baseline | None:
    """Resolve the tuning variables that a study was begun in; None where none was set.

    environment: as host/secrets.py states it. earlier: the other baselines; it may be the same as
    one of them.
    """
    if not environment:
        return None
    found = _translated(environment, host, workload, space)
    settings = space.unaliased(found.settings)
    impossible = found.impossible or _no_number(settings, space)
    for knob in list(settings):
        if fault := fault_of_value(knob, settings[knob]):
            found.left_out.append(f"{knob}={settings.pop(knob)}: {LEFT_OUT}{fault}")
    if not settings and found.left_out:
        impossible = impossible or found.left_out[0]
    if impossible:
        return unusable(AS_RUN, _SOURCE, impossible)
    free = [knob for knob in settings if knob.startswith("env.")]
    baseline = resolve_one(AS_RUN, _SOURCE, settings, host, workload, space, earlier, free=free)
    if not baseline.is_applicable:
        return baseline
    return msgspec.structs.replace(
        baseline,
        dead_settings=(*found.left_out, *found.dead, *baseline.dead_settings),
        substituted=(*found.substituted, *baseline.substituted),
    )


def _translated(
    environment: Mapping[str, str], host: Host, workload: Workload, space: Space
) -> _Translated:
    found = _Translated()
    for name, value in environment.items():
        knob = f"env.{name}"
        if value == KEPT_BACK:
            found.left_out.append(f"{knob}: {LEFT_OUT}its value is not written down")
        elif not value:
            found.dead.append(f"{knob}=: it is empty")
        elif name == PRELOAD:
            _translate_preload(value, host, found)
        elif not is_known(knob):
            found.left_out.append(f"{knob}={value}: {LEFT_OUT}no shell can set such a name")
        elif knob not in KNOBS and (meant := slip_of(knob, KNOBS)):
            found.left_out.append(f"{knob}={value}: {LEFT_OUT}it seems a slip of {meant}")
        elif why := _without_effect(name, workload):
            found.dead.append(f"{knob}={value}: {why}")
        else:
            found.settings[knob] = int(value) if _NUMBER.fullmatch(value) else value
    for knob in [k for k in found.settings if k.startswith("env.KMP_") and k not in space.by_id]:
        if not _reads_kmp(found.settings, space):
            why = "only libiomp5 and libomp read KMP_*, and neither is preloaded"
            found.dead.append(f"{knob}={found.settings.pop(knob)}: {why}")
    return found


def _without_effect(name: str, workload: Workload) -> str:
    if name.startswith("OPENBLAS_") and workload.card.form not in OF_PROGRAMS:
        return "numpy's own threads serve no framework"
    return without_effect(name, workload.framework, workload.device)


def _reads_kmp(settings: Mapping[str, Value], space: Space) -> bool:
    knob = space.by_id.get(OPENMP)
    default = knob.default if knob else UNSET
    return settings.get(OPENMP, default) in PRELOADED[OPENMP]


def _translate_preload(value: str, host: Host, found: _Translated) -> None:
    """Translate LDPRELOAD: known allocators and OpenMP runtimes are settings, others none.

    The dynamic linker splits it at colons and spaces, and passes over a file that is not there.
    """
    for path in re.split(r"[:\s]+", value.strip(": ")):
        shown = f"{PRELOAD}={path}"
        name = library_named(path)
        knob = next((k for k, names in PRELOADED.items() if name in names), None)
        if "/" in path and "$" not in path and not os.access(path, os.R_OK):
            found.dead.append(f"{shown}: {NO_FILE}")
        elif name is None or knob is None:
            found.left_out.append(
                f"{shown}: {LEFT_OUT}it is no allocator or OpenMP runtime that is known here"
            )
        elif knob in found.settings:
            found.dead.append(f"{shown}: {found.settings[knob]} is loaded before it")
        elif name not in host.libraries:
            found.impossible = f"{shown}: no {name} is found in the folders of libraries here"
        else:
            found.settings[knob] = name
            here = host.libraries[name]
            if "/" in path and os.path.realpath(path) != os.path.realpath(here):
                found.substituted.append(f"{knob}={name} ({here}) stands in for {path}")


def _no_number(settings: Mapping[str, Value], space: Space) -> str:
    """Return what is no number where the space counts; empty if there is nothing of the kind."""
    for knob, value in settings.items():
        known = _numbers(space.by_id.get(knob))
        is_count = isinstance(value, int) and value > 0
        if known and not is_count and not any(same(value, number) for number in known):
            return f"{knob}={value}{NO_NUMBER}, and cannot be measured"
    return ""


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
    """Say that a study goes on in another environment than it was begun in; empty if it does not.

    The first environment stays the baseline: what was measured of it would be lost otherwise.
    """
    if {k: v for k, v in first.items() if is_tuning_variable(k)} == now:
        return ""
    return (
        f"this study was begun with {shown(first) or 'no tuning variable set'}, and this shell has "
        f"{shown(now) or 'none'}: {AS_RUN} stays what it was begun with; to measure this shell's "
        "environment, name another folder with --out"
    )
