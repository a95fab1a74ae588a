"""A profile resolved on a host for a workload: which knobs are live, with which values.

Two configurations that have the same effect here are one: a value equal to what is in force anyway
is the default, and a knob that another setting makes dead does not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tuner.errors import ExpressionError, UsageError
from tuner.host.identity import Host
from tuner.record.configuration import Configuration, Value
from tuner.record.journal import WinnerClass
from tuner.record.workload import Workload
from tuner.space.expressions import Expression
from tuner.space.knobs import BATCH, Knob, describe, winner_class
from tuner.space.profile import KnobEntry, Profile, ValueEntry, literal_or_formula
from tuner.space.restrictions import Restrictions

UNSET = "unset"
"""Stands for "left alone" where it is not known what is in force then."""


class ResolvedKnob(msgspec.Struct, frozen=True):
    """A knob with what it may be here."""

    knob: Knob
    default: Value
    """What is in force when nothing is set; UNSET where that cannot be known."""
    choices: tuple[Value, ...]
    """Everything that may be searched; the default first unless a value is fixed."""
    all_values: tuple[Value, ...]
    """Every value that the profile knows here, searched or not."""
    dropped: tuple[tuple[Value, str], ...]
    """Values that do not exist here, each with the reason."""
    when: str
    why: str
    asked: str = ""
    """The option that narrowed the knob, as typed; empty if none did."""

    @property
    def id(self) -> str:
        """The knob's stable id."""
        return self.knob.id


class Space:
    """The feasible configurations of a workload on this host, each in one canonical form."""

    def __init__(self, knobs: Iterable[ResolvedKnob], facts: Mapping[str, Any]) -> None:
        self.knobs = tuple(knobs)
        self.by_id = {knob.id: knob for knob in self.knobs}
        self._facts = dict(facts)
        self._conditions = {k.id: Expression(k.when) for k in self.knobs if k.when}

    @property
    def searched(self) -> tuple[ResolvedKnob, ...]:
        """The knobs that have more than one choice."""
        return tuple(knob for knob in self.knobs if len(knob.choices) > 1)

    def canonical(self, settings: Mapping[str, Value]) -> Configuration:
        """Return the one configuration with the effect of these settings.

        Settings of knobs that the space does not have are kept: they are the user's business.
        """
        return self._settle(settings)[0]

    def dead(self, settings: Mapping[str, Value]) -> list[tuple[str, str]]:
        """Return the settings that have no effect here, each with the reason."""
        return self._settle(settings)[1]

    def _settle(self, settings: Mapping[str, Value]) -> tuple[Configuration, list[tuple[str, str]]]:
        facts = dict(self._facts)
        kept = {knob: value for knob, value in settings.items() if knob not in self.by_id}
        dead = []
        for knob in self.knobs:  # in file order: a condition asks only knobs above
            value = settings.get(knob.id, knob.default)
            condition = self._conditions.get(knob.id)
            if condition is not None and not condition.holds(facts):
                if knob.id in settings and not _same(value, knob.default):
                    dead.append((knob.id, knob.why or f"needs {knob.when}"))
                value = knob.default
            facts[knob.id] = value
            if not _same(value, knob.default):
                kept[knob.id] = value
        return Configuration.of(kept), dead

    def assignment(self, configuration: Configuration) -> dict[str, Value]:
        """Return a value for every knob: the configuration's, or the default."""
        set_ = configuration.as_dict()
        return {knob.id: set_.get(knob.id, knob.default) for knob in self.knobs}

    def upper_size(self) -> int:
        """Return the number of combinations before canonicalisation."""
        return math.prod(len(knob.choices) for knob in self.knobs)

    def configurations(self) -> Iterator[Configuration]:
        """Yield every canonical configuration once, lazily."""
        seen: set[Configuration] = set()
        for settings in self._combinations(0, {}):
            configuration = self.canonical(settings)
            if configuration not in seen:
                seen.add(configuration)
                yield configuration

    def _combinations(self, i: int, chosen: dict[str, Value]) -> Iterator[dict[str, Value]]:
        if i == len(self.knobs):
            yield chosen
            return
        knob = self.knobs[i]
        for value in knob.choices:
            yield from self._combinations(i + 1, {**chosen, knob.id: value})

    def contains(self, configuration: Configuration) -> bool:
        """Tell whether the search may visit the configuration."""
        set_ = configuration.as_dict()
        if any(knob not in self.by_id for knob in set_):
            return False
        if self.canonical(set_) != configuration:
            return False
        return all(
            any(_same(set_.get(knob.id, knob.default), choice) for choice in knob.choices)
            or (knob.id not in set_ and self._is_dead(knob, configuration))
            for knob in self.knobs
        )

    def refused(self, configuration: Configuration) -> str:
        """Return the option that rules a configuration out; empty if none does."""
        set_ = configuration.as_dict()
        for knob in self.knobs:
            if knob.asked and not self._is_dead(knob, configuration):
                value = set_.get(knob.id, knob.default)
                if not any(_same(value, choice) for choice in knob.choices):
                    return knob.asked
        return ""

    def _is_dead(self, knob: ResolvedKnob, configuration: Configuration) -> bool:
        probe = {**configuration.as_dict(), knob.id: knob.choices[0]}
        return self.canonical(probe) == configuration

    def neighbours(self, configuration: Configuration) -> list[Configuration]:
        """Return the feasible configurations that differ in one knob, in the order of the knobs."""
        found = []
        fixed = {knob.id: knob.choices[0] for knob in self.knobs if len(knob.choices) == 1}
        assignment = {**self.assignment(configuration), **fixed}
        for knob in self.searched:
            for choice in knob.choices:
                if not _same(assignment[knob.id], choice):
                    other = self.canonical({**assignment, knob.id: choice})
                    if other != configuration and other not in found and self.contains(other):
                        found.append(other)
        return found

    def choices_within(self, klass: WinnerClass) -> dict[str, tuple[Value, ...]]:
        """Return the choices of the searched knobs that a winner class allows."""
        return {
            knob.id: knob.choices if knob.id == BATCH or _allows(klass, knob) else (knob.default,)
            for knob in self.searched
        }

    def describe(self) -> list[dict[str, Any]]:
        """Return the space as plain data: what identity and listings are made of."""
        return [
            {
                "knob": knob.id,
                "applies": str(knob.knob.applies),
                "default": knob.default,
                "choices": list(knob.choices),
                "when": knob.when,
            }
            for knob in self.knobs
        ]


