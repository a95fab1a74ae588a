"""Take away what does no good: a user gets three settings instead of fifteen, none too costly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tuner.measurement.confirmation import ONE_SIDED
from tuner.record.configuration import Configuration
from tuner.record.journal import FinalistNamed, Phase
from tuner.record.launch import Purpose
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in, is_default
from tuner.study.ablation import (
    awaits_rounds,
    costly_settings,
    is_unmeasured,
    may_be_necessary,
    score_loss,
    seems_necessary,
    tolerance,
    unjustified_costs,
    why_unjustified,
    without_costly,
)
from tuner.study.candidates import beats_default
from tuner.study.evaluation import Evaluation
from tuner.study.neighbours import is_fragile
from tuner.study.settled import settled
from tuner.study.steps import Aim, ArmsWanted, Launch, NoTime, Steps, TimeShare, ask
from tuner.study.study import CLASS_ORDER, Study

_MAX_LAUNCHES = 3
"""Launches of each configuration, at most, to judge one removal."""


def minimise(study: Study) -> Steps[None]:
    """Remove settings without effect from each class's finalist; the rest is confirmed and shipped.

    Costly settings (ablation.py) come first, those of the finalist with the largest gain before
    others. One is removed unless it seems needed, or might be and there was no time to tell; the
    confirmation's rounds then have to prove it. Other settings are removed if the configuration
    without them scores at most the tolerance below the finalist: 1 % for budgets from 30 minutes
    on, otherwise the noise of the search, at most 3 %.

    If there was no time to measure a removal, the setting stays, with two exceptions: a costly
    setting, and one whose effect nothing can observe. Such a finalist gets the time that minimal
    rounds would leave, or its rounds have to fit together with the configuration without the
    setting. Otherwise the best configuration without such settings replaces it.

    The last setting always stays: the confirmation says whether it helps. The classes share the
    time.
    """
    if study.notes.is_done(Phase.MINIMISE):
        return
    study.notes.enter(Phase.MINIMISE, "each setting of the finalists away, one by one")
    is_complete = True
    notes = study.store.current(FinalistNamed)
    finalists = study.candidates.finalists()
    reduced = {note.winner_class for note in notes if note.phase is Phase.MINIMISE}
    reduced |= {k for k, claim in settled(study).items() if claim.configuration == finalists[k]}
    waiting = [k for k in CLASS_ORDER if k not in reduced]  # else by a stopped session
    reductions = [_Reduction(study, finalists[winner_class]) for winner_class in waiting]
    by_class = dict(zip(waiting, reductions, strict=True))
    by_gain = sorted(waiting, key=lambda k: _log_score(study, finalists[k]), reverse=True)
    for n, winner_class in enumerate(by_gain):
        yield from by_class[winner_class].drop_costly(TimeShare(len(waiting) - n))
    for winner_class in by_gain:  # what the others' shares left: unproven, a finalist is refused
        yield from by_class[winner_class].drop_costly(TimeShare(1))
    unproven_ones: dict[WinnerClass, tuple[Configuration, list[str]]] = {}
    accepted = {k: c for k, c in finalists.items() if k not in waiting}
    for n, (winner_class, reduction) in enumerate(by_class.items()):
        shortest, removed = yield from reduction.carry_out(TimeShare(len(waiting) - n))
        if removed and (yield from is_fragile(study, shortest)):
            shortest, removed = finalists[winner_class], []
        is_complete = is_complete and reduction.is_complete
        if why_not(study, shortest):
            unproven_ones[winner_class] = (shortest, removed)
        else:
            study.store.add(FinalistNamed(Phase.MINIMISE, winner_class, shortest, tuple(removed)))
            accepted[winner_class] = shortest
    refused: list[WinnerClass] = []
    for winner_class in filter(unproven_ones.__contains__, by_gain):
        shortest, removed = unproven_ones[winner_class]
        others = (f for k, f in study.candidates.finalists().items() if k is not winner_class)
        proved, dropped = yield from by_class[winner_class].prove(shortest, removed, others)
        if proved == shortest or not (yield from is_fragile(study, proved)):
            shortest, removed = proved, dropped
        why = why_not(study, shortest)
        if why and (yield from _rounds_may_prove(study, {**accepted, winner_class: shortest})):
            why = ""
        if why:
            if beats_default(study.evaluation, shortest):
                study.notes.warn(f"{shortest.label()} is not recommended: {why}", is_passing=True)
            refused.append(winner_class)
            continue
        study.store.add(FinalistNamed(Phase.MINIMISE, winner_class, shortest, tuple(removed)))
        accepted[winner_class] = shortest
    for winner_class in refused:  # last: what was measured for the others may stand in here too
        study.store.add(FinalistNamed(Phase.MINIMISE, winner_class, _stand_in(study, winner_class)))
    if not is_complete:
        study.notes.leave_undone(
            "to try without each setting (a winner may hold some that do nothing)"
        )
    reason = "minimal" if is_complete else "no time to try every removal"
    if not any(beats_default(study.evaluation, finalist) for finalist in finalists.values()):
        reason = "nothing led in the search: there was nothing to take away"
    study.notes.done(Phase.MINIMISE, reason)


def why_not(study: Study, configuration: Configuration) -> str:
    """Say why a configuration must not be confirmed; empty if nothing speaks against it.

    A costly setting speaks against it unless launches without it say that it may be needed.
    """
    unseen = why_unseen(study, configuration)
    is_tried = not any(is_unmeasured(study, c) for c in without_costly(study, configuration))
    if unseen or (is_tried and awaits_rounds(study, configuration)):
        return unseen
    return why_unjustified(study, configuration)


def _rounds_may_prove(study: Study, finalists: Mapping[WinnerClass, Configuration]) -> Steps[bool]:
    """Tell whether the confirmation has time for finalists and for each without costly settings.

    No launch of the search is needed then: rounds are the better proof. finalists: the one in
    question last, after those that were accepted, whose own proof must not be left out.
    """
    *_, configuration = finalists.values()
    if why_unseen(study, configuration) or not awaits_rounds(study, configuration):
        return False
    leaner = {c: without_costly(study, c) for c in dict.fromkeys(finalists.values())}
    fitting = yield from ask(ArmsWanted(finalists, leaner, (), ()))
    needed = [c for shorter in leaner.values() for c in shorter]
    return not isinstance(fitting, NoTime) and all(c in fitting.arms for c in needed)


def why_unseen(study: Study, configuration: Configuration) -> str:
    """Say which settings have an effect that nothing shows; empty if none."""
    echoed = study.evaluation.row(configuration).unobservable
    shorter = study.removals(configuration)
    unseen = [k for k in shorter if k in echoed and is_unmeasured(study, shorter[k])]
    if not unseen:
        return ""
    return (
        f"nothing shows that {', '.join(unseen)} took effect, and there was no time to measure "
        "without: --extend has it"
    )


def _stand_in(study: Study, winner_class: WinnerClass) -> Configuration:
    """Return what replaces a refused finalist: the best without unseen or unproven settings.

    From what the search tried, and from the other classes' finalists.
    """
    tried = study.candidates.candidate(
        winner_class,
        lambda c: not study.evaluation.row(c).unobservable and not unjustified_costs(study, c),
    )
    left = [
        c
        for c in study.candidates.finalists().values()
        if allowed_in(winner_class, c) and not why_not(study, c)
    ]
    return max((tried, *left), key=lambda c: _log_score(study, c))


def _log_score(study: Study, configuration: Configuration) -> float:
    score = study.evaluation.score(configuration)
    return -math.inf if score is None else score


class _Reduction:
    """The reduction of one finalist.

    It first removes costly settings, then all settings at once that the trials suggest are useless:
    often one launch for many settings. The rest is tested one by one, a launch for each setting and
    further ones where the result is unclear.
    """

    def __init__(self, study: Study, finalist: Configuration) -> None:
        self._study = study
        self._finalist = finalist
        self._dropped: list[str] = []
        self._share: TimeShare | None = None
        self._others: list[Configuration] = []
        """The other arms of the confirmation, if a finalist is to be proved."""
        self.is_complete = True

    def drop_costly(self, share: TimeShare) -> Steps[None]:
        """Remove each costly setting that is not shown to be needed, the costliest first.

        A setting stays if there was no time to measure its removal, if it seems needed, or if it
        gains something that there was no time to distinguish from noise. The confirmation's rounds
        decide then.
        """
        self._share = share
        yield from self._drop_costly()

    def _drop_costly(self) -> Steps[None]:
        study, self.is_complete = self._study, True
        if not beats_default(study.evaluation, self._finalist):
            return
        tried: set[str] = set()
        while open_ones := [k for k in costly_settings(study, self._finalist) if k not in tried]:
            knob = open_ones[0]
            tried.add(knob)
            shorter = self._without([knob])
            is_clear = yield from self._make_clear(shorter, is_costly=True)
            self.is_complete = self.is_complete and is_clear
            if is_unmeasured(study, shorter) or seems_necessary(study, self._finalist, shorter):
                continue
            if is_clear or not may_be_necessary(study, self._finalist, shorter):
                self._finalist = shorter
                self._dropped.append(knob)

    def prove(
        self, shortest: Configuration, removed: Sequence[str], others: Iterable[Configuration]
    ) -> Steps[tuple[Configuration, list[str]]]:
        """Test the costly settings of a refused finalist, in the time that minimal rounds leave.

        others: the other arms of the confirmation. Returns the configuration that is left, and the
        removed settings.
        """
        self._finalist, self._dropped = shortest, list(removed)
        self._share, self._others = None, list(others)
        yield from self._drop_costly()
        return self._finalist, self._dropped

    def carry_out(self, share: TimeShare) -> Steps[tuple[Configuration, list[str]]]:
        """Return the shortest configuration that is as good, and the removed settings."""
        self._share = share
        if not beats_default(self._study.evaluation, self._finalist):
            return self._finalist, self._dropped  # confirmed to say that nothing is better
        away = yield from self._useless_at_once()
        losses: dict[str, float] = {}
        for knob in self._study.removals(self._without(away)):
            loss = yield from self._harmless_loss(self._without([*away, knob]))
            if loss is not None:
                losses[knob] = loss
        # the least missed first; all that are not missed at once, else one fewer at a time
        useless = sorted(losses, key=losses.__getitem__)
        while useless:
            if is_default(self._without([*away, *useless])):
                useless.pop()
                continue
            loss = yield from self._harmless_loss(self._without([*away, *useless]))
            if loss is not None:
                break
            useless.pop()
        removed = [*away, *useless]
        shortest = self._without(removed) if removed else self._finalist
        return shortest, [*self._dropped, *removed]

    def _useless_at_once(self) -> Steps[list[str]]:
        """Return the settings that together can go, by a launch without all of them."""
        removable = self._study.removals(self._finalist)
        gains = self._study.search.gains(self._finalist)
        useless = tolerance(self._study)
        guess = [k for k, gain in gains.items() if gain <= useless and k in removable]
        if guess and is_default(self._without(guess)):
            guess.remove(max(guess, key=gains.__getitem__))
        if len(guess) < 2 or self._study.space.refused(self._without(guess)):
            return []
        loss = yield from self._harmless_loss(self._without(guess))
        return guess if loss is not None else []

    def _without(self, knobs: list[str]) -> Configuration:
        kept = {k: v for k, v in self._finalist.settings if k not in knobs}
        return self._study.space.canonical(kept)

    def _make_clear(self, shorter: Configuration, *, is_costly: bool = False) -> Steps[bool]:
        """Launch until the loss without some settings is clear; return whether it is.

        The finalist is the luckiest of many, so that at first every removal looks like a loss. It
        is launched a second time before a loss counts, and again while the result is unclear. A
        costly setting only has to seem needed.
        """
        while (due := self._due(shorter)) is not None:
            if is_costly and seems_necessary(self._study, self._finalist, shorter):
                return True
            if not (yield from self._launch(due)):
                return False
        return True

    def _launch(self, configuration: Configuration) -> Steps[bool]:
        """Launch a configuration once more if there is time; tell whether there was."""
        confirmed = tuple(dict.fromkeys([*self._others, self._finalist]))
        step = Launch(configuration, Purpose.ABLATION, Aim.PROOF, confirmed=confirmed)
        if self._share is not None:
            step = Launch(configuration, Purpose.ABLATION, Aim.REMOVAL, share=self._share)
        return not isinstance((yield from ask(step)), NoTime)

    def _harmless_loss(self, shorter: Configuration) -> Steps[float | None]:
        """Return the loss of score if it is known to be within the tolerance; else None.

        Also None if that configuration failed, or if there was no time to make sure.
        """
        study = self._study
        is_clear = yield from self._make_clear(shorter)
        loss = score_loss(study.evaluation, self._finalist, shorter)
        if not study.evaluation.may_win(shorter) or (loss is not None and loss > tolerance(study)):
            return None
        if loss is None or not is_clear:
            self.is_complete = False
            return None
        return loss

    def _due(self, shorter: Configuration) -> Configuration | None:
        return launch_due(
            self._study.evaluation,
            self._finalist,
            shorter,
            tolerance(self._study),
            is_expected=self._is_expected(shorter),
        )

    def _is_expected(self, shorter: Configuration) -> bool:
        """Tell whether all trials together say that the removed settings gain nothing.

        A setting that nothing can observe is removed without a second launch.
        """
        study, left = self._study, dict(shorter.settings)
        echoed = study.evaluation.row(self._finalist).unobservable
        gains = study.search.gains(self._finalist)
        removed = [k for k, _ in self._finalist.settings if k not in left and k not in echoed]
        return sum(gains.get(knob, math.inf) for knob in removed) <= tolerance(study)


def launch_due(
    evaluation: Evaluation,
    full: Configuration,
    shorter: Configuration,
    tolerance: float,
    *,
    is_expected: bool,
) -> Configuration | None:
    """Return the next launch needed to judge a shorter configuration; None if it is judged.

    tolerance: the loss of score that is accepted. is_expected: all trials together say that the
    removed settings do not help. Otherwise one launch of each may have been luck.
    """
    if any(evaluation.row(c).has_failed for c in (shorter, full)):
        return None
    loss = score_loss(evaluation, full, shorter)
    if loss is None:
        return shorter
    least = min((full, shorter), key=evaluation.n_launches)
    excess = loss - tolerance
    if excess <= 0:
        is_clear = is_expected or evaluation.n_launches(least) > 1
    elif evaluation.n_launches(full) == 1:
        return full
    else:
        margin = ONE_SIDED * evaluation.noise(shorter, full)
        is_clear = excess >= margin or evaluation.n_launches(least) >= _MAX_LAUNCHES
    return None if is_clear else least
