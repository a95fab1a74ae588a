"""The time of each framework's study: new, resumed, or continued.

A finished study continues with a larger --budget, or with --extend, which is added to the time
used. This opens an extension in all studies of the run; the same command resumes one that was
stopped. If a study is not finished, --extend adds to what its budget has left, and opens no
extension. A study that found nothing to measure is tried again whenever others continue.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tuner.app.request import Request, given_in
from tuner.errors import UsageError
from tuner.record.journal import Added, Extended, SessionOpened, StudyFailed
from tuner.record.lines import opened_in
from tuner.record.store import Store

_LARGER = 1.01
"""Times an earlier budget: a larger one goes on with a finished study, the same one does not."""
_LAUNCHES = 2
"""Launches without which nothing can be compared: of the default and another."""
_MARGIN = 1.1
"""The budget that a refusal names is this many times the estimate, so that it is not refused again.
"""


class Account(msgspec.Struct, frozen=True):
    """The time that a study was granted and has used, in seconds."""

    used_s: float
    """In all of its sessions."""
    began_at_s: float
    """Of these, before its current extent was opened."""
    budget_s: float
    """The limit of the last session of its current extent, all earlier ones included; 0 before the
    first."""
    extension_s: float | None
    """The grant of the current extent, over all frameworks; None for a study's first extent to
    which nothing was added."""
    is_finished: bool
    has_failed: bool = False
    """Whether its last session found that nothing can be measured: it holds up no other study."""
    asked_s: float | None = None
    """The length of the last --extend of its current extent; the same one resumes it."""

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped before its end, or never begun: the command then resumes it."""
        return not (self.is_finished or self.has_failed)

    @property
    def spent_s(self) -> float:
        """The time used in its current extent."""
        return self.used_s - self.began_at_s


def account_of(store: Store) -> Account:
    """Read the grants from the journal of a study."""
    sessions = store.current(SessionOpened)
    grants: list[Extended | Added] = [*store.current(Extended), *store.current(Added)]
    last = grants[-1] if grants else None
    return Account(
        used_s=store.used_before_s,
        began_at_s=store.extended_at_s,
        budget_s=sessions[-1].budget_s if sessions else 0.0,
        extension_s=None if last is None else last.seconds,
        is_finished=store.is_finished,
        has_failed=_has_failed(store),
        asked_s=last.added_s if isinstance(last, Added) else last.seconds if last else None,
    )


def _has_failed(store: Store) -> bool:
    kinds = (StudyFailed, SessionOpened, Extended)
    last = next((note for note in reversed(store.notes) if isinstance(note, kinds)), None)
    return isinstance(last, StudyFailed)


def grant(request: Request, accounts: Sequence[Account]) -> Extended | Added | None:
    """Return the additional time of a run for its studies; None if it only resumes them.

    Raises UsageError if all of a larger budget is used already.
    """
    stopped = [each for each in accounts if each.is_stopped]
    if request.extends:
        if any(each.asked_s == request.budget_s for each in stopped):
            return None
        if not stopped:
            return Extended(request.budget_s)
        spent_s = sum(each.spent_s for each in accounts)
        return Added(spent_s + _left_s(accounts) + request.budget_s, request.budget_s)
    if stopped:
        return None
    *others, last = accounts
    if request.budget_s <= _LARGER * (last.budget_s + sum(each.used_s for each in others)):
        return None
    used_s = sum(each.used_s for each in accounts)
    if request.budget_s <= used_s:
        raise UsageError(
            f"--budget {request.budget_s:g}s: the study has used {used_s:.0f} s already; give more "
            "than that, or --extend 10m, which is on top of it"
        )
    return Extended(request.budget_s - used_s)


def _left_s(accounts: Sequence[Account]) -> float:
    """Return the time that unfinished studies may still use, by their grants.

    A study that was not begun yet has as much as the one before it.
    """
    share_s = left_s = 0.0
    for each in accounts:
        share_s = each.budget_s - each.began_at_s if each.budget_s else share_s
        left_s += 0.0 if each.is_finished else max(0.0, share_s - each.spent_s)
    granted_s = max((each.extension_s or 0.0 for each in accounts if each.is_stopped), default=0.0)
    return max(left_s, granted_s - sum(each.spent_s for each in accounts))


class Shares:
    """Shares the time of a run among its unfinished studies, in their order."""

    def __init__(self, request: Request, accounts: Sequence[Account]) -> None:
        """accounts: after an extension was opened, or time was added, if one was."""
        self._accounts = accounts
        open_s = [each.extension_s or 0.0 for each in accounts if not each.is_finished]
        before_s = 0.0 if request.extends else sum(each.began_at_s for each in accounts)
        # resumed by a command that grants less, a study keeps what an extension gave it
        self._left_s = max(request.budget_s - before_s, *open_s, 0.0)
        self._left_s -= sum(each.spent_s for each in accounts if each.is_finished)

    def total_s(self, number: int) -> float:
        """Return the limit of a study over all of its sessions; number: from 0."""
        n_left = sum(not each.is_finished for each in self._accounts[number:])
        return self._accounts[number].began_at_s + max(1.0, self._left_s / max(1, n_left))

    def use(self, number: int, used_s: float) -> None:
        """Note the time that a study has used in all of its sessions."""
        account = self._accounts[number]
        if not account.is_finished:
            self._left_s -= used_s - account.began_at_s


def check_continued(request: Request, folders: Iterable[Path]) -> None:
    """Raise UsageError where --extend has no study to go on with."""
    missing = [folder for folder in folders if opened_in(folder) is None]
    if request.extends and missing:
        raise UsageError(
            f"--extend continues a study, and there is none in {missing[0]}: give the options "
            "that it was begun with, or --budget to begin one"
        )


def check_round(
    request: Request, extension_s: float | None, passed_s: float, launches_s: Sequence[float]
) -> None:
    """Raise UsageError if nothing could be compared, with the least budget that holds a round.

    extension_s: of the extension that is opened, if any. passed_s: since the command was given.
    launches_s: the least time of a launch of the default, for each study that is begun or
    continued.
    """
    seconds = request.budget_s if extension_s is None else extension_s
    least_s = passed_s + _LAUNCHES * sum(launches_s)
    if not launches_s or seconds >= least_s:
        return
    enough_s = math.ceil(request.budget_s - seconds + _MARGIN * least_s)
    raise UsageError(
        f"{given_in(request)} {request.budget_s:g}s is too short to measure anything: the first "
        f"round of launches takes {least_s:.2g} s here, with what precedes it; give at least "
        f"{enough_s}s, and some minutes for a verdict"
    )
