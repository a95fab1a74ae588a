"""Settings for one model without a search: from a study of it, or predicted by rules."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from tuner.app.plan import Plan
from tuner.galleries import GUIDELINES
from tuner.guidelines import calibration
from tuner.guidelines.facts import HOST, HOST_FACTS, facts_of, host_in_words
from tuner.guidelines.predict import (
    SURE,
    best_combination,
    known_by_itself,
    known_of,
    may_gain,
    predicted,
    settable,
)
from tuner.host.identity import Host
from tuner.output.guidelines import (
    fact_in_words,
    measured_elsewhere,
    sentence,
    where_it_failed,
)
from tuner.output.values import ratio
from tuner.record.configuration import Configuration
from tuner.record.guidelines import Failure, Found, Guidelines, StudyOf, read_guidelines
from tuner.record.interval import Interval
from tuner.record.outcome import Outcome
from tuner.record.recommendation import Expected
from tuner.record.winner_class import WinnerClass
from tuner.space.baselines import resolve_one
from tuner.space.catalogue import allowed_in, class_title, describe, fault_of_value, is_known
from tuner.space.design import Factors
from tuner.space.knob import Applies
from tuner.study.trial_run import Fault

_NOTHING_GAINS = f"nothing that can be set here gains with a probability of {SURE:.0%}"


class Advised(msgspec.Struct, frozen=True):
    """The recommended settings of a winner class, and their expected gain."""

    verdict: Expected
    configuration: Configuration
    speedup: Interval | None
    rests_on: list[str]
    """In words: rules, or a study."""
    studies: list[str] = []
    """The names of those behind it."""
    beware: list[str] = []
    """Failures of its settings, and settings that are left out because of them, in words."""
    factors: tuple[str, ...] = ()
    """The factors that were combined; empty if it is a study's configuration."""
    held: tuple[int, int] | None = None
    """How many gains such intervals contained in new rounds, and of how many; None if that was not
    measured for similar models, or on a host like this one."""


def guesses(plan: Plan, host: Host) -> list[Configuration]:
    """Return the fastest configurations by the shipped guidelines, one per winner class.

    A study measures these right after the default. Classes in which the default is expected to be
    best are left out, and so are repetitions.
    """
    adviser = Adviser(plan, host, read_guidelines(GUIDELINES))
    best = (adviser.advise(winner_class).configuration for winner_class in WinnerClass)
    here = (plan.space.canonical(each.as_dict()) for each in best if each.settings)
    return list(dict.fromkeys(each for each in here if plan.space.contains(each)))


