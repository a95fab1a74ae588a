"""What guidelines and earlier studies say is best: tried after the default, and judged later."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.record.configuration import Configuration
from tuner.record.journal import PREDICTED, TRANSFERRED, TransferNoted
from tuner.record.launch import Purpose
from tuner.space.baselines import Baseline
from tuner.study.steps import Aim, Launch, NoTime, Steps, ask
from tuner.study.study import Study


def try_transferred(
    study: Study, baselines: Sequence[Baseline], batch: int
) -> Steps[list[Baseline]]:
    """Measure what guidelines and earlier studies suggest; return the baselines in their order.

    At `batch`, as the baselines are. First the guidelines' prediction for this model and host, one
    per class, baseline or not. Then the best of earlier studies: if it is a baseline, it is
    measured before the others; if not, only if there is time for all baselines as well.
    """
    evaluation = study.evaluation

    def at_its_batch(guess: Configuration) -> Configuration:
        moved = evaluation.at_batch(guess, batch)
        return moved if study.space.contains(moved) else guess

    def guesses(*, are_baselines: bool) -> list[Configuration]:
        found = study.search.guesses(
            study.turns, lambda guess: (at_its_batch(guess) in theirs) is not are_baselines
        )
        return list(dict.fromkeys(at_its_batch(best) for _, best in found))

    def try_one(guess: Configuration, source: str, leaving: Sequence[Configuration]) -> Steps[None]:
        if guess in evaluation.tried():  # by a session before this one, or by the other source
            return
        step = Launch(guess, Purpose.SEARCH, Aim.SEARCH, may_prune=True, leaving=leaving)
        record = yield from ask(step)
        if not isinstance(record, NoTime):
            study.tell(study.search.enter(guess, source), record)

    theirs = {at_its_batch(each.configuration): each for each in baselines}
    for guess in map(at_its_batch, study.guesses):
        yield from try_one(guess, PREDICTED, ())
    for guess in guesses(are_baselines=False):
        yield from try_one(guess, TRANSFERRED, tuple(theirs))
    best = [theirs[guess] for guess in guesses(are_baselines=True)]
    return [*best, *(each for each in baselines if each not in best)]


def note_transfer(study: Study) -> None:
    """Note whether earlier studies helped, and warn if they misled."""
    if not study.search.heard().studies:
        return
    study.candidates.beliefs()  # by everything that was measured
    heard = study.search.heard()
    study.store.add(
        TransferNoted(
            heard.studies, heard.n_configurations, heard.rank_correlation, heard.is_misled
        )
    )
    if heard.is_misled:
        study.notes.warn(
            "earlier studies, or rules, misled (its ranks correlate with what was "
            f"measured by {heard.rank_correlation:.2f}) and is no longer used"
        )
