"""Named recommendations, resolved on this host and told apart.

A baseline is a formula with its source. Here it may be impossible (a library is missing), the same
as another, or partly dead (settings that this build ignores): each is listed, none is hidden.
"""

from __future__ import annotations

import msgspec

from tuner.host.identity import Host
from tuner.record.configuration import Configuration, Value
from tuner.record.workload import ModelFacts, Workload
from tuner.space.catalogue import BATCH
from tuner.space.expressions import Expression
from tuner.space.profile import BaselineEntry, Profile, literal_or_formula
from tuner.space.resolve import check_made, workload_facts
from tuner.space.space import Space


class Baseline(msgspec.Struct, frozen=True):
    """A recommendation on this host."""

    name: str
    source: str
    configuration: Configuration
    """Canonical, at the reference batch; empty also where it does not apply."""
    is_applicable: bool
    reason: str
    same_as: str | None
    """An earlier baseline, or "default", with the same effect here."""
    dead_settings: tuple[str, ...]
    """Settings in it that have no effect here, with the reason."""
    substituted: tuple[str, ...] = ()
    """Libraries that stand in for the ones it names."""


def resolve_baselines(
    profile: Profile, host: Host, workload: Workload, model: ModelFacts, space: Space
) -> list[Baseline]:
    """Resolve every baseline of the profile for the workload's framework, in file order.

    Raises ExpressionError if a formula asks what is not known, UsageError if it comes to what its
    knob cannot be set to.
    """
    facts = {**host.facts(), **workload_facts(workload, model)}
    found: list[Baseline] = []
    for entry in profile.baseline:
        if workload.framework not in entry.frameworks:
            continue
        if entry.when and not Expression(entry.when).holds(facts):
            found.append(_unusable(entry, entry.why or f"needs {entry.when}"))
            continue
        settings: dict[str, Value] = {}
        for knob, raw in entry.settings.items():
            value = literal_or_formula(raw)
            made = value.evaluate(facts) if isinstance(value, Expression) else value
            settings[knob] = made if not isinstance(made, tuple) else ",".join(map(str, made))
            check_made(f"baseline {entry.name}", knob, str(raw), [settings[knob]])
        settings = space.unaliased(settings)
        substituted = _substitute(settings, space)
        missing = _without_missing_variables(settings, space)
        impossible = _impossible(settings, space)
        if impossible:
            found.append(_unusable(entry, impossible))
            continue
        unknown = [knob for knob in settings if knob not in space.by_id]
        ignored = space.dead(settings, is_literal=True)
        dead = [*missing, *(f"{k}={settings[k]}: {why}" for k, why in ignored)]
        why = "not read by this framework"
        if workload.card.form == "program":
            why = "the program itself must set it"
        dead += [f"{knob}={settings[knob]}: {why}" for knob in unknown]
        live = {knob: value for knob, value in settings.items() if knob not in unknown}
        if live:  # what a user fixed is part of every recommendation that says nothing of it
            live = {**space.fixed_by_user(), **live}
        configuration = space.canonical(live, is_literal=True)
        refused = space.refused(configuration) if configuration != Configuration() else ""
        if refused:
            found.append(_unusable(entry, f"ruled out by {refused}"))
            continue
        found.append(
            Baseline(
                name=entry.name,
                source=entry.source,
                configuration=configuration,
                is_applicable=True,
                reason="",
                same_as=_twin(configuration, found),
                dead_settings=tuple(dead),
                substituted=tuple(substituted),
            )
        )
    return found


def _unusable(entry: BaselineEntry, reason: str) -> Baseline:
    return Baseline(entry.name, entry.source, Configuration(), False, reason, None, ())


def _substitute(settings: dict[str, Value], space: Space) -> list[str]:
    """Put what is here in the place of what is missing; return what was replaced, and why."""
    replaced = []
    for knob, value in list(settings.items()):
        resolved = space.by_id.get(knob)
        for missing, other in resolved.substitutes if resolved else ():
            if missing == value:
                why = dict(resolved.dropped)[missing] if resolved else ""
                settings[knob] = other
                replaced.append(f"{knob}={other} stands in for {missing}: {why}")
    return replaced


def _without_missing_variables(settings: dict[str, Value], space: Space) -> list[str]:
    """Take out variables whose value means nothing here; the rest of a recipe stands without them.

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


def _twin(configuration: Configuration, earlier: list[Baseline]) -> str | None:
    if configuration.without(BATCH) == Configuration():
        return "default"
    for other in earlier:
        if other.is_applicable and other.configuration == configuration:
            return other.name
    return None


def to_measure(baselines: list[Baseline]) -> list[Baseline]:
    """Return the baselines that are applicable and not the same as the default or another."""
    return [b for b in baselines if b.is_applicable and b.same_as is None]
