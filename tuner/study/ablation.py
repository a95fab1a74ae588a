"""Costly settings, and whether a configuration needs them.

A setting is costly if it raises memory or latency by more than 10 % and by more than a floor
(resource_costs.py). It ships only if launches without it are slower by more than the noise. Two
instances that gain 1 % for three times the memory do not ship. Repeated launches must agree, such
as those of the confirmation's rounds: the search chose the configuration for its first launch,
which was the luckiest of many. If the removal was never measured, the configuration must gain more
than the setting costs, compared with everything measured without the setting. Twice the rate for
1.3 times the memory does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from tuner.measurement.confirmation import ALPHA, ONE_SIDED
from tuner.record.configuration import Configuration
from tuner.record.objective import Cost
from tuner.space.catalogue import allowed_in, describe, is_default, narrowest_class
from tuner.space.knobs_of.launch import BATCH, INSTANCES
from tuner.study.candidates import known_score
from tuner.study.evaluation import Evaluation
from tuner.study.resource_costs import COST_THRESHOLD, Increase, ResourceCost
from tuner.study.rounds import Loss, LossInRounds
from tuner.study.study import Study

_TOLERANCE_LONG = 0.01
"""Loss of score (log) accepted for a shorter configuration, in budgets from 30 minutes on."""
_TOLERANCE_MOST = 0.03
"""The same on noisy hosts: a setting that gains more than this is worth a longer list."""


def _no_rounds(_full: Configuration, _shorter: Configuration) -> None:
    """Return that no rounds tell."""


def tolerance(study: Study) -> float:
    """Return the loss of score (log) that is accepted for removing a setting."""
    if study.is_long:
        return _TOLERANCE_LONG
    return min(_TOLERANCE_MOST, study.evaluation.floor)


def score_loss(evaluation: Evaluation, full: Configuration, shorter: Configuration) -> float | None:
    """Return the score (log) lost without some settings; None if unknown, or if it failed."""
    # the full one's own score is asked for each time: drift is estimated anew after each launch
    score, full_score = evaluation.score(shorter), evaluation.score(full)
    if score is None or full_score is None or evaluation.row(shorter).has_failed:
        return None
    return full_score - score


class CostlySetting(msgspec.Struct, frozen=True):
    """A setting that raises costs of a configuration too much to ship unproven."""

    shorter: Configuration
    """The configuration without it."""
    increases: tuple[Increase, ...]
    """Its costly ones, at least one."""

    @property
    def log_ratio(self) -> float:
        """Logarithm of the largest ratio by which it raises a cost."""
        return max(increase.log_ratio for increase in self.increases)


def costly_settings(study: Study, configuration: Configuration) -> dict[str, CostlySetting]:
    """Return the costly settings, the costliest first.

    Compare the measured costs of both configurations. If the shorter one never ran, estimate the
    setting's cost from all launches. Such estimates cannot separate settings that were always set
    together. Of these a compiler comes first: a launch without it is short, and shows what the
    others cost. The only setting of a configuration is left out: the confirmation compares that
    configuration with the default anyway.
    """
    shorter = {k: c for k, c in study.removals(configuration).items() if not is_default(c)}
    resource_costs = study.evaluation.resource_costs
    if configuration not in resource_costs or not shorter:
        return {}
    estimated: dict[str, dict[Cost, float]] = {}
    if not all(c in resource_costs for c in shorter.values()):
        estimated = _estimated_increases(study, configuration, shorter)
    found = {}
    for knob, less in shorter.items():
        if less in resource_costs:
            increases = _costly_increases(study, resource_costs, configuration, less)
        else:
            increases = study.cost_rule.costly(
                resource_costs[configuration], estimated[knob], is_estimated=True
            )
        if increases:
            found[knob] = CostlySetting(less, tuple(increases))
    in_order = sorted(
        found, key=lambda knob: (found[knob].log_ratio, describe(knob).compiles, knob), reverse=True
    )
    return {knob: found[knob] for knob in in_order}


def _costly_increases(
    study: Study,
    resource_costs: Mapping[Configuration, ResourceCost],
    full: Configuration,
    shorter: Configuration,
) -> list[Increase]:
    """Return the costly increases over a configuration without some settings.

    Latency counts only if more instances share the cores. Otherwise a longer call means a lower
    rate, which the score already shows, or a larger batch: if the batch is open, no client waits
    for a single call.
    """
    increases = resource_costs[full].increases_over(resource_costs[shorter])
    if _instances(full) <= _instances(shorter):
        increases.pop("latency", None)
    return study.cost_rule.costly(resource_costs[full], increases)


def _instances(configuration: Configuration) -> int:
    return int(configuration.get(INSTANCES) or 1)


def _estimated_increases(
    study: Study, full: Configuration, shorter: dict[str, Configuration]
) -> dict[str, dict[Cost, float]]:
    """Estimate by how much (log) each setting raises the costs.

    With more instances a call takes longer by their ratio, less the gain in rate.
    """
    resource_costs, search = study.evaluation.resource_costs, study.search
    memory = {c: cost.memory for c, cost in resource_costs.items() if cost.memory is not None}
    of_memory = search.effects(full, memory) if memory else {}
    gains = search.gains(full)
    found: dict[str, dict[Cost, float]] = {}
    for knob, less in shorter.items():
        more = math.log(_instances(full) / _instances(less))
        of_calls = more - gains.get(knob, 0.0) if more > 0 else 0.0
        found[knob] = {"memory": of_memory.get(knob, 0.0), "latency": of_calls}
    return found


def is_necessary(
    study: Study, full: Configuration, shorter: Configuration, loss: Loss | None = None
) -> bool:
    """Tell whether the launches so far show that a removed setting is needed.

    It is needed in one of three cases: nothing works without it, rounds show it, or it seems needed
    and the full configuration has more than one launch in the search. Rounds that include both
    configurations outweigh the search. One launch is enough for the default at some batch, because
    it was not selected for its score.

    loss: what rounds show to be lost without it; None if they show nothing.
    """
    if _fails_without(study, shorter):
        return True
    if loss is not None:
        # an interval at twice the level has a one-sided bound at that level
        in_rounds = loss.difference.interval(2 * ALPHA).low > math.exp(tolerance(study))
        if in_rounds or loss.is_paired:
            return in_rounds
    is_repeated = study.evaluation.n_launches(full) > 1 or is_default(full)
    return is_repeated and seems_necessary(study, full, shorter)


def may_be_necessary(study: Study, full: Configuration, shorter: Configuration) -> bool:
    """Tell whether enough of the rate is lost for a costly setting to be worth rounds.

    Even if that may be noise. A gain below 10 % is as little as an increase that is not costly.
    """
    return _excess_loss(study, full, shorter) + tolerance(study) > COST_THRESHOLD


def seems_necessary(study: Study, full: Configuration, shorter: Configuration) -> bool:
    """Tell whether a removed setting seems needed, if the full configuration was not just lucky.

    It does if nothing works without it, or if the loss exceeds the tolerance by more than the
    noise. Launches that were stopped after their first slice count too.
    """
    excess = _excess_loss(study, full, shorter)
    return excess >= ONE_SIDED * study.evaluation.noise(shorter, full)


def _excess_loss(study: Study, full: Configuration, shorter: Configuration) -> float:
    """Return by how much (log) the loss without some settings exceeds the tolerance.

    Infinite if nothing works without them; minus infinity if the search has not measured it.
    """
    if _fails_without(study, shorter):
        return math.inf
    full_score, score = study.evaluation.score(full), known_score(study.evaluation, shorter)
    if full_score is None or score is None:
        return -math.inf
    return full_score - score - tolerance(study)


def _fails_without(study: Study, shorter: Configuration) -> bool:
    """Tell whether the configuration without some settings fails or cannot win."""
    evaluation = study.evaluation
    return evaluation.row(shorter).has_failed or bool(evaluation.row(shorter).ship_fault)


def unjustified_costs(
    study: Study, configuration: Configuration, loss_in_rounds: LossInRounds = _no_rounds
) -> dict[str, CostlySetting]:
    """Return the costly settings that nothing shows to be needed.

    A batch is compared in two ways: with the configuration at the reference batch and, if that was
    not measured or has too few launches, by the default at both batches.
    """
    return {
        knob: costly
        for knob, costly in costly_settings(study, configuration).items()
        for shorter in [costly.shorter]
        if not is_necessary(study, configuration, shorter, loss_in_rounds(configuration, shorter))
        if not (is_unmeasured(study, shorter) and _pays(study, configuration, knob, costly))
        if not (
            knob == BATCH
            and (is_unmeasured(study, shorter) or seems_necessary(study, configuration, shorter))
            and is_necessary(study, _default_at(study, configuration), Configuration())
        )
    }


def without_costly(study: Study, configuration: Configuration) -> list[Configuration]:
    """Return the configuration without each of its unproven costly settings.

    As arms of the rounds, these show in pairs whether the setting is needed, and replace the
    configuration if it is not.
    """
    return [costly.shorter for costly in unjustified_costs(study, configuration).values()]


def awaits_rounds(study: Study, configuration: Configuration) -> bool:
    """Tell whether further launches may show that all costly settings are needed.

    Each gains something by what was measured without it, or nothing was measured without it.
    """
    return all(
        is_unmeasured(study, shorter) or may_be_necessary(study, configuration, shorter)
        for shorter in without_costly(study, configuration)
    )


def why_unjustified(
    study: Study, configuration: Configuration, loss_in_rounds: LossInRounds = _no_rounds
) -> str:
    """Say which costly settings nothing shows to be needed, and what to do; empty if none."""
    found = unjustified_costs(study, configuration, loss_in_rounds)
    if not found:
        return ""
    without = [costly.shorter for costly in found.values()]
    is_in_rounds = all(loss_in_rounds(configuration, c) is not None for c in without)
    is_known = not any(
        is_unmeasured(study, c) or seems_necessary(study, configuration, c) for c in without
    )
    they_are = "it is" if len(found) == 1 else "they are"
    raised = [
        f"{knob} raises {' and '.join(increase.in_words() for increase in costly.increases)}"
        for knob, costly in found.items()
    ]
    costs = dict.fromkeys(i.cost for costly in found.values() for i in costly.increases)
    accepts = f"--accept-cost {','.join(costs)} accepts it (a new study)"
    if is_in_rounds:
        why = f"the rounds so far do not prove that {they_are} needed; {accepts}"
    elif is_known:
        why = f"launches without it do not prove that {they_are} needed; {accepts}"
    else:
        why = f"there was no time to prove that {they_are} needed; {accepts}"
        why += ", and --extend has the time"
    return f"{', '.join(raised)}, and {why}"


def _pays(study: Study, configuration: Configuration, knob: str, costly: CostlySetting) -> bool:
    """Tell whether a configuration gains more than a costly setting costs.

    Over the best of its class that was measured without the setting and is less costly: that is
    what would ship in its place. By more than noise.
    """
    evaluation, value = study.evaluation, configuration.get(knob)
    winner_class, score = narrowest_class(configuration), evaluation.score(configuration)
    resource_cost, resource_costs = (
        evaluation.resource_costs.get(configuration),
        evaluation.resource_costs,
    )
    others = {
        c: found
        for c in evaluation.tried()
        if c.get(knob) != value and allowed_in(winner_class, c) and evaluation.may_win(c)
        if resource_cost is not None
        and c in resource_costs
        and max(resource_cost.increases_over(resource_costs[c]).values(), default=0) > 0
        if (found := evaluation.score(c)) is not None
    }
    if score is None or not others:
        return False
    best = max(others, key=others.__getitem__)
    margin = ONE_SIDED * evaluation.noise(best, configuration)
    return score - others[best] > costly.log_ratio + margin


def _default_at(study: Study, configuration: Configuration) -> Configuration:
    """Return the default at the batch of a configuration."""
    batch = int(configuration.get(BATCH) or study.evaluation.reference_batch)
    return study.evaluation.at_batch(Configuration(), batch)


def is_unmeasured(study: Study, configuration: Configuration) -> bool:
    """Tell whether a configuration neither has a score nor is known to fail."""
    is_known = known_score(study.evaluation, configuration) is not None
    return not is_known and not study.evaluation.row(configuration).has_failed
