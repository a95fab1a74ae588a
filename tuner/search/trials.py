"""The Optuna study behind a study, in an SQLite file.

SQLite survives kill -9 without a lock to break, and Optuna's dashboard opens it; one process uses
it at a time. The study's journal is the truth: a damaged or missing file is made again from it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage, get_storage
from optuna.trial import TrialState, create_trial
from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from tuner import interrupts
from tuner.errors import StorageFailed
from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted
from tuner.record.outcome import Outcome
from tuner.record.winner_class import WinnerClass
from tuner.search.proposals import UNION, Proposal
from tuner.search.sampler import PortfolioSampler, Scores

_NAME = "study"
_FAILS = "fails"
"""The constraint that a configuration works: 1 if it failed. Optuna's samplers, best trial and
dashboard treat a violation as infeasible, not as slow."""


def _create_tables(path: Path) -> None:
    """Make Optuna's tables, all or none of them: a kill may come at any moment.

    Without their unique index, which comes last, the study is added a second time.
    """
    draft = path.with_name(f"{path.name}.new")
    for leftover in path.parent.glob(f"{path.name}[-.]*"):
        leftover.unlink()
    RDBStorage(_url(draft)).engine.dispose()
    draft.replace(path)


def _is_sound(path: Path, n_noted: int) -> bool:
    """Tell whether Optuna's file can be read and holds every noted trial."""
    try:
        with closing(sqlite3.connect(path)) as database:
            if database.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                return False
            (n_trials,) = database.execute("SELECT count(*) FROM trials").fetchone()
    except sqlite3.DatabaseError:
        return False
    return bool(n_trials >= n_noted)


def _url(path: Path) -> str:
    return URL.create("sqlite", database=str(path)).render_as_string()


@contextmanager
def _stored(path: Path) -> Iterator[None]:
    """Delay signals until Optuna's call has ended; raise StorageFailed if it cannot write.

    Optuna raises an error of its own for what SQLite refuses, whatever the reason.
    """
    try:
        with interrupts.held_back():
            yield
    except (SQLAlchemyError, StorageInternalError) as error:
        reason = getattr(error.__cause__ or error, "orig", None) or error
        raise StorageFailed(
            f"cannot write {path}: {reason}; everything measured so far is stored: free disk "
            "space, then run the same command to resume"
        ) from error


