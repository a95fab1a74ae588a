"""An early verdict: the best so far against the default, while the search goes on."""

from __future__ import annotations

from tuner.measurement.confirmation import EARLY_ALPHA, FIRST_LOOK, expected_half_width
from tuner.record.configuration import Configuration
from tuner.record.events import RoundEnds, VerdictReached
from tuner.record.integrity import RESULT
from tuner.record.journal import EarlyRound
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import is_default, narrowest_class
from tuner.study.ablation import unjustified_costs
from tuner.study.compared import confirmation_arms
from tuner.study.confirm import make_claims
from tuner.study.steps import EarlyLook, NoTime, Publish, Steps, ask
from tuner.study.study import Study


def early_verdict(study: Study) -> Steps[None]:
    """Confirm the best configuration so far if its lead is clear, once in a study.

    The verdict is printed and written at once. If that configuration is a finalist at the end,
    these rounds count for it. Otherwise it keeps its verdict and needs no further round.
    """
    rounds = study.store.all(EarlyRound)
    arm = rounds[-1].arm if rounds else _clear_leader(study)
    if arm is None or study.store.n_extensions or (study.store.folder / RESULT).is_file():
        return
    arms = confirmation_arms(study, [arm])
    for number in range(len(rounds) + 1, FIRST_LOOK + 1):
        records = yield from ask(EarlyLook(arms, number))
        if isinstance(records, NoTime):
            return
        study.store.add(EarlyRound(arm, tuple(record.request.id for record in records)))
        study.listen(RoundEnds(number, {}))
    claim = make_claims(study).claim(narrowest_class(arm))
    is_won = claim.configuration == arm and claim.verdict == "faster"
    if is_won and claim.speedup is not None:
        found = claim.speedup.point, claim.speedup.low, claim.speedup.high
        seconds = study.budget.used_s()
        yield from ask(Publish())
        study.listen(VerdictReached(arm.label(), found, seconds))


def _clear_leader(study: Study) -> Configuration | None:
    """Return the best configuration so far if four rounds will probably decide on it; else None.

    Its lead, less its standard error, must exceed the expected half-width of an interval at that
    look.
    """
    evaluation = study.evaluation
    default = evaluation.default_at_best()
    if default is None or evaluation.objective.slo is not None or study.preference.bears_neighbours:
        return None  # a server's rate, or what a neighbour leaves, takes longer rounds
    leader = study.candidates.candidate(
        WinnerClass.REDUCED_PRECISION,
        lambda c: (
            not (is_default(c) or unjustified_costs(study, c) or evaluation.row(c).unobservable)
        ),
    )
    score = evaluation.score(leader)
    if score is None or is_default(leader):
        return None
    lead = score - default[1] - evaluation.noise(leader, default[0])
    width = expected_half_width(evaluation.estimates.launch_sd, FIRST_LOOK, 1, EARLY_ALPHA)
    return leader if lead > width else None
