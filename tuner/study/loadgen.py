"""A run of MLPerf's LoadGen against a launch: the requests, and LoadGen's result."""

from __future__ import annotations

import math

from tuner.launchers.protocol import Launch
from tuner.record.configuration import Configuration
from tuner.record.launch import Purpose
from tuner.record.load import Slo
from tuner.record.serving import LoadgenOrder, Validation
from tuner.record.workload import SERVICE
from tuner.study.study import Study


def has_loadgen_to_ask(study: Study) -> bool:
    """Tell whether LoadGen can say something of the rates, were it installed.

    Its requests arrive at random, and it knows no HTTP.
    """
    slo = study.evaluation.objective.slo
    return slo is not None and slo.trace is None and study.bench.form != SERVICE


def ask_loadgen(
    study: Study, configuration: Configuration, rate: float, duration_s: float
) -> Validation:
    """Let LoadGen send requests at a rate to a new launch; return its result."""
    slo = study.evaluation.objective.slo
    assert slo is not None
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
    """Return LoadGen's settings for a server, for a run of at least some seconds."""
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
