"""How much time the study of each framework gets: new, resumed, or gone on with after its end.

A study that is finished goes on where a larger --budget is given than before, or --extend, which is
on top of what was used. This opens an extension in all studies of the run; the same command resumes
one that was stopped. A study that found nothing to measure is tried again whenever others go on.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tuner.errors import UsageError
from tuner.record.journal import Extended, SessionOpened
from tuner.record.lines import opened_in
from tuner.record.store import Store
from tuner.request import Request

_LARGER = 1.01
"""Times an earlier budget: a larger one goes on with a finished study, the same one does not."""
_LAUNCHES = 2
"""Launches without which nothing can be compared: of the default and another."""
_MARGIN = 1.1
"""The least budget that is named is this many times what was estimated: it is not refused again."""
_GIVEN = ("--budget", "--extend")


class Account(msgspec.Struct, frozen=True):
    """What a study was granted and has used, all in seconds."""

    used_s: float
    """In all of its sessions."""
    began_at_s: float
    """Of these, before its current extent was opened."""
    budget_s: float
    """What its last session could use up to, earlier ones included; 0 before the first."""
    extension_s: float | None
    """What the current extent was granted, over all frameworks; None of a study's first."""
    is_finished: bool
    has_failed: bool = False
    """Whether its last session found that nothing can be measured: it holds up no other study."""

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped before its end, or never begun: to resume it is what is meant."""
        return not (self.is_finished or self.has_failed)


def account_of(store: Store) -> Account:
    """Return what the journal of a study tells."""
    sessions, extended = store.all(SessionOpened), store.current(Extended)
    return Account(
        used_s=store.used_before_s,
        began_at_s=store.extended_at_s,
        budget_s=sessions[-1].budget_s if sessions else 0.0,
        extension_s=extended[-1].seconds if extended else None,
        is_finished=store.is_finished,
        has_failed=store.has_failed,
    )


def extension_s(request: Request, accounts: Sequence[Account]) -> float | None:
    """Return the seconds of the extension that a run opens in its studies; None if it opens none.

    Raises UsageError where all of a larger budget is used already.
    """
    if request.extends:
        is_resumed = any(
            each.is_stopped and each.extension_s == request.budget_s for each in accounts
        )
        return None if is_resumed else request.budget_s
    if any(each.is_stopped for each in accounts):
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
    return request.budget_s - used_s


class Shares:
    """Shares the time of a run among its studies, one after the other."""

    def __init__(self, request: Request, accounts: Sequence[Account]) -> None:
        """accounts: after an extension was opened, if one was."""
        self._accounts = accounts
        open_s = [each.extension_s or 0.0 for each in accounts if not each.is_finished]
        before_s = 0.0 if request.extends else sum(each.began_at_s for each in accounts)
        # resumed by a command that grants less, an extension keeps what it has
        self._left_s = max(request.budget_s - before_s, *open_s, 0.0)

    def total_s(self, number: int) -> float:
        """Return what a study may use up to, in all of its sessions; number: from 0."""
        n_left = len(self._accounts) - number
        return self._accounts[number].began_at_s + max(1.0, self._left_s / n_left)

    def use(self, number: int, used_s: float) -> None:
        """Take in what a study has used, in all of its sessions."""
        self._left_s -= used_s - self._accounts[number].began_at_s


def check_continued(request: Request, folders: Iterable[Path]) -> None:
    """Raise UsageError where --extend has no study to go on with."""
    missing = [folder for folder in folders if opened_in(folder) is None]
    if request.extends and missing:
        raise UsageError(
            f"--extend goes on with a study, and there is none in {missing[0]}: give the options "
            "that it was begun with, or --budget to begin one"
        )


def check_round(
    request: Request, extension_s: float | None, passed_s: float, launches_s: Sequence[float]
) -> None:
    """Raise UsageError where nothing could be compared, with the least budget that holds a round.

    extension_s: of the extension that is opened, if any. passed_s: since the command was given.
    launches_s: what a launch of the default takes at the least, of each study that is begun or
    gone on with.
    """
    seconds = request.budget_s if extension_s is None else extension_s
    least_s = passed_s + _LAUNCHES * sum(launches_s)
    if not launches_s or seconds >= least_s:
        return
    given = "--extend" if request.extends else "--budget"
    enough_s = math.ceil(request.budget_s - seconds + _MARGIN * least_s)
    raise UsageError(
        f"{given} {request.budget_s:g}s is too short to measure anything: the first round of "
        f"launches takes {least_s:.2g} s here, with what precedes it; give at least {enough_s}s, "
        "and some minutes for a verdict"
    )


def going_on(command: str) -> str:
    """Return the command that goes on with a study for ten minutes; of a Python call, how."""
    if not command.startswith("tune-framework"):
        return "the same call with extend='10m' in the place of budget"
    words, kept = iter(shlex.split(command)), []
    for word in words:
        if word in _GIVEN:
            next(words, None)
        elif not re.match(rf"({'|'.join(_GIVEN)})=", word):
            kept.append(word)
    return shlex.join([*kept, "--extend", "10m"])
