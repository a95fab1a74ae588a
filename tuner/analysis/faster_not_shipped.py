"""Configurations confirmed to be faster than the recommendation, and why they do not ship."""

from __future__ import annotations

from tuner.record.study_stats import FasterNotShipped
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in
from tuner.study.claims import Claims
from tuner.study.compared import baseline_name
from tuner.study.minimise import why_unseen
from tuner.study.study import Study


def faster_not_shipped(
    study: Study, claims: Claims, winner_class: WinnerClass
) -> list[FasterNotShipped]:
    """Return the arms that are surely faster than the recommendation of a class."""
    claim, found = claims.claim(winner_class), []
    recommended = claim.configuration if claim.verdict == "faster" else claims.default
    for arm in claims.arms:
        if arm == recommended or not allowed_in(winner_class, arm):
            continue
        lead = claims.lead(arm, recommended)
        if lead is None or lead.low <= 1 or claims.claim_of(winner_class, arm).verdict != "faster":
            continue
        why = study.evaluation.row(arm).ship_fault
        why = why or why_unseen(study, arm) or claims.why_unjustified(arm)
        if not why and (echoed := study.evaluation.row(arm).unobservable):
            why = f"nothing shows that {', '.join(sorted(echoed))} took effect"
        if why:
            found.append(
                FasterNotShipped(arm.as_dict(), baseline_name(study, arm) or "", lead, why)
            )
    return found
