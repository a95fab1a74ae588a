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
from tuner.study.confirm import make_claims
from tuner.study.phase_costs import PhaseCosts, has_loadgen_to_ask
from tuner.study.study import Study


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
    claims, costs = make_claims(study), PhaseCosts(study)
    known = {note.configuration for note in study.store.all(ValidationNoted)}
    for configuration in dict.fromkeys([*winners[:1], claims.default]):
        value = claims.rounds.value(configuration)
        met, n = claims.rounds.n_met(configuration)
        if configuration in known or value is None or met < n:
            continue
        if study.budget.left_s() < costs.asking_loadgen_s(configuration, value.low):
            study.notes.leave_undone("to ask LoadGen about the rates")
            return
        word = _ask(study, configuration, value.low, slo, costs.loadgen_s(value.low))
        study.store.add(ValidationNoted(configuration, word))
        study.listen(TimeLeft(study.budget.left_s()))


def _ask(
    study: Study, configuration: Configuration, rate: float, slo: Slo, duration_s: float
) -> Validation:
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
