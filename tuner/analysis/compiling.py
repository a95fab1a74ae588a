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
    """Return what compiling cost the first time, and what it costs with the cache there."""
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

    And whether others were prepared beside a launch that tells them. Launches that were prepared
    alone come first.

    The cache is kept per study; what is compiled depends on everything but the launch settings, so
    that the first launch that shares the rest was the cold one. But an allocator may double what
    compiling takes: its own launches come first, and a cold one that ran under other launch
    settings, and took clearly less than the warm ones here, says nothing. Where the first launch,
    by itself, compiled nothing, later ones compile nothing either: those prepared beside others are
    slowed by them, and tell nothing.
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
