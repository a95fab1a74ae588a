"""The Optuna study behind a study: ask and tell over configurations, in an SQLite file.

SQLite, because it survives kill -9 without a lock to break, and because Optuna's dashboard opens
it; one tool works on it at a time.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import RDBStorage
from optuna.trial import Trial, TrialState
from sqlalchemy import URL

from tuner import interrupts
from tuner.record.configuration import Configuration
from tuner.record.journal import WinnerClass
from tuner.record.outcome import Outcome
from tuner.search.sampler import PortfolioSampler, Scores
from tuner.space.space import Space


class Proposal(msgspec.Struct, frozen=True):
    """A configuration to try, with the number of the Optuna trial that will be told."""

    number: int
    configuration: Configuration
    source: str


def _create_tables(path: Path) -> None:
    """Make Optuna's tables, all or none of them: a kill may come at any moment.

    Without their unique index, which comes last, the study is added a second time.
    """
    draft = path.with_name(f"{path.name}.new")
    for leftover in path.parent.glob(f"{path.name}[-.]*"):
        leftover.unlink()
    RDBStorage(_url(draft)).engine.dispose()
    draft.replace(path)


def _url(path: Path) -> str:
    return URL.create("sqlite", database=str(path)).render_as_string()


class Trials:
    """Ask for configurations and tell how they did. The value is a log rate, maximised."""

    @interrupts.held_back()
    def __init__(self, path: Path, space: Space, scores: Scores, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if not path.exists():
            _create_tables(path)
        self.sampler = PortfolioSampler(space, scores, seed)
        self._distributions = self.sampler.distributions()
        self._study = optuna.create_study(
            storage=RDBStorage(_url(path)),
            sampler=self.sampler,
            study_name="study",
            direction="maximize",
            load_if_exists=True,
        )
        self._open: dict[int, Trial] = {}
        self._close_what_a_killed_tool_left(scores)

    def _close_what_a_killed_tool_left(self, scores: Scores) -> None:
        """Tell trials that were noted but not told; those not measured are new again."""
        known = {c.label(): score for c, score in scores().items()}
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            label = trial.user_attrs.get("configuration")
            if label not in known:
                self._study.tell(trial.number, state=TrialState.FAIL)
            elif (score := known[label]) is not None:
                self._study.tell(trial.number, score)
            else:
                self._study.tell(trial.number, state=TrialState.PRUNED)

    @interrupts.held_back()
    def ask(self, klass: WinnerClass) -> Proposal:
        """Propose a new configuration that a class allows; raises Exhausted."""
        self.sampler.focus = klass
        configuration = self.sampler.propose(self._study)
        return self.ask_for(configuration, self.sampler.source)

    @interrupts.held_back()
    def ask_for(self, configuration: Configuration, source: str) -> Proposal:
        """Enter a configuration: what the search proposed, the default, or a baseline."""
        self.sampler.offer(configuration)
        trial = self._study.ask(fixed_distributions=self._within(configuration))
        trial.set_user_attr("configuration", configuration.label())
        trial.set_user_attr("source", source)
        self._open[trial.number] = trial
        return Proposal(trial.number, configuration, source)

    def _within(self, configuration: Configuration) -> dict[str, BaseDistribution]:
        """Return the knobs for which the configuration's value is one that is searched.

        A baseline may set what the user excluded from the search; it is measured all the same.
        """
        values = self.sampler.space.assignment(configuration)
        return {
            knob: distribution
            for knob, distribution in self._distributions.items()
            if isinstance(distribution, CategoricalDistribution)
            and values[knob] in distribution.choices
        }

    @interrupts.held_back()
    def tell(self, number: int, outcome: Outcome, reason: str, score: float | None) -> None:
        """Tell Optuna how a trial did.

        A failure is told as pruned, the worst there is: a sampler learns nothing from a trial
        that is told as failed.
        """
        trial = self._open.pop(number)
        trial.set_user_attr("outcome", str(outcome))
        if reason:
            trial.set_user_attr("reason", reason[:1000])
        if score is not None:
            self._study.tell(trial, score)
        else:
            self._study.tell(trial, state=TrialState.PRUNED)
