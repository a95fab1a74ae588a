"""How a server answered: the rates that were tried, and what happens at the maximum rate."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from tuner.analysis.launches import launches_of
from tuner.record.figures import figure
from tuner.record.launch import LaunchRecord, Purpose, percentile
from tuner.record.load import Slo
from tuner.record.max_rate import alone_s, edge_of
from tuner.record.objective import offered_of, timed_of, trials_of
from tuner.record.result import Result
from tuner.record.serving import Serving, TriedRate, Validation
from tuner.study.claim import Claim
from tuner.study.claims import Claims
from tuner.study.study import Study
from tuner.study.validate import validations_of

_MUCH = 0.1
"""Of one CPU's time: more, and the rates say as much of the tool as of the model."""


def serving_of(records: Sequence[LaunchRecord], slo: Slo | None) -> Serving | None:
    """Return how a configuration served in the confirmation; None if it did not."""
    tried = [r for r in records if r.request.purpose is Purpose.CONFIRM and offered_of(r.slices)]
    if slo is None or not tried:
        return None
    edges = [edge_of(trials_of(r.slices, slo), slo.seconds) for r in tried]
    offered = [s for r in tried for s in offered_of(r.slices)]
    return Serving(
        rates=[
            TriedRate(
                r.request.round,
                s.served.offered,
                s.served.n_requests,
                percentile(s.call_s, 0.5),
                percentile(s.call_s, slo.quantile),
            )
            for r in tried
            for s in offered_of(r.slices)
            if s.served is not None
        ],
        n_met=sum(edge.rate > 0 for edge in edges),
        n_launches=len(edges),
        is_cliff=2 * sum(edge.is_cliff for edge in edges) > len(edges),
        is_open=2 * sum(math.isinf(edge.high) for edge in edges) > len(edges),
        queue_share=_queue_share(tried, slo),
        generator=max(s.served.generator for s in offered if s.served is not None),
    )


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


def too_slow(name: str, told: Sequence[Validation]) -> list[str]:
    """Say it where LoadGen found the lower bound of a rate too slow each time."""
    if not told:
        return []
    here = [each for each in told if each.rate == told[0].rate]
    if not all(each.is_too_slow for each in here):
        return []
    disturbed = ", while something disturbed it" if all(each.disturbed for each in here) else ""
    lower, last = "", told[-1].told
    if last is not None and last.word == "valid":
        lower = f", and in time at {figure(last.rate)}: count on no more than that"
    elif last is not None and last.word == "too_short":
        late = f"{last.n_over} of {last.n_requests} late"
        lower = f"; at {figure(last.rate)} its run was too short to say ({late})"
    return [
        f"{name}: LoadGen was answered too late at {figure(here[0].rate)} requests/s, the lower "
        f"bound of its rate{disturbed}{lower}"
    ]


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
    within = f"{slo.name} within {1000 * slo.seconds:.3g} ms"
    met, n = claims.rounds.n_met(claims.default)
    if met < n:
        texts.append(
            f"the default kept within the bound ({within}) in {met} of {n} rounds: rates stand "
            "without a speedup"
        )
    winners = dict.fromkeys(c.configuration for c in found if c.verdict == "faster")
    for configuration in [*winners, claims.default]:
        texts += too_slow(configuration.label(), validations_of(study.store, configuration))
    for configuration in winners:
        serving = serving_of(launches_of(study.store, configuration), slo)
        if serving is None:
            continue
        if serving.is_cliff:
            texts.append(
                f"{configuration.label()}: its latency jumps where it crosses the bound "
                f"({within}); a little more load, and the queue runs away: leave room"
            )
        if serving.generator > _MUCH:
            texts.append(
                f"{configuration.label()}: sorting or posting the requests took "
                f"{serving.generator:.0%} of a CPU's time for each instance: rates say that much "
                "less of the server alone"
            )
    return texts
