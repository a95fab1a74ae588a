"""MLPerf's LoadGen on the rates that are claimed: a second opinion, by somebody else's program."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.launchers.loadgen import MISSING, is_installed
from tuner.launchers.protocol import Launch
from tuner.record.configuration import Configuration
from tuner.record.events import TimeLeft
from tuner.record.journal import ValidationNoted
from tuner.record.launch import Purpose
from tuner.record.load import Slo
from tuner.record.serving import LoadgenOrder, Validation
from tuner.record.store import Store
from tuner.study.confirm import make_claims
from tuner.study.phase_costs import PhaseCosts, has_loadgen_to_ask
from tuner.study.study import Study

_MOST_AT_A_RATE = 3
"""Runs, where what was too slow was disturbed."""
_LOWER, _LOWEST = 0.9, 0.5
"""Of a rate that was too slow, the next; of the first, where there is no sense in going on."""


def validations_of(store: Store, configuration: Configuration) -> list[Validation]:
    """Return what LoadGen said of a configuration, in the order in which it was asked."""
    return [n.validation for n in store.all(ValidationNoted) if n.configuration == configuration]


def validate(study: Study, winners: list[Configuration]) -> None:
    """Ask LoadGen about the lower bounds of the first winner's and the default's rates, once each.

    While time is left. What it could not say, be it that it is not installed, is noted.
    """
    slo = study.ledger.objective.slo
    if slo is None or not has_loadgen_to_ask(study):
        return
    if not is_installed():
        study.notes.warn(f"LoadGen was not asked about the rates: {MISSING}")
        return
    claims = make_claims(study)
    for configuration in dict.fromkeys([*winners[:1], claims.default]):
        value, (met, n) = claims.rounds.value(configuration), claims.rounds.n_met(configuration)
        is_known = bool(validations_of(study.store, configuration))
        if is_known or value is None or met < n:
            continue
        if not _ask(study, configuration, value.low, slo):
            study.notes.leave_undone("to ask LoadGen about the rates")


def validate_further(study: Study, winners: list[Configuration]) -> None:
    """Ask again about what was too slow: about the same rate where it was disturbed, else lower.

    With what all else has left.
    """
    slo = study.ledger.objective.slo
    if slo is None or not is_installed():
        return
    for configuration in dict.fromkeys([*winners[:1], make_claims(study).default]):
        while rate := next_asked(validations_of(study.store, configuration)):
            if not _ask(study, configuration, rate, slo):
                break


def next_asked(told: Sequence[Validation]) -> float | None:
    """Return the rate about which LoadGen is asked again; None where it has said enough."""
    if not told or not told[-1].is_too_slow:
        return None
    last = told[-1]
    n_here = sum(each.rate == last.rate for each in told)
    if last.disturbed and n_here < _MOST_AT_A_RATE:  # as a disturbed trial is made again
        return last.rate
    lower = _LOWER * last.rate
    return lower if lower >= _LOWEST * told[0].rate else None


def _ask(study: Study, configuration: Configuration, rate: float, slo: Slo) -> bool:
    """Ask about a rate, and note what was said; return whether there was time to."""
    costs = PhaseCosts(study)
    if study.budget.left_s() < costs.asking_loadgen_s(configuration, rate):
        return False
    word = _said(study, configuration, rate, slo, costs.loadgen_s(rate))
    study.store.add(ValidationNoted(configuration, word))
    study.listen(TimeLeft(study.budget.left_s()))
    return True


def _said(
    study: Study, configuration: Configuration, rate: float, slo: Slo, duration_s: float
) -> Validation:
    if duration_s * rate < slo.least_requests:
        fault = (
            f"{duration_s:.0f} s hold too few requests at this rate to say anything of {slo.name}"
        )
        return Validation(rate, None, fault)
    launch = study.bench.launcher.start(configuration, Purpose.EXPLAIN)
    found = launch.validate(order_for(launch, slo, rate, duration_s, study.bench.n_shapes))
    launch.finish()
    return found


def order_for(
    launch: Launch, slo: Slo, rate: float, duration_s: float, n_shapes: int
) -> LoadgenOrder:
    """Return what LoadGen sends to a launch of a server, in so many seconds at least."""
    batching = launch.record.request.batching
    assert batching is not None
    return LoadgenOrder(
        rate=rate,
        quantile=slo.quantile,
        seconds=slo.seconds,
        duration_s=duration_s,
        n_requests=max(1, math.floor(duration_s * rate)),
        batching=batching,
        n_shapes=n_shapes,
    )
