"""Named recommendations, resolved on this host and compared with each other.

A baseline is a formula with its source. On this host it may be impossible (a library is missing),
equal to another, or partly ineffective (settings that this build ignores). All are listed, none is
hidden.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tuner.host.identity import Host
from tuner.host.libraries import DEBIAN_PACKAGES
from tuner.record.configuration import Configuration, Value
from tuner.record.numerics import Level
from tuner.record.workload import OF_PROGRAMS, ModelFacts, Workload
from tuner.space.catalogue import describe
from tuner.space.expressions import Expression
from tuner.space.knobs_of.launch import BATCH, PRELOADED
from tuner.space.profile import Profile, literal_or_formula
from tuner.space.resolve import check_made, workload_facts
from tuner.space.space import Space


class Baseline(msgspec.Struct, frozen=True):
    """A recommendation on this host."""

    name: str
    source: str
    configuration: Configuration
    """Canonical, at the reference batch; also empty if it does not apply."""
    is_applicable: bool
    reason: str
    same_as: str | None
    """An earlier baseline, or "default", with the same effect here."""
    dead_settings: tuple[str, ...]
    """Settings in it that have no effect here, with the reason."""
    substituted: tuple[str, ...] = ()
    """Libraries that stand in for the ones it names."""
    missing: tuple[str, ...] = ()
    """Libraries that it names and that are not here, whether or not others stand in for them."""


def resolve_baselines(
    profile: Profile,
    host: Host,
    workload: Workload,
    model: ModelFacts,
    space: Space,
    level: Level = Level.REDUCED,
) -> list[Baseline]:
    """Resolve every baseline of the profile for the workload's framework, in file order.

    level: the last that the study searches. Recommendations of int8 are left out of any other.

    Raises ExpressionError if a formula uses an unknown fact, and UsageError if its result is
    invalid for its knob.
    """
    facts = {**host.facts(), **workload_facts(workload, model)}
    found: list[Baseline] = []
    for entry in profile.baseline:
        if workload.framework not in entry.frameworks or workload.mode not in entry.modes:
            continue
        if max((describe(knob).level for knob in entry.settings), default=0) > max(
            level, Level.REDUCED
        ):
            continue
        if entry.when and not Expression(entry.when).holds(facts):
            why = entry.why or f"needs {entry.when}"
            found.append(unusable(entry.name, entry.source, why))
            continue
        settings = evaluated(f"baseline {entry.name}", entry.settings, facts)
        its_own = [knob for knob in space.unaliased(settings) if knob not in space.by_id]
        if workload.card.form in OF_PROGRAMS and settings and len(its_own) == len(settings):
            why = f"the program itself must set {', '.join(its_own)}"
            found.append(unusable(entry.name, entry.source, why))
            continue
        found.append(resolve_one(entry.name, entry.source, settings, host, workload, space, found))
    return found


def evaluated(
    where: str, settings: Mapping[str, Value], facts: Mapping[str, Any]
) -> dict[str, Value]:
    """Return settings with their formulas resolved; `where` they stand.

    Raises as resolve_baselines does.
    """
    found: dict[str, Value] = {}
    for knob, raw in settings.items():
        value = literal_or_formula(raw)
        made = value.evaluate(facts) if isinstance(value, Expression) else value
        found[knob] = made if not isinstance(made, tuple) else ",".join(map(str, made))
        check_made(where, knob, str(raw), [found[knob]])
    return found


def resolve_one(
    name: str,
    source: str,
    settings: dict[str, Value],
    host: Host,
    workload: Workload,
    space: Space,
    earlier: Sequence[Baseline],
    *,
    free: Collection[str] = (),
    is_literal: bool = True,
) -> Baseline:
    """Resolve one baseline of these settings, and compare it with earlier ones.

    free: variables that are set although the space does not have them. is_literal: as in
    Space.canonical.
    """
    settings = space.unaliased(settings)
    lacking = _missing_libraries(settings, space, host)
    substituted = _substitute(settings, space)
    missing = _without_missing_variables(settings, space)
    impossible = _impossible(settings, space)
    if impossible:
        return unusable(name, source, impossible, lacking)
    unknown = [knob for knob in settings if knob not in space.by_id and knob not in free]
    ignored = space.ineffective({**space.fixed_by_user(), **settings}, is_literal=is_literal)
    ignored = [(knob, why) for knob, why in ignored if knob in settings]
    ineffective = [*missing, *(f"{k}={settings[k]}: {why}" for k, why in ignored)]
    ineffective += [f"{knob}={settings[knob]}: {_why_unknown(knob, workload)}" for knob in unknown]
    live = {knob: value for knob, value in settings.items() if knob not in unknown}
    if live:  # what a user fixed is part of every recommendation that says nothing of it
        live = {**space.fixed_by_user(), **live}
    configuration = space.canonical(live, is_literal=is_literal)
    refused = space.refused(configuration) if configuration != Configuration() else ""
    if refused:
        return unusable(name, source, f"ruled out by {refused}")
    return Baseline(
        name=name,
        source=source,
        configuration=configuration,
        is_applicable=True,
        reason="",
        same_as=_twin(configuration, earlier),
        dead_settings=tuple(ineffective),
        substituted=tuple(substituted),
        missing=lacking,
    )


def _why_unknown(knob: str, workload: Workload) -> str:
    if workload.card.form in OF_PROGRAMS:
        return "the program itself must set it"
    if workload.mode not in describe(knob).modes:
        return f"not a setting of {workload.mode}"
    return "not read by this framework"


def unusable(name: str, source: str, reason: str, missing: tuple[str, ...] = ()) -> Baseline:
    """Return a baseline that does not apply here."""
    return Baseline(name, source, Configuration(), False, reason, None, (), missing=missing)


def _missing_libraries(settings: dict[str, Value], space: Space, host: Host) -> tuple[str, ...]:
    """Return the libraries to preload that a recipe names and this host does not have."""
    return tuple(
        name
        for knob, names in PRELOADED.items()
        for name in names
        if knob in space.by_id and settings.get(knob) == name and name not in host.libraries
    )


def _substitute(settings: dict[str, Value], space: Space) -> list[str]:
    """Replace missing libraries by available ones; return what was replaced, and why."""
    replaced = []
    for knob, value in list(settings.items()):
        resolved = space.by_id.get(knob)
        for missing, other in resolved.substitutes if resolved else ():
            if missing == value:
                why = dict(resolved.dropped)[missing] if resolved else ""
                settings[knob] = other
                replaced.append(f"{knob}={other} stands in for {missing}: {why}")
                break
    return replaced


def _without_missing_variables(settings: dict[str, Value], space: Space) -> list[str]:
    """Remove variables whose value means nothing here; the rest of a recipe stands without them.

    Guides say so themselves ("if bf16 is in /proc/cpuinfo").
    """
    taken = []
    for knob, value in list(settings.items()):
        resolved = space.by_id.get(knob)
        for missing, why in resolved.dropped if resolved else ():
            if knob.startswith("env.") and missing == value:
                taken.append(f"{knob}={settings.pop(knob)}: {why}")
    return taken


def _impossible(settings: dict[str, Value], space: Space) -> str:
    for knob, value in settings.items():
        resolved = space.by_id.get(knob)
        for dropped, why in resolved.dropped if resolved else ():
            if dropped == value:
                return f"{knob}={value}: {why}"
    return ""


def _twin(configuration: Configuration, earlier: Sequence[Baseline]) -> str | None:
    if configuration.without(BATCH) == Configuration():
        return "default"
    for other in earlier:
        if other.is_applicable and other.configuration == configuration:
            return other.name
    return None


def what_apt_adds(listed: Iterable[Baseline], host: Host) -> str:
    """Write on one line which recommended libraries are missing, and how to install them.

    Empty if no Debian package brings any.
    """
    asking: dict[str, list[str]] = {}
    for baseline in listed:
        for library in baseline.missing:
            asking.setdefault(library, []).append(baseline.name)
    packages = {library: _debian_package(library, host) for library in asking}
    libraries = [
        f"{library} ({names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''})"
        for library, names in asking.items()
        if packages[library]
    ]
    if not libraries:
        return ""
    line = (
        f"not installed, but named by recommendations: {', '.join(libraries)}; these are measured "
        "with another library in its place, or not at all. One line adds what they name: "
        f"sudo apt-get install {' '.join(sorted({*filter(None, packages.values())}))}"
    )
    return "; ".join([line, *host.unusable.values()])


def _debian_package(library: str, host: Host) -> str:
    """Return the package of a library, or of its substitute; empty if there is none."""
    if library == "libiomp5" and "libomp" not in host.libraries:
        return DEBIAN_PACKAGES["libomp"]
    return DEBIAN_PACKAGES.get(library, "")


def to_measure(baselines: list[Baseline]) -> list[Baseline]:
    """Return the baselines that are applicable and not the same as the default or another."""
    return [b for b in baselines if b.is_applicable and b.same_as is None]