class Adviser:
    """The guidelines' advice for one model on one host."""

    def __init__(self, plan: Plan, host: Host, guidelines: Guidelines) -> None:
        workload = plan.workload
        self._plan, self._host, self._guidelines = plan, host, guidelines
        self._here = host_in_words(host.identity())
        self._facts = facts_of(workload.card, plan.facts, host.identity())
        self._factors = Factors(plan.profile, host, workload, plan.facts, plan.space)
        self._same = sorted(
            (study for study in guidelines.studies if self._is_same(study)),
            key=lambda study: study.created,
            reverse=True,
        )
        if self._same and "call_s" in self._same[0].facts:  # over many slices, and not three calls
            self._facts["call_s"] = self._same[0].facts["call_s"]
        self._known = known_of(
            guidelines, workload.framework, self._facts, plan.facts.parameters_sha256
        )
        self._failed: list[tuple[str, ...]] = []
        """Factors that failed together in a trial run here."""
        self._faults: dict[Configuration, str] = {}
        """What failed in one, and how."""

    def advise(self, winner_class: WinnerClass) -> Advised:
        """Return a study's winner, else the best by its own effects, else the rules' prediction."""
        return (
            self._looked_up(winner_class)
            or self._by_its_effects(winner_class)
            or self._predicted(winner_class)
        )

    def rule_out(self, advised: Advised, fault: Fault) -> None:
        """Note that advice failed in a trial run: what caused it is not advised again.

        The cause is the settings that did not take effect. If it crashed or answered wrongly, the
        cause is those that change the program, or else all of them together.
        """
        is_of_program = fault.ending.outcome in (Outcome.CRASHED, Outcome.WRONG_OUTPUT)
        entries = [each for each in self._factors.here if each.name in advised.factors]
        blamed = [
            entry
            for entry in entries
            if set(entry.settings) & set(fault.ineffective)
            or (
                is_of_program
                and any(describe(knob).applies is not Applies.LAUNCH for knob in entry.settings)
            )
        ] or entries
        if blamed:
            self._failed.append(tuple(entry.name for entry in blamed))
        knobs = {knob for entry in blamed for knob in entry.settings}
        settings = advised.configuration.settings
        culprits = [f"{k}={v}" for k, v in settings if k in knobs or not blamed]
        self._faults[advised.configuration] = f"{', '.join(culprits)} failed here, {fault}"

    def notes(self) -> list[str]:
        """Return notes for the user."""
        known, here, guidelines = self._known, self._here, self._guidelines
        found = [f"{fault}; it is not advised" for fault in self._faults.values()]
        if unlike := [name for name in known.strange if name not in HOST_FACTS]:
            shown = "; ".join(fact_in_words(name, self._facts[name]) for name in unlike)
            found.append(
                f"unlike all that was measured ({shown}): only settings that help every kind "
                "are set"
            )
        if here not in guidelines.hosts:
            found.append(
                f"measured on {'; '.join(guidelines.hosts)}: what it gains on {here} is not known"
            )
        left_out = self._factors.left_out.items()
        found += [f"{name} cannot be set here: {why}"
                  for name, why in left_out if name in known.rules]  # fmt: skip
        settable_here = {entry.name for entry in self._factors.here}
        for setting in known.distant.keys() & settable_here:
            shown = "; ".join(fact_in_words(n, self._facts[n]) for n in known.distant[setting])
            found.append(f"{setting} is not set: the few models that it was measured in are not of "
                         f"this size ({shown}): tune it")  # fmt: skip
        untold = settable_here - set(settable(known, self._factors.here))
        if cut := sorted(untold & known.rules.keys()):
            found.append(f"{', '.join(cut)}: how the cores are shared out was measured on hosts "
                         "with other numbers of them: tune it")  # fmt: skip
        for there in dict.fromkeys(known.elsewhere.values()):
            names = [n for n, h in known.elsewhere.items() if h == there and n in settable_here]
            if names:
                found.append(f"{', '.join(names)}: measured on {there} alone, so not set on "
                             f"{here}: tune it")  # fmt: skip
        return found

    def _is_of(self, entry: StudyOf | Failure) -> bool:
        """Tell whether it is about this very model, on whatever host."""
        workload = self._plan.workload
        return (entry.model, entry.framework) == (workload.model.label(), workload.framework)

    def _is_same(self, study: StudyOf) -> bool:
        """Tell whether a study was of this very model, at this batch, on such a host."""
        alike = all(study.facts.get(n) == self._facts.get(n) for n in ("batch", "macs_per_call"))
        is_model = study.parameters_sha256 == self._plan.facts.parameters_sha256 and alike
        is_kind = study.family == self._plan.workload.card.family
        return self._is_of(study) and is_model and is_kind and study.host == self._here

    def _looked_up(self, winner_class: WinnerClass) -> Advised | None:
        """Return the winner of the first study that decided; None if none did, or it cannot be set.

        If none decided on this class, the surest winner of a narrower one.
        """
        narrower: list[tuple[float, Advised]] = []
        framework = self._plan.workload.framework
        for study in self._same:
            there = f"the study {study.name} of {study.created[:10]} on {study.host}"
            confirmed = (
                f"{there}, with {framework} {study.versions.get(framework, '')}: confirmed there"
            )
            own = study.winners.get(winner_class)
            if own is not None and own.verdict == "keep_default":
                basis = f"{there}: nothing that was tried is faster"
                return Advised("looked_up", Configuration(), None, [basis], [study.name])
            for name, found in study.winners.items():
                made = self._same_here(found, winner_class) if found.verdict == "faster" else None
                if made is None or found.speedup is None or made in self._faults:
                    continue
                if name == winner_class:
                    return Advised("looked_up", made, found.speedup, [confirmed], [study.name])
                basis = (
                    f"{confirmed} with {class_title(name)}; it decided nothing more with "
                    f"{class_title(winner_class)}"
                )
                less = Advised("looked_up", made, found.speedup, [basis], [study.name])
                narrower.append((found.speedup.low, less))
        own_ones = (s.winners[winner_class] for s in self._same if winner_class in s.winners)
        is_open = all(found.verdict == "ambiguous" for found in own_ones)
        return max(narrower, key=lambda each: each[0])[1] if narrower and is_open else None

    def _same_here(self, found: Found, winner_class: WinnerClass) -> Configuration | None:
        """Return a study's winner on this host; None if it differs here, or there is none."""
        values = found.configuration.items()
        if found.speedup is None or any(not is_known(k) or fault_of_value(k, v) for k, v in values):
            return None
        plan = self._plan
        made = resolve_one(
            "", "", dict(found.configuration), self._host, plan.workload, plan.space, ()
        )
        is_as_there = made.is_applicable and not made.dead_settings and not made.substituted
        return (
            made.configuration
            if is_as_there and allowed_in(winner_class, made.configuration)
            else None
        )

    def _by_its_effects(self, winner_class: WinnerClass) -> Advised | None:
        """Return what the designed part of a study of this model, on such a host, shows to be good.

        Without anything that failed. None if there is no such study, or if nothing of it runs.
        """
        study = next((study for study in self._same if study.effects), None)
        if study is None:
            return None
        freedom = self._guidelines.launch_freedom[study.fingerprint]
        itself = known_by_itself(study, freedom, self._known)
        there = f"the study {study.name} of {study.created[:10]} on {study.host}"
        basis = [f"{there}, by the effects in its designed part:"]
        failed = [*self._failed, *(each for same in self._same for each in same.failed)]
        best = best_combination(self._factors, itself, winner_class, failed)
        if best is None and self._failed:
            return None  # what gained there does not run here
        if best is None:
            basis.append(_NOTHING_GAINS)
            return Advised("looked_up", Configuration(), None, basis, [study.name])
        configuration, prediction = best
        basis += [sentence(rule).partition(" on average")[0] for rule in prediction.rules]
        return Advised("looked_up", configuration, prediction.speedup, basis, [study.name],
                       factors=prediction.factors)  # fmt: skip

    def _predicted(self, winner_class: WinnerClass) -> Advised:
        """Return the combination with the highest expected gain that can be set here."""
        known, guidelines = self._known, self._guidelines
        never_ran = self._never_ran()
        failed = [each for s in guidelines.studies if self._is_of(s) for each in s.failed if each]
        failed += [*([name] for name in never_ran), *map(list, self._failed)]
        best = best_combination(self._factors, known, winner_class, failed)
        if best is None:
            why = "no rule about such a model has families enough behind it"
            if known.elsewhere:
                why = "all that is known of such a model was measured on one other host"
            basis = [_NOTHING_GAINS if known.rules else why]
            is_open = may_gain(self._factors, known, winner_class, failed)
            verdict: Expected = "not_known" if is_open else "predicted"
            return Advised(verdict, Configuration(), None, basis, [], [*never_ran.values()])
        configuration, prediction = best
        basis = [
            sentence(rule) + measured_elsewhere(rule, guidelines, self._here)
            for rule in prediction.rules
        ]
        basis += self._in_itself(prediction.factors)
        beware = [
            f"{each.setting} failed in {where_it_failed(each)}"
            for each in guidelines.failures
            if each.framework == self._factors.framework and each.setting in prediction.factors
        ]
        beware += never_ran.values()
        studies = sorted({name for rule in prediction.rules for name in rule.studies})
        return Advised("predicted", configuration, prediction.speedup, basis, studies, beware,
                       prediction.factors, self._held())  # fmt: skip

    def _held(self) -> tuple[int, int] | None:
        """Return how often such intervals held in rounds on other, similar hosts."""
        known = calibration.shipped()
        is_unlike = any(name != HOST for name in self._known.strange)
        return None if is_unlike else (known.held, known.n_gains)

    def _never_ran(self) -> dict[str, str]:
        """Return the settings with which nothing ran in this very model, on any host; in words."""
        own: defaultdict[str, list[Failure]] = defaultdict(list)
        for each in self._guidelines.failures:
            if self._is_of(each):
                own[each.setting].append(each)
        return {
            name: f"{name} is not set: nothing ran with it in "
            + ", ".join(map(where_it_failed, failures))
            for name, failures in own.items()
            if sum(each.n_failed for each in failures) >= failures[0].n_cells
        }

    def _in_itself(self, factors: tuple[str, ...]) -> list[str]:
        """Return, in words, what factors come to by studies of this very model, at this batch."""
        found = []
        for study in self._guidelines.studies:
            is_own = self._is_of(study) and study.facts.get("batch") == self._facts["batch"]
            if not is_own or not set(factors) <= study.effects.keys():
                continue
            freedom = self._guidelines.launch_freedom[study.fingerprint]
            itself = known_by_itself(study, freedom, self._known)
            together = ratio(predicted(itself.rules, factors).speedup)
            found.append(f"in {study.model} itself, on {study.host}: {together} together")
        return found
