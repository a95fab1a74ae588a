"""How a server answered: the rates that were tried, and what happens at the maximum rate."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from tuner.analysis.launches import launches_of
from tuner.measurement.server_rate import Fit
from tuner.measurement.server_trials import fit_of_launches, launched, log_rates_of_launches
from tuner.record.figures import figure
from tuner.record.launch import LaunchRecord, Purpose, Slice, percentile
from tuner.record.load import Slo
from tuner.record.objective import offered_of, timed_of
from tuner.record.result import Result
from tuner.record.service_times import alone_s
from tuner.record.serving import Pauses, Serving, TriedRate, Validation
from tuner.study.claim import Claim
from tuner.study.claims import Claims
from tuner.study.study import Study
from tuner.study.validate import validations_of

_FLAT = 2.0
"""Slopes below it mean that not the load makes requests late."""
_APART = 10
"""Requests between two late ones from which on they are two pauses."""
_MUCH = 0.1
"""Of one CPU's time: more, and the rates say as much of the tool as of the model."""


def serving_of(records: Sequence[LaunchRecord], slo: Slo | None) -> Serving | None:
    """Return how a configuration served in the confirmation; None if it did not."""
    confirming = [r for r in records if r.request.purpose is Purpose.CONFIRM and r.was_measured]
    tried = [r for r in confirming if offered_of(r.slices)]
    if slo is None or not tried:
        return None
    offered = [s for r in tried for s in offered_of(r.slices)]
    fit = fit_of_launches(tried, slo)
    return Serving(
        rates=[
            TriedRate(
                r.request.round,
                s.served.offered,
                s.served.n_requests,
                percentile(s.call_s, 0.5),
                percentile(s.call_s, slo.quantile),
                sum(call_s > slo.seconds for call_s in s.call_s),
            )
            for r in tried
            for s in offered_of(r.slices)
            if s.served is not None
        ],
        n_met=sum(each is not None for each in log_rates_of_launches(tried, slo)),
        n_launches=len(tried),
        is_open=fit.rate >= max(s.served.offered for s in offered if s.served is not None),
        queue_share=_queue_share(tried, slo),
        generator=max(s.served.generator for s in offered if s.served is not None),
        slope=fit.slope,
        rate=fit.rate,
        pauses=_pauses(offered, slo) if _is_flat(tried, fit, slo) else None,
    )


def _is_flat(tried: Sequence[LaunchRecord], fit: Fit, slo: Slo) -> bool:
    """Tell whether the share of late requests depends less on the rate than a queue's would."""
    models = [model for r in tried if (model := launched(r, slo).model) is not None]
    is_of_load = any(model.slope < 2 * _FLAT for model in models)
    return fit.log_scale is None and fit.slope < _FLAT and not is_of_load


def _pauses(offered: Sequence[Slice], slo: Slo) -> Pauses | None:
    """Return the pauses that made requests late; None if none was late.

    Requests are in the order of their answers: those that one pause made late follow one another.
    """
    longest_s: list[float] = []
    for taken in offered:
        usual_s = percentile(taken.call_s, 0.5)
        last = -_APART
        for i, call_s in enumerate(taken.call_s):
            if call_s <= slo.seconds:
                continue
            if i - last >= _APART:
                longest_s.append(0.0)
            longest_s[-1], last = max(longest_s[-1], call_s - usual_s), i
    if not longest_s:
        return None
    every_s = sum(taken.seconds for taken in offered) / len(longest_s)
    return Pauses(len(longest_s), statistics.median(longest_s), every_s)


def _queue_share(tried: Sequence[LaunchRecord], slo: Slo) -> float | None:
    """Return the share of the median latency, at the last rate within the bound, spent waiting.

    In the queue, or for others of a larger batch: everything that a single request would not take.
    None if no launch met the bound.
    """
    shares = []
    for record in tried:
        timed = timed_of(record.slices)
        within = [
            s
            for s in offered_of(record.slices)
            if percentile(s.call_s, slo.quantile) <= slo.seconds
        ]
        if timed and within:
            last = max(within, key=lambda s: s.served.offered if s.served else 0.0)
            shares.append(max(0.0, 1 - alone_s(timed[0]) / percentile(last.call_s, 0.5)))
    return statistics.fmean(shares) if shares else None


