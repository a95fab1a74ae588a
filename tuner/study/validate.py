"""MLPerf's LoadGen on the rates that are claimed: a second opinion, by somebody else's program."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.launchers.loadgen import MISSING, is_installed
from tuner.record.configuration import Configuration
from tuner.record.journal import ValidationNoted
from tuner.record.serving import Validation
from tuner.record.store import Store
from tuner.study.confirm import make_claims
from tuner.study.loadgen import has_loadgen_to_ask
from tuner.study.steps import LoadgenRun, NoTime, Steps, ask
from tuner.study.study import Study

_MOST_AT_A_RATE = 3
"""Runs at one rate, if those that were too slow were disturbed."""
_LOWER, _LOWEST = 0.9, 0.5
"""The next rate to test after one that was too slow, and the lowest one."""


def validations_of(store: Store, configuration: Configuration) -> list[Validation]:
    """Return LoadGen's results for a configuration, in their order."""
    return [n.validation for n in store.all(ValidationNoted) if n.configuration == configuration]


def validate(study: Study, winners: list[Configuration]) -> Steps[None]:
    """Let LoadGen test the lower bounds of the winner's and the default's rates, once each.

    While time is left. If it cannot (because it is not installed, for example), the reason is
    noted.
    """
    if not has_loadgen_to_ask(study):
        return
    if not is_installed():
        study.notes.warn(f"LoadGen did not test the rates: {MISSING}")
        return
    claims = make_claims(study)
    for configuration in dict.fromkeys([*winners[:1], claims.default]):
        value, (met, n) = claims.rounds.value(configuration), claims.rounds.n_met(configuration)
        is_known = bool(validations_of(study.store, configuration))
        if is_known or value is None or met < n:
            continue
        if not (yield from _ask(study, configuration, value.low)):
            study.notes.leave_undone("to ask LoadGen about the rates")


def validate_further(study: Study, winners: list[Configuration]) -> Steps[None]:
    """Test again what was too slow: the same rate if it was disturbed, otherwise a lower one.

    In the time that everything else leaves.
    """
    if study.evaluation.objective.slo is None or not is_installed():
        return
    for configuration in dict.fromkeys([*winners[:1], make_claims(study).default]):
        while rate := next_asked(validations_of(study.store, configuration)):
            if not (yield from _ask(study, configuration, rate)):
                break


def next_asked(validations: Sequence[Validation]) -> float | None:
    """Return the next rate for LoadGen to test; None if it is done."""
    if not validations or not validations[-1].is_too_slow:
        return None
    last = validations[-1]
    n_here = sum(each.rate == last.rate for each in validations)
    if last.disturbed and n_here < _MOST_AT_A_RATE:  # as a disturbed trial is made again
        return last.rate
    lower = _LOWER * last.rate
    return lower if lower >= _LOWEST * validations[0].rate else None


def _ask(study: Study, configuration: Configuration, rate: float) -> Steps[bool]:
    """Test a rate, and note the result; return whether there was time."""
    found = yield from ask(LoadgenRun(configuration, rate))
    if isinstance(found, NoTime):
        return False
    study.store.add(ValidationNoted(configuration, found))
    return True
