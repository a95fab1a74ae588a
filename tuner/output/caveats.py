"""Caveats to the headline: a busy host, and configurations that would be faster."""

from __future__ import annotations

from tuner.output.values import ratio
from tuner.record.configuration import Configuration
from tuner.record.load import SERVER
from tuner.record.noisiness import MOSTLY_DISTURBED, is_too_noisy
from tuner.record.result import Result


def faster_still(result: Result) -> list[str]:
    """Name what is surely faster than the recommendation, and why it does not ship."""
    than = "what is recommended" if result.verdict == "faster" else "the default"
    return [
        f"{found.baseline or 'Another'} is surely faster than {than}, {ratio(found.lead)}, and is "
        f"not recommended: {found.reason}. It is {Configuration.of(found.configuration).label()}."
        for found in result.ahead
    ]


def disturbance(result: Result) -> str:
    """Say that the headline was measured on a busy host; empty if it was not."""
    if result.verdict == "ambiguous" and is_too_noisy(
        result.noise_floor,
        result.noise.launch_sd,
        is_served=result.scenario == SERVER,
    ):
        return _too_noisy(result)
    share = result.winners[result.recommended_class].disturbed
    if share <= MOSTLY_DISTURBED:
        return ""
    return (
        f"The host was busy: {share:.0%} of the slices behind this were disturbed. It says what is "
        "so beside such a load, and may not hold on a quiet host."
    )


def _too_noisy(result: Result) -> str:
    """Say what made a host too noisy to compare anything there, and what to do."""
    noise = result.noise
    found = [each.what for each in noise.disturbances]
    remedies = [each.remedy for each in noise.disturbances]
    if not found and noise.dirty_slices:  # a result of an earlier version
        found = [f"{noise.dirty_slices} of {noise.slices} slices were disturbed"]
    what = "; ".join(found) or "nothing that can be seen from here disturbed it"
    todo = "; ".join(remedies) or "take another host, or another hour"
    return (
        "The host was too noisy: two launches of the same program may differ by more than half "
        f"here ({what}). What to do: {todo}; then tune again with a new --out."
    )
