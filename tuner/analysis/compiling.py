"""What compiling costs a configuration, and after how much work that has paid."""

from __future__ import annotations

import statistics

from tuner.record.configuration import Configuration
from tuner.record.result import CompileSeconds
from tuner.record.store import Store
from tuner.study.claim import Claim
from tuner.study.claims import Claims

_BRIEF_S = 0.5
"""By less, first calls differ with the moment: nothing was compiled, or as fast."""


def compile_seconds(store: Store, claims: Claims, claim: Claim) -> CompileSeconds:
    """Return the cost of compiling the first time, and with a warm cache."""
    cold, warm, in_company = _cold_and_warm(store, claim.configuration)
    return CompileSeconds(cold, warm, _items_to_pay(store, claims, claim), in_company)


def _items_to_pay(store: Store, claims: Claims, claim: Claim) -> float | None:
    """Return after how many items a winner's longer start is paid back by its speed."""
    warm = _cold_and_warm(store, claim.configuration)[1]
    default_s = _cold_and_warm(store, claims.default)[1]
    default_rate = claims.rounds.rate(claims.default)
    if claim.verdict != "faster" or None in (warm, default_s, claim.rate, default_rate):
        return None
    assert warm is not None and default_s is not None and claim.rate and default_rate
    saved_s = 1 / default_rate.point - 1 / claim.rate.point
    return (warm - default_s) / saved_s if saved_s > 0 and warm - default_s > _BRIEF_S else None


def _cold_and_warm(
    store: Store, configuration: Configuration
) -> tuple[float | None, float | None, bool]:
    """Return the seconds of compiling a configuration without and with the compiler's cache.

    And whether others were prepared in parallel to a launch that they rest on. Launches that were
    prepared alone come first.

    The cache is kept per study. The compiled code depends on everything but the settings of the
    launch, so that the first launch with the same rest was the cold one. An allocator may double
    the time of compiling: the configuration's own launches come first, and a cold one under other
    launch settings is ignored if it took clearly less than the warm ones here. If the first launch,
    prepared alone, compiled nothing, later ones compile nothing either: those prepared in parallel
    are only slowed by others.
    """
    sharing = [
        record
        for record in store.launches.values()
        if record.prepared is not None
        and _compiled_settings(record.request.configuration) == _compiled_settings(configuration)
    ]
    if not sharing:
        return None, None, False
    first, *others = sharing
    own = [r for r in others if r.request.configuration == configuration]
    telling = [r for r in own if not r.request.n_companions] or own or others
    warm = statistics.median(r.compile_s for r in telling) if telling else None
    is_own = first.request.configuration == configuration
    says_nothing = not is_own and warm is not None and warm - first.compile_s > _BRIEF_S
    compiles_nothing = first.compile_s < _BRIEF_S and not first.request.n_companions
    if compiles_nothing and all(r.request.n_companions for r in telling):
        return first.compile_s, first.compile_s if telling else None, False
    told = telling if says_nothing else [first, *telling]
    cold = None if says_nothing else first.compile_s
    return cold, warm, any(r.request.n_companions for r in told)


def _compiled_settings(configuration: Configuration) -> list[tuple[str, object]]:
    return [(k, v) for k, v in configuration.settings if not k.startswith("launch.")]