class Trials:
    """The trials of a sampler in Optuna's file. The value is a score, maximised.

    noted: every trial in the study's journal.
    """

    def __init__(
        self,
        path: Path,
        sampler: PortfolioSampler,
        scores: Scores,
        noted: Sequence[TrialNoted] = (),
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._path = path
        self._sampler = sampler
        self._distributions = sampler.distributions()
        n_noted = max((note.number + 1 for note in noted), default=0)
        is_there = path.exists()
        self.was_damaged = not _is_sound(path, n_noted) if is_there else n_noted > 0
        """Whether Optuna's file had to be made again."""
        with _stored(path):
            if self.was_damaged and is_there:
                path.replace(path.with_name(f"broken-{path.name}"))
            if not path.exists():
                _create_tables(path)
            self._storage = get_storage(_url(path))
            self._study = optuna.create_study(
                storage=self._storage,
                sampler=sampler,
                study_name=_NAME,
                direction="maximize",
                load_if_exists=True,
            )
            if self.was_damaged:
                self._restore({note.number: note for note in noted}, scores())
            self._id = self._storage.get_study_id_from_name(_NAME)
            self._open: dict[int, int] = {}  # trial numbers to what the storage calls them
            self._close_what_a_killed_tool_left(scores)

    def _restore(
        self, noted: Mapping[int, TrialNoted], scores: Mapping[Configuration, float | None]
    ) -> None:
        """Enter every noted trial under its number; what lay between was never measured."""
        for number in range(max(noted, default=-1) + 1):
            if (note := noted.get(number)) is None:
                self._study.add_trial(create_trial(state=TrialState.FAIL))
                continue
            within = self._within(note.configuration)
            values = self._sampler.space.assignment(note.configuration)
            score = scores.get(note.configuration)
            self._study.add_trial(
                create_trial(
                    state=TrialState.PRUNED if score is None else TrialState.COMPLETE,
                    value=score,
                    params={knob: values[knob] for knob in within},
                    distributions=within,
                    constraints={_FAILS: 1.0} if score is None else None,
                    user_attrs={
                        "configuration": note.configuration.label(),
                        "source": note.source,
                        "outcome": str(note.ending.outcome),
                        "reason": note.ending.reason[:1000],
                    },
                )
            )

    def _close_what_a_killed_tool_left(self, scores: Scores) -> None:
        """Complete trials that were noted but not told; those not measured are new again."""
        known = {c.label(): score for c, score in scores().items()}
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            label = trial.user_attrs.get("configuration")
            if label not in known:
                self._study.tell(trial.number, state=TrialState.FAIL)
            else:
                self._close(trial.number, known[label])

    def _close(self, number: int, score: float | None) -> None:
        """Tell Optuna a score, or that there is none.

        A failure is told as pruned: a sampler learns nothing from a trial told as failed.
        """
        if score is not None:
            self._study.tell(number, score)
        else:
            trial = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
            trial_object = optuna.trial.Trial(self._study, trial)
            if _FAILS not in trial_object.constraints:  # a kill may have come in between
                trial_object.set_constraint(_FAILS, 1.0)
            self._study.tell(number, state=TrialState.PRUNED)

    def propose(self, winner_class: WinnerClass) -> Proposal:
        """Enter a new configuration that a class allows, of the sampler's; raises Exhausted."""
        self._sampler.focus = winner_class
        with _stored(self._path):
            configuration = self._sampler.propose(self._study)
        return self.enter(configuration, self._sampler.source)

    def unite(self, winner_class: WinnerClass) -> Proposal | None:
        """Enter a combination of what gained, allowed by a class; None if nothing is left."""
        self._sampler.focus = winner_class
        found = self._sampler.united()
        return None if found is None else self.enter(found, UNION)

    def enter(self, configuration: Configuration, source: str) -> Proposal:
        """Enter a configuration: a proposal, the default, or a baseline.

        As a running trial with all parameters at once. Study.ask enters them one by one, each in
        its own transaction, which takes longer than proposing.
        """
        within = self._within(configuration)
        values = self._sampler.space.assignment(configuration)
        running = create_trial(
            state=TrialState.RUNNING,
            params={knob: values[knob] for knob in within},
            distributions=within,
            user_attrs={"configuration": configuration.label(), "source": source},
        )
        with _stored(self._path):
            trial = self._storage.create_new_trial(self._id, running)
            number = self._storage.get_trial_number_from_id(trial)
        self._open[number] = trial
        return Proposal(number, configuration, source)

    def _within(self, configuration: Configuration) -> dict[str, BaseDistribution]:
        """Return the knobs whose value in the configuration is one that is searched.

        A baseline may set what the user excluded from the search; it is measured all the same.
        """
        values = self._sampler.space.assignment(configuration)
        return {
            knob: distribution
            for knob, distribution in self._distributions.items()
            if isinstance(distribution, CategoricalDistribution)
            and values[knob] in distribution.choices
        }

    def tell(self, number: int, outcome: Outcome, reason: str, score: float | None) -> None:
        """Tell Optuna how a trial did: a failure as one that violates a constraint."""
        trial = self._open.pop(number)
        with _stored(self._path):
            self._storage.set_trial_user_attr(trial, "outcome", str(outcome))
            if reason:
                self._storage.set_trial_user_attr(trial, "reason", reason[:1000])
            self._close(number, score)


@contextmanager
def study_in(path: Path) -> Iterator[tuple[str, RDBStorage]]:
    """Yield the name of the study in a finished study's file, and the file as Optuna opens it."""
    storage = RDBStorage(_url(path))
    try:
        yield _NAME, storage
    finally:
        storage.remove_session()
        storage.engine.dispose()