def _allows(klass: WinnerClass, knob: ResolvedKnob) -> bool:
    order = list(WinnerClass)
    narrowest = winner_class(Configuration(((knob.id, True),)))
    return order.index(narrowest) <= order.index(klass)


def _same(a: Value, b: Value) -> bool:
    """Compare values without taking True for 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def workload_facts(workload: Workload) -> dict[str, Any]:
    """Return what formulas may ask about the workload, by its name there."""
    return {
        "workload.framework": workload.framework,
        "workload.scenario": workload.scenario,
        "workload.kind": workload.card.kind,
        "workload.reference_batch": workload.card.reference_batch,
        "workload.batches": workload.card.batches,
    }


def knob_ids(profile: Profile, frameworks: Iterable[str]) -> list[str]:
    """Return the knobs that a profile has for any of the frameworks."""
    wanted = set(frameworks)
    return [
        *(
            entry.id
            for entry in profile.knob
            if wanted & set(entry.frameworks or wanted)
            and wanted & set(describe(entry.id).frameworks or wanted)
        ),
        BATCH,
    ]


def resolve_space(
    profile: Profile,
    host: Host,
    workload: Workload,
    effective_defaults: Mapping[str, Value],
    restrictions: Restrictions,
) -> Space:
    """Resolve a profile into the space of a workload on a host.

    effective_defaults: per knob, what is in force when nothing is set, as read back in a process.
    Restrictions of knobs that are another framework's are passed over (restrictions.check_known
    refuses those that are nobody's). Raises UsageError or ExpressionError for what cannot be
    resolved.
    """
    facts = {**host.facts(), **workload_facts(workload)}
    present = knob_ids(profile, [workload.framework])
    entries = [entry for entry in profile.knob if entry.id in present]
    batches: list[str | int | float | bool | ValueEntry] = list(workload.card.batches)
    entries.append(KnobEntry(id=BATCH, values=batches))
    defaults = {**effective_defaults, BATCH: workload.card.reference_batch}
    knobs: list[ResolvedKnob] = []
    for entry in entries:
        # conditions over knobs are kept for later; those over the host alone are settled now
        knobs.append(_resolve_knob(entry, facts, defaults.get(entry.id, UNSET), restrictions))
    space = Space(knobs, facts)
    _check_fixed(space, restrictions)
    return space


def _resolve_knob(
    entry: KnobEntry, facts: Mapping[str, Any], default: Value, restrictions: Restrictions
) -> ResolvedKnob:
    values: list[Value] = []
    dropped: list[tuple[Value, str]] = []
    for raw in entry.values:
        if isinstance(raw, ValueEntry):
            if Expression(raw.when).holds(facts):
                values.append(raw.value)
            else:
                dropped.append((raw.value, raw.why))
            continue
        made = literal_or_formula(raw)
        if isinstance(made, Expression):
            result = made.evaluate(facts)
            values.extend(result if isinstance(result, tuple) else (result,))
        else:
            values.append(made)
    known = list(dict.fromkeys(v for v in values if not _same(v, default)))
    knob = describe(entry.id)
    searched: tuple[Value, ...] = (default, *known) if entry.search else (default,)
    asked = ""
    if entry.id in restrictions.values:
        wanted = restrictions.values[entry.id]
        asked = f"--set {entry.id}={','.join(map(str, wanted))}"
        searched = (default, *_asked(knob, wanted, default, known, dropped))
    if knob.changes_numerics and restrictions.numerics == "same":
        asked, searched = "--numerics same", (default,)
    if entry.id in restrictions.excluded:
        asked, searched = f"--exclude {entry.id}", (default,)
    if entry.id in restrictions.fixed:
        value = restrictions.fixed[entry.id]
        asked = f"--fix {entry.id}={value}"
        searched = (
            (default,) if _same(value, default) else _asked(knob, (value,), default, known, dropped)
        )
    return ResolvedKnob(
        knob=knob,
        default=default,
        choices=searched,
        all_values=(default, *known),
        dropped=tuple(dropped),
        when=entry.when,
        why=entry.why,
        asked=asked,
    )


def _asked(
    knob: Knob,
    asked: tuple[Value, ...],
    default: Value,
    known: list[Value],
    dropped: list[tuple[Value, str]],
) -> tuple[Value, ...]:
    """Return the values a user asked for, without the default; refuse what cannot be."""
    for value in asked:
        for gone, why in dropped:
            if _same(value, gone):
                raise UsageError(f"{knob.id}={value} is not possible here: {why}")
        if not _is_free(knob, value, (default, *known)) and not any(
            _same(value, v) for v in (default, *known)
        ):
            allowed = ", ".join(map(str, (default, *known)))
            raise UsageError(f"{knob.id}={value} is not a value here; allowed are {allowed}")
    return tuple(v for v in dict.fromkeys(asked) if not _same(v, default))


def _is_free(knob: Knob, value: Value, known: tuple[Value, ...]) -> bool:
    """Tell whether a value that the profile does not list may be asked for all the same.

    A variable may be anything, a variable or a batch that counts something a positive number.
    """
    if any(isinstance(v, int) and not isinstance(v, bool) for v in known):
        is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
        return is_count and (knob.id.startswith("env.") or knob.id == BATCH)
    return knob.id.startswith("env.")


def _check_fixed(space: Space, restrictions: Restrictions) -> None:
    fixed = {k: v for k, v in restrictions.fixed.items() if k in space.by_id}
    for knob, why in space.dead(fixed):
        raise UsageError(f"--fix {knob}={restrictions.fixed[knob]} has no effect here: {why}")


def profile_matches(profile: Profile, host: Host) -> bool:
    """Tell whether a profile names this host; one without a condition matches every host.

    Raises ExpressionError if the condition asks what is not known.
    """
    return not profile.matches or Expression(profile.matches).holds(host.facts())


__all__ = [
    "UNSET",
    "ExpressionError",
    "ResolvedKnob",
    "Space",
    "knob_ids",
    "profile_matches",
    "resolve_space",
    "workload_facts",
]
