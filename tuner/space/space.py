"""The feasible configurations of a workload on a host, each in one canonical form.

Two configurations with the same effect here are one. A value equal to the one in force anyway is
the default. A knob that another setting makes ineffective does not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tuner.record.configuration import Configuration, Value
from tuner.space.expressions import Expression
from tuner.space.placement import ALONE, PLACING, Placement, Placements
from tuner.space.resolved_knob import ResolvedKnob, same


class Space:
    """The feasible configurations of a workload on this host, each in one canonical form."""

    def __init__(
        self,
        knobs: Iterable[ResolvedKnob],
        facts: Mapping[str, Any],
        unread: Mapping[str, str] | None = None,
        placements: Placements | None = None,
    ) -> None:
        self._placements = placements
        self._facts = {**facts, **self._instance_facts({})}
        self._unread = dict(unread or {})
        self._formulas: dict[str, Expression] = {}
        self._adjacent: dict[Configuration, tuple[Configuration, ...]] = {}
        self._contained: dict[Configuration, bool] = {}
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
        self._positions = {knob.id: i for i, knob in enumerate(self.knobs)}
        self._last_placing = max(
            (self._positions[k] for k in PLACING if k in self.by_id), default=-1
        )
        self._defaults = {knob.id: knob.default for knob in self.knobs}
        self._never_at_default = [
            k for k in self.knobs if not any(same(k.default, choice) for choice in k.choices)
        ]
        self._aliases = [knob for knob in self.knobs if knob.alias_of in self.by_id]

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
        is_literal: a baseline means every value that it writes. Example: a guide that pins the
        program to 4 CPUs and sets 8 threads means 8, although PyTorch's own default would be 4
        there. The search means "left alone" by a default value.
        """
        return self._settle(settings, is_literal=is_literal)[0]

    def ineffective(
        self, settings: Mapping[str, Value], *, is_literal: bool = False
    ) -> list[tuple[str, str]]:
        """Return the settings that have no effect here, each with the reason.

        is_literal: as in `canonical`, which keeps all others.
        """
        return self._settle(settings, is_literal=is_literal)[1]

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

    def _settle(
        self, settings: Mapping[str, Value], *, is_literal: bool = False
    ) -> tuple[Configuration, list[tuple[str, str]]]:
        facts = {**self._facts, **self._defaults}
        settings = self.unaliased(settings)
        kept = {knob: value for knob, value in settings.items() if knob not in self.by_id}
        ineffective: list[tuple[str, str]] = []
        is_placed = False
        # in file order, as a condition asks only knobs above; what is at its default stays there
        for position in sorted(self._positions[k] for k in settings if k in self.by_id):
            knob = self.knobs[position]
            value = settings[knob.id]
            if not is_literal and same(value, knob.default):
                continue
            if position > self._last_placing and not is_placed:
                is_placed, ineffective = True, ineffective + self._settle_placement(kept, facts)
            why_ineffective = self._why_dead(knob, facts) or self._why_not(
                knob, value, facts, is_literal=is_literal
            )
            if why_ineffective:
                if not same(value, knob.default):
                    ineffective.append((knob.id, why_ineffective))
                continue
            facts[knob.id] = value
            if not self._is_in_force(knob, value, facts, is_written=is_literal):
                kept[knob.id] = value
        if not is_placed:
            ineffective += self._settle_placement(kept, facts)
        return Configuration.of(kept), ineffective

    def _why_not(
        self, knob: ResolvedKnob, value: Value, facts: Mapping[str, Any], *, is_literal: bool
    ) -> str:
        """Return why a live knob cannot have this value with these facts; empty if it can."""
        for conditional, when, why in knob.beside:
            if same(value, conditional) and not self._formula(when).holds(facts):
                return why
        if knob.at_most and not is_literal and isinstance(value, int) and value != knob.default:
            most = self._formula(knob.at_most).evaluate(facts)
            if isinstance(most, int | float) and value > most:
                return f"at most {most} beside these settings"
        return ""

    def _is_in_force(
        self, knob: ResolvedKnob, value: Value, facts: Mapping[str, Any], *, is_written: bool
    ) -> bool:
        """Tell whether a value is what holds anyway, so that setting it changes nothing."""
        if knob.follows and facts.get("instance.is_pinned"):
            in_force = self._formula(knob.follows).evaluate(facts)
            return not is_written and (same(value, knob.default) or value == in_force)
        return same(value, knob.default)

    def _formula(self, text: str) -> Expression:
        if text not in self._formulas:
            self._formulas[text] = Expression(text)
        return self._formulas[text]

    def _settle_placement(
        self, kept: dict[str, Value], facts: dict[str, Any]
    ) -> list[tuple[str, str]]:
        """Reduce the placing settings to the fewest with the same effect; return ineffective ones.

        The facts then contain what is left to an instance.
        """
        ineffective: list[tuple[str, str]] = []
        if self._placements is not None and kept.keys() & ALONE.keys():
            ineffective = self._placements.reduce(kept, self._values)
            facts |= {knob: kept.get(knob, ALONE[knob]) for knob in ALONE}
        if kept.keys() & set(PLACING):
            facts |= self._instance_facts(kept)
        return ineffective

    def _instance_facts(self, settings: Mapping[str, Value]) -> dict[str, Any]:
        """Return what formulas may ask about the instances, by its name there."""
        return self._placements.facts(settings) if self._placements is not None else {}

    def _values(self, knob: str) -> tuple[Value, ...]:
        return self.by_id[knob].all_values if knob in self.by_id else ()

    def unaliased(self, settings: Mapping[str, Value]) -> dict[str, Value]:
        """Return the settings with every alias's value under the knob that it overrides."""
        found = {
            knob: self.by_id[knob].spelled(value) if knob in self.by_id else value
            for knob, value in settings.items()
        }
        for knob in self._aliases:
            if self._why_dead(knob, self._facts):
                continue
            value = found.pop(knob.id, knob.default)
            is_won = knob.is_stronger or knob.alias_of not in found
            if is_won and not same(value, knob.default):
                found[knob.alias_of] = value
        return found

    def _why_dead(self, knob: ResolvedKnob, facts: Mapping[str, Any]) -> str:
        """Return why a knob has no effect with these facts; empty if it has."""
        if knob.id in self._unread:
            return self._unread[knob.id]
        condition = self._conditions.get(knob.id)
        if condition is None or condition.holds(facts):
            return ""
        return knob.why or f"needs {knob.when}"

    def assignment(self, configuration: Configuration) -> dict[str, Value]:
        """Return a value for every knob: the configuration's, or the default."""
        set_ = configuration.as_dict()
        return {**self._defaults, **{k: v for k, v in set_.items() if k in self.by_id}}

    def in_force(self, configuration: Configuration) -> dict[str, Value]:
        """Return every knob's value, with what holds by itself where instances are pinned."""
        values = self.assignment(configuration)
        facts = {**self._facts, **values, **self._instance_facts(configuration.as_dict())}
        if facts.get("instance.is_pinned"):
            for knob in self.knobs:
                if knob.follows and configuration.get(knob.id) is None:
                    found = self._formula(knob.follows).evaluate(facts)
                    values[knob.id] = found if not isinstance(found, tuple) else knob.default
        return values

    def placed(self, configuration: Configuration) -> Placement | None:
        """Return the places of a configuration's instances; None if the space has no host."""
        if self._placements is None:
            return None
        return self._placements.of(configuration.as_dict())

    def configurations(self) -> Iterator[Configuration]:
        """Yield every canonical configuration once, lazily."""
        seen: set[Configuration] = set()
        for settings in self._combinations(0, dict(self._facts)):
            configuration = self.canonical(settings)
            if configuration not in seen:
                seen.add(configuration)
                yield configuration

    def _combinations(self, i: int, facts: dict[str, Any]) -> Iterator[dict[str, Value]]:
        """Yield values for the knobs from the i-th on, live ones alone in more than one value."""
        if i == len(self.knobs):
            yield {}
            return
        knob = self.knobs[i]
        is_dead = bool(self._why_dead(knob, facts))
        for value in (knob.default,) if is_dead else knob.choices:
            below = {**facts, knob.id: value}
            if i == self._last_placing:
                placing = {k: below[k] for k in PLACING if k in below}
                below |= self._instance_facts(placing)
            for rest in self._combinations(i + 1, below):
                yield {knob.id: value, **rest}

    def contains(self, configuration: Configuration) -> bool:
        """Tell whether the search may visit the configuration."""
        if configuration not in self._contained:
            self._contained[configuration] = self._is_feasible(configuration)
        return self._contained[configuration]

    def _is_feasible(self, configuration: Configuration) -> bool:
        if any(knob not in self.by_id for knob, _ in configuration.settings):
            return False
        if self.canonical(configuration.as_dict()) != configuration:
            return False
        return self._is_within_choices(configuration)

    def _is_within_choices(self, configuration: Configuration) -> bool:
        """Tell whether every knob has one of its choices, or is ineffective with the others."""
        set_ = configuration.as_dict()
        return all(
            any(same(value, choice) for choice in self.by_id[knob].choices)
            for knob, value in set_.items()
        ) and all(
            knob.id in set_ or self._is_dead(knob, configuration) for knob in self._never_at_default
        )

    def refused(self, configuration: Configuration) -> str:
        """Return the option that rules a configuration out; empty if none does."""
        set_ = configuration.as_dict()
        for knob in self.knobs:
            if knob.option and not self._is_dead(knob, configuration):
                value = set_.get(knob.id, knob.default)
                if not any(same(value, choice) for choice in knob.choices):
                    return knob.option
        return ""

    def _is_dead(self, knob: ResolvedKnob, configuration: Configuration) -> bool:
        """Tell whether a knob has no effect beside the other settings, at its first choice.

        One whose first choice alone is ruled out by them has.
        """
        value, set_ = knob.choices[0], configuration.as_dict()
        if self.canonical({**set_, knob.id: value}) != configuration:
            return False
        if not any(same(value, conditional) for conditional, _, _ in knob.beside):
            return True
        facts = {**self._facts, **self.assignment(configuration), **self._instance_facts(set_)}
        is_live = not self._why_dead(knob, facts)
        return not (is_live and self._why_not(knob, value, facts, is_literal=False))

    def adjacent(self, configuration: Configuration) -> tuple[Configuration, ...]:
        """Return the feasible configurations that differ in one knob, in the order of the knobs.

        Cached, because it is called for the same few configurations.
        """
        if configuration not in self._adjacent:
            self._adjacent[configuration] = self._one_step_from(configuration)
        return self._adjacent[configuration]

    def _one_step_from(self, configuration: Configuration) -> tuple[Configuration, ...]:
        found: dict[Configuration, None] = {}
        fixed = {k.id: k.choices[0] for k in self.knobs if len(k.choices) == 1}
        here = {**self.assignment(configuration), **fixed}
        settings = {k: v for k, v in here.items() if not same(v, self._defaults[k])}
        for knob in self.searched:
            for choice in knob.choices:
                if not same(here[knob.id], choice):
                    other = self.canonical({**settings, knob.id: choice})
                    is_known = other == configuration or other in found
                    if not is_known and self._is_within_choices(other):
                        found[other] = None
        return tuple(found)

    def fixed_by_user(self) -> dict[str, Value]:
        """Return the values of --fix; other knobs may have a single choice as well."""
        fixed = (k for k in self.knobs if k.option.startswith(f"--fix {k.id}="))
        return {k.id: k.choices[0] for k in fixed}
