"""The feasible configurations of a workload on a host, each in one canonical form.

Two configurations that have the same effect here are one: a value equal to what is in force anyway
is the default, and a knob that another setting makes dead does not count.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tuner.record.configuration import Configuration, Value
from tuner.record.journal import WinnerClass
from tuner.space.catalogue import BATCH, CPUS, NUMA_NODE, Knob
from tuner.space.expressions import Expression
from tuner.space.knobs import winner_class

UNSET = "unset"
"""Stands for "left alone" where it is not known what is in force then."""


_FOLLOW_THE_MASK = (
    "env.OMP_NUM_THREADS",
    "env.TF_NUM_INTRAOP_THREADS",
    "env.TF_NUM_INTEROP_THREADS",
)
"""Thread counts whose default is the number of CPUs, or of cores, in the affinity mask."""


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
    alias_of: str = ""
    """The knob of which this is another name."""
    is_stronger: bool = True
    """Whether this name wins where both are set."""
    is_late: bool = False
    """Searched only once the other knobs are exhausted around the best."""
    substitutes: tuple[tuple[Value, Value], ...] = ()
    """Values that do not exist here, each with the one that stands in for it in baselines."""

    @property
    def id(self) -> str:
        """The knob's stable id."""
        return self.knob.id

    def spelled(self, value: Value) -> Value:
        """Return a value as the profile writes it: CLOSE and close are one, true and "true" too."""
        for known in (self.default, *self.all_values):
            if isinstance(known, str) and known.casefold() == str(value).casefold():
                return known
        return value


class Space:
    """The feasible configurations of a workload on this host, each in one canonical form."""

    def __init__(
        self,
        knobs: Iterable[ResolvedKnob],
        facts: Mapping[str, Any],
        unread: Mapping[str, str] | None = None,
    ) -> None:
        self._facts = dict(facts)
        self._unread = dict(unread or {})
        self.knobs: tuple[ResolvedKnob, ...] = ()
        self.by_id: dict[str, ResolvedKnob] = {}
        self._conditions: dict[str, Expression] = {}
        for knob in knobs:
            if knob.when:
                self._conditions[knob.id] = Expression(knob.when)
            kept = knob
            if not self._can_live(knob):
                kept = msgspec.structs.replace(knob, choices=(knob.default,))
            self.knobs += (kept,)
            self.by_id[knob.id] = kept

    def _can_live(self, knob: ResolvedKnob) -> bool:
        """Tell whether any configuration makes the knob live."""
        if knob.id in self._unread:
            return False
        condition = self._conditions.get(knob.id)
        if condition is None:
            return True
        above = [self.by_id[name] for name in sorted(condition.names) if name in self.by_id]
        ids = [other.id for other in above]
        return any(
            condition.holds({**self._facts, **dict(zip(ids, values, strict=True))})
            for values in itertools.product(*(other.choices for other in above))
        )

    @property
    def searched(self) -> tuple[ResolvedKnob, ...]:
        """The knobs that have more than one choice."""
        return tuple(knob for knob in self.knobs if len(knob.choices) > 1)

    def canonical(
        self, settings: Mapping[str, Value], *, is_literal: bool = False
    ) -> Configuration:
        """Return the one configuration with the effect of these settings.

        Settings of knobs that the space does not have are kept: they are the user's business.
        is_literal: what is written is meant, as in baselines: a thread count that equals the
        default is kept where the settings narrow the CPUs, because the default narrows with them.
        The search means "left alone" by a default value.
        """
        kept = self._settle(settings)[0].as_dict()
        if is_literal and (NUMA_NODE in kept or CPUS in kept):
            written = self.unaliased(settings)
            for knob, value in written.items():
                if knob in _FOLLOW_THE_MASK and knob in self.by_id:
                    dead = self._why_dead(self.by_id[knob], {**self._facts, **kept})
                    kept |= {} if dead else {knob: value}
        return Configuration.of(kept)

    def dead(self, settings: Mapping[str, Value]) -> list[tuple[str, str]]:
        """Return the settings that have no effect here, each with the reason."""
        return self._settle(settings)[1]

    def asks_knobs(self, knob: str) -> str:
        """Return a knob's condition if it asks for other knobs of this space; empty if not."""
        condition = self._conditions.get(knob)
        asks = condition is not None and bool(condition.names & self.by_id.keys())
        return self.by_id[knob].when if asks else ""

    def never_live(self, knob: str) -> str:
        """Return why no configuration makes a knob live; empty if one does."""
        resolved = self.by_id[knob]
        if self._can_live(resolved):
            return ""
        return self._unread.get(knob) or resolved.why or f"needs {resolved.when}"

    def _settle(self, settings: Mapping[str, Value]) -> tuple[Configuration, list[tuple[str, str]]]:
        facts = dict(self._facts)
        settings = self.unaliased(settings)
        kept = {knob: value for knob, value in settings.items() if knob not in self.by_id}
        dead = []
        for knob in self.knobs:  # in file order: a condition asks only knobs above
            value = settings.get(knob.id, knob.default)
            why_dead = self._why_dead(knob, facts)
            if why_dead:
                if knob.id in settings and not same(value, knob.default):
                    dead.append((knob.id, why_dead))
                value = knob.default
            facts[knob.id] = value
            if not same(value, knob.default):
                kept[knob.id] = value
        return Configuration.of(kept), dead

    def unaliased(self, settings: Mapping[str, Value]) -> dict[str, Value]:
        """Return the settings with every alias's value under the knob that it overrides."""
        found = {
            knob: self.by_id[knob].spelled(value) if knob in self.by_id else value
            for knob, value in settings.items()
        }
        for knob in self.knobs:
            if knob.alias_of not in self.by_id or self._why_dead(knob, self._facts):
                continue
            value = found.pop(knob.id, knob.default)
            is_won = knob.is_stronger or knob.alias_of not in found
            if is_won and not same(value, knob.default):
                found[knob.alias_of] = value
        return found

    def _why_dead(self, knob: ResolvedKnob, facts: Mapping[str, Any]) -> str:
        """Return why a knob has no effect beside these facts; empty if it has."""
        if knob.id in self._unread:
            return self._unread[knob.id]
        condition = self._conditions.get(knob.id)
        if condition is None or condition.holds(facts):
            return ""
        return knob.why or f"needs {knob.when}"

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
            any(same(set_.get(knob.id, knob.default), choice) for choice in knob.choices)
            or (knob.id not in set_ and self._is_dead(knob, configuration))
            for knob in self.knobs
        )

    def refused(self, configuration: Configuration) -> str:
        """Return the option that rules a configuration out; empty if none does."""
        set_ = configuration.as_dict()
        for knob in self.knobs:
            if knob.asked and not self._is_dead(knob, configuration):
                value = set_.get(knob.id, knob.default)
                if not any(same(value, choice) for choice in knob.choices):
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
                if not same(assignment[knob.id], choice):
                    other = self.canonical({**assignment, knob.id: choice})
                    if other != configuration and other not in found and self.contains(other):
                        found.append(other)
        return found

    def fixed_by_user(self) -> dict[str, Value]:
        """Return what --fix asked for; other knobs may have a single choice as well."""
        return {k.id: k.choices[0] for k in self.knobs if k.asked.startswith("--fix ")}

    def is_late(self, knob: str) -> bool:
        """Tell whether a knob waits until the others are exhausted around the best."""
        return self.by_id[knob].is_late

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


def same(a: Value, b: Value) -> bool:
    """Compare values without taking True for 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)
