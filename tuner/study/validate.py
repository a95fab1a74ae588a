"""MLPerf's LoadGen on the rates that are claimed: a second opinion, by somebody else's program."""

from __future__ import annotations

import math

from tuner.measurement.loadgen import MISSING, is_installed
from tuner.record.configuration import Configuration
from tuner.record.events import TimeLeft
from tuner.record.journal import ValidationNoted
from tuner.record.launch import Purpose
from tuner.record.load import Slo
from tuner.record.serving import LoadgenOrder, Validation
from tuner.record.workload import SERVICE
from tuner.study.confirm import make_claims
from tuner.study.study import Study

USUAL_S = 60.0
"""In which LoadGen sends requests to one configuration, where the budget allows."""
_SHARE = 0.1
"""Of the budget that this may take."""
_LEAST_S = 2.0
_ENOUGH = 5
"""Times the requests of which one is expected beyond the quantile: fewer cannot be VALID (at p99,
459 where none of them is late)."""


def validate(study: Study, winners: list[Configuration]) -> None:
    """Ask LoadGen about the lower bounds of the default's and the first winner's rates, once each.

    While time is left. What it could not say, be it that it is not installed, is noted.
    """
    slo = study.ledger.objective.slo
    if slo is None:
        return
    claims = make_claims(study)
    if slo.trace is not None or study.bench.form == SERVICE:
        return  # LoadGen's requests arrive at random, and it knows no HTTP
    if not is_installed():
        study.notes.warn(f"LoadGen was not asked about the rates: {MISSING}")
        return
    known = {note.configuration for note in study.store.all(ValidationNoted)}
    for configuration in dict.fromkeys([claims.default, *winners[:1]]):
        value = claims.value(configuration)
        met, n = claims.n_met(configuration)
        if configuration in known or value is None or met < n:
            continue
        order_s = min(USUAL_S, _SHARE * study.budget.total_s)
        needed_s = study.costs.own_s(configuration) + order_s
        if study.budget.left_s() < needed_s:
            study.notes.leave_undone("to ask LoadGen about the rates")
            return
        study.store.add(
            ValidationNoted(configuration, _ask(study, configuration, value.low, slo, order_s))
        )
        study.listen(TimeLeft(study.budget.left_s()))


def _ask(
    study: Study, configuration: Configuration, rate: float, slo: Slo, seconds: float
) -> Validation:
    duration_s = max(_LEAST_S, min(seconds, 4 * _ENOUGH * slo.least_requests / rate))
    if duration_s * rate < slo.least_requests:
        fault = (
            f"{duration_s:.0f} s hold too few requests at this rate to say anything of {slo.name}"
        )
        return Validation(rate, None, fault)
    launch = study.bench.launcher.start(configuration, Purpose.EXPLAIN)
    batching = launch.record.request.batching
    assert batching is not None
    order = LoadgenOrder(
        rate=rate,
        quantile=slo.quantile,
        seconds=slo.seconds,
        duration_s=duration_s,
        n_requests=max(1, math.floor(duration_s * rate)),
        batching=batching,
        n_shapes=study.bench.n_shapes,
    )
    found = launch.validate(order)
    launch.finish()
    return found
