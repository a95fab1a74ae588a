"""The candidates of each winner class: the surrogate's estimates, and the finalists."""

from __future__ import annotations

from collections.abc import Callable

from tuner.record.configuration import Configuration
from tuner.record.journal import FinalistNamed
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.search.proposals import Belief
from tuner.search.search import Search
from tuner.space.catalogue import allowed_in
from tuner.study.evaluation import Evaluation
from tuner.study.leaders import challenger


class Candidates:
    """The candidates of the winner classes."""

    def __init__(self, store: Store, evaluation: Evaluation, search: Search) -> None:
        self._store = store
        self._evaluation = evaluation
        self._search = search
        self._beliefs: dict[Configuration, Belief] = {}
        self._believed_at = (-1, -1)

    def finalists(self) -> dict[WinnerClass, Configuration]:
        """Return the finalist of each class; before the race, the present candidate."""
        found: dict[WinnerClass, Configuration] = {}
        for winner_class in WinnerClass:
            named = [
                n for n in self._store.current(FinalistNamed) if n.winner_class is winner_class
            ]
            found[winner_class] = named[-1].configuration if named else self.candidate(winner_class)
        return found

    def candidate(
        self, winner_class: WinnerClass, allows: Callable[[Configuration], bool] = lambda _: True
    ) -> Configuration:
        """Return what a class would confirm: its best configuration that may beat the default.

        It may score below the default: only the confirmation can say that nothing is better.
        Configurations that cannot ship are skipped.
        """

        def may_be(c: Configuration) -> bool:
            return allows(c) and not self._evaluation.row(c).ship_fault

        best = challenger(self._evaluation, winner_class, may_be, self.believed())
        default = self._evaluation.default_at_best()
        return best or (default[0] if default else Configuration())

    def believed(self) -> dict[Configuration, float]:
        """Return the surrogate's estimate of the score of everything measured to its end.

        Scores alone mislead: the highest of many is lucky, and similar configurations show by how
        much.
        """
        return {c: belief.mean for c, belief in self.beliefs().items()}

    def beliefs(self) -> dict[Configuration, Belief]:
        """Return the same with by how much each may be off."""
        now = self._evaluation.version, len(self._evaluation.trials())
        if now != self._believed_at:  # asked for many times between two launches
            self._believed_at = now
            measured = list(self._evaluation.measured(WinnerClass.REDUCED_PRECISION))
            found = self._search.beliefs(measured) if measured else []
            self._beliefs = dict(zip(measured, found, strict=True))
        return self._beliefs

    def leader(self, winner_class: WinnerClass) -> Configuration:
        """Return what a class would recommend if the study ended now; it may be the default."""
        believed = self.believed()
        allowed = [c for c in believed if allowed_in(winner_class, c)]
        return max(allowed, key=believed.__getitem__, default=Configuration())
