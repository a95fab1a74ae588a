"""The confirmation's rounds as they were measured, and the noise of all slices."""

from __future__ import annotations

from tuner.host.interference import disturbances, n_disturbed
from tuner.measurement.confirmation import ALPHA
from tuner.record.journal import ArmsChosen
from tuner.record.store import Store
from tuner.record.study_stats import ConfirmationRound, ConfirmationSection, NoiseSection
from tuner.record.winner_class import WinnerClass
from tuner.study.claims import Claims


def confirmation_section(store: Store, claims: Claims) -> ConfirmationSection:
    """Return the raw comparison: rounds x arms, None where an arm took no part."""
    arms = list(dict.fromkeys(arm for launched in claims.rounds.launches for arm in launched))
    series = [claims.rounds.series(arm).values for arm in arms]
    chosen = store.all(ArmsChosen)
    return ConfirmationSection(
        arms=[arm.as_dict() for arm in arms],
        rounds=[
            ConfirmationRound(number, list(row))
            for number, row in enumerate(zip(*series, strict=True), start=1)
        ],
        looks=list(chosen[-1].looks) if chosen else [],
        alpha=ALPHA,
        n_early=claims.rounds.n_early,
    )


def noise_section(store: Store, claims: Claims, winner_class: WinnerClass) -> NoiseSection:
    """Return the noise over all slices; the floor is that of a class."""
    slices = [s for record in store.launches.values() for s in record.slices]
    return NoiseSection(
        floor=claims.noise_floor(winner_class),
        launch_sd=round(claims.noise.launch_sd, 6),
        dirty_slices=n_disturbed(slices),
        slices=len(slices),
        disturbances=disturbances([s.interference for s in slices]),
    )