def default_meets(claims: Claims, *, is_silent: bool) -> bool | None:
    """Tell whether the default met the bound in every round; None if no round shows it.

    A default that answers no request takes part in none, and does not meet it.
    """
    if is_silent:
        return False
    met, n = claims.rounds.n_met(claims.default)
    return None if claims.objective.slo is None or not n else met == n


def too_slow(
    name: str,
    validations: Sequence[Validation],
    serving: Serving | None = None,
    slo: Slo | None = None,
) -> list[str]:
    """Say it where LoadGen found the lower bound of a rate too slow each time.

    Unless that agrees with the rate: late requests come in clusters.
    """
    if not validations:
        return []
    here = [each for each in validations if each.rate == validations[0].rate]
    if not all(each.is_too_slow for each in here):
        return []
    if serving is not None and slo is not None and all(_agrees(serving, slo, v) for v in here):
        return []
    disturbed = ", while something disturbed it" if all(each.disturbed for each in here) else ""
    lower, last = "", validations[-1].told
    if last is not None and last.word == "valid":
        lower = f", and in time at {figure(last.rate)}: count on no more than that"
    elif last is not None and last.word == "too_short":
        late = f"{last.n_over} of {last.n_requests} late"
        lower = f"; at {figure(last.rate)} its run was too short to say ({late})"
    return [
        f"{name}: LoadGen was answered too late at {figure(here[0].rate)} requests/s, the lower "
        f"bound of its rate{disturbed}{lower}"
    ]


def _agrees(serving: Serving, slo: Slo, validation: Validation) -> bool:
    """Tell whether as many late requests as LoadGen had are to be expected now and then."""
    answer = validation.told
    if answer is None:
        return False
    most = serving.most_late(answer.scheduled_rate, answer.n_requests, slo.allowed)
    return most is not None and answer.n_over <= most


def without_speedups(result: Result) -> Result:
    """Return a result with rates alone: there is no ratio to a default that is never in time."""
    winners = {
        name: msgspec.structs.replace(
            winner,
            speedup=None,
            speedup_at_reference_batch=None,
            batch_gain=None,
            contributions=[],
        )
        for name, winner in result.winners.items()
    }
    default = msgspec.structs.replace(
        result.default, value=None, rate=None, rate_at_reference_batch=None
    )
    baselines = [msgspec.structs.replace(b, speedup=None) for b in result.baselines]
    return msgspec.structs.replace(
        result,
        speedup=None,
        speedup_over_best_baseline=None,
        speedup_over_as_run=None,
        default=default,
        winners=winners,
        baselines=baselines,
        contributions=[],
        ahead=[],
    )


def of_serving(study: Study, claims: Claims, found: Sequence[Claim]) -> list[str]:
    """Return the caveats about a server's rates."""
    slo = claims.objective.slo
    if slo is None:
        return []
    texts = []
    met, n = claims.rounds.n_met(claims.default)
    if met < n:
        texts.append(
            f"the default kept {slo.name} within {1000 * slo.seconds:.3g} ms in {met} of {n} "
            "rounds: rates stand without a speedup"
        )
    winners = dict.fromkeys(c.configuration for c in found if c.verdict == "faster")
    for configuration in [*winners, claims.default]:
        launches = launches_of(study.store, configuration)
        texts += too_slow(
            configuration.label(),
            validations_of(study.store, configuration),
            serving_of(launches, slo),
            slo,
        )
    for configuration in winners:
        serving = serving_of(launches_of(study.store, configuration), slo)
        if serving is None:
            continue
        if serving.generator > _MUCH:
            texts.append(
                f"{configuration.label()}: sorting or posting the requests took "
                f"{serving.generator:.0%} of a CPU's time for each instance: rates say that much "
                "less of the server alone"
            )
    return texts
