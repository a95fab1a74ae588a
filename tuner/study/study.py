"""A study: its store, bench and evaluation, which the phases share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence

from tuner.measurement.bench import Bench
from tuner.record.configuration import Configuration
from tuner.record.events import BestSoFar, Listener, TimeLeft
from tuner.record.journal import TrialNoted
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.search.proposals import Proposal
from tuner.search.search import Search
from tuner.search.terminator import SearchState
from tuner.space.baselines import Baseline
from tuner.space.catalogue import class_title, is_default, narrowest_class
from tuner.space.space import Space
from tuner.study.candidates import Candidates, best_in
from tuner.study.costs import Budget, Costs
from tuner.study.evaluation import Evaluation
from tuner.study.notes import Notes
from tuner.study.preference import Preference, preference_of
from tuner.study.resource_costs import CostRule

LONG_BUDGET_S = 1800.0
"""Of an extent. From here on every baseline is confirmed, and the recommendation is minimal within
1 %."""
CLASS_ORDER = (WinnerClass.SAME_PRECISION, WinnerClass.REDUCED_PRECISION, WinnerClass.NO_CODE)
"""The winner classes in the order of their turns: the one that is recommended by default comes
first."""
MOST_AT_ONCE = 4
"""Launches prepared in parallel, whatever the number of cores. Each is chosen without the results
of the others, and without knowing what they cost."""
_FEW_LAUNCHES = 5
"""Launches of the default: with less time than these take, nothing is launched in parallel."""
PRUNE_RATIO = 0.5
"""Share of the default's speed: a proposal slower than this is not measured to its end."""
_CLEARLY_WORSE = 0.1
"""Logarithm. Stop a launch after its first slice if it is this much worse than the leader of its
class: 34 where the leader reaches 38 items/s."""
_PRUNE_Z = 4.0
"""Standard errors that this gap must be wide as well: one slice alone is noisy."""


class Study:
    """What the phases work on. Every phase reads from the store what is already done."""

    def __init__(
        self,
        store: Store,
        space: Space,
        baselines: list[Baseline],
        bench: Bench,
        evaluation: Evaluation,
        costs: Costs,
        search: Search,
        budget: Budget,
        listen: Listener,
        widest: WinnerClass = WinnerClass.SAME_PRECISION,
        *,
        turns: tuple[WinnerClass, ...] = CLASS_ORDER,
        guesses: Sequence[Configuration] = (),
    ) -> None:
        self.store = store
        self.space = space
        self.baselines = baselines
        self.bench = bench
        self.evaluation = evaluation
        self.costs = costs
        self.search = search
        self.budget = budget
        self.listen = listen
        self.notes = Notes(store, listen)
        self.candidates = Candidates(store, evaluation, search)
        self.widest = widest
        """The widest class that may be recommended. Baselines beyond it do not compete with it."""
        self.turns = turns
        """The questions that are explored, in the order of their turns."""
        self.guesses = guesses
        """What guidelines expect to be fastest, of each class one: measured after the default."""

    @property
    def preference(self) -> Preference:
        """What the goal asks of a winner besides its value."""
        return preference_of(self.evaluation.objective)

    @property
    def cost_rule(self) -> CostRule:
        """Which increases of memory and latency are costly here."""
        return CostRule(self.evaluation.objective, self.bench.memory_bytes)

    @property
    def is_long(self) -> bool:
        """Whether every baseline is confirmed, and the recommendation minimal within 1 %."""
        return self.budget.granted_s >= LONG_BUDGET_S

    @property
    def is_short_of_time(self) -> bool:
        """Whether hardly more than the default fits: its launch, a pacer's and another, paced."""
        return self.budget.left_s() < _FEW_LAUNCHES * self.costs.least_launch_s

    @property
    def most_together(self) -> int:
        """The number of launches that are chosen before the first of them is measured, at most."""
        if self.is_short_of_time:
            return 1
        return min(MOST_AT_ONCE, self.bench.launcher.most_together)

    def measure(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        may_prune: bool = False,
        beside_neighbour: bool = False,
    ) -> LaunchRecord:
        """Measure one launch of a configuration. With `may_prune`, stop it early if it is hopeless.

        beside_neighbour: measure its last slice next to a synthetic busy neighbour too.
        """
        self.start_pacer()
        began_s = self.budget.used_s()
        hopeless = self._hopeless_below(configuration) if may_prune else -math.inf
        record = self.bench.measure(
            configuration,
            purpose,
            noise=self.evaluation.estimates.scatter,
            hopeless_below=hopeless,
            beside_neighbour=beside_neighbour,
        )
        self.costs.note_overhead(self.budget.used_s() - began_s - record.total_s)
        self._take_in()
        return record

    def measure_several(
        self, configurations: Sequence[Configuration], purpose: Purpose, *, may_prune: bool = False
    ) -> list[LaunchRecord]:
        """Measure one launch of each, prepared in parallel if possible (Bench).

        may_prune: stop hopeless ones early.
        """
        self.start_pacer()
        began_s = self.budget.used_s()
        records = self.bench.measure_several(
            configurations,
            purpose,
            noise=self.evaluation.estimates.scatter,
            hopeless_below=self._hopeless_below if may_prune else lambda _: -math.inf,
        )
        contended_s = self.budget.used_s() - began_s - sum(record.total_s for record in records)
        for _ in records:
            self.costs.note_overhead(contended_s / len(records))
        self._take_in()
        return records

    def measure_round(
        self,
        arms: list[Configuration],
        number: int,
        purpose: Purpose,
        *,
        seconds: float = math.inf,
        beside_neighbour: bool = False,
        checks: bool = False,
        profiled: Collection[Configuration] = (),
    ) -> list[LaunchRecord]:
        """Measure one fresh launch of every arm, side by side (Bench.measure_round)."""
        records = self.bench.measure_round(
            arms,
            number,
            purpose,
            noise=self.evaluation.estimates.scatter,
            seconds=seconds,
            beside_neighbour=beside_neighbour,
            checks=checks,
            profiled=profiled,
        )
        self._take_in()
        return records

    def _take_in(self) -> None:
        """Evaluate what was just measured, and report the time that is left."""
        self.evaluation.refresh()
        self.listen(TimeLeft(self.budget.left_s()))

    def _hopeless_below(self, configuration: Configuration) -> float:
        """Return the score below which one slice is enough: it cannot lead its class.

        Its class is the narrowest that allows it. A configuration far below the default is hopeless
        too.
        """
        default = self.evaluation.default_at_best()
        leader = self.candidates.beliefs().get(
            self.candidates.leader(narrowest_class(configuration))
        )
        if default is None or leader is None:
            return -math.inf
        scatter = self.evaluation.estimates.scatter
        noise = math.hypot(self.evaluation.estimates.launch_sd, scatter.within, leader.sd)
        hopeless = default[1] + math.log(PRUNE_RATIO)
        if not self.preference.bears_neighbours:  # else what is behind a leader that collapses wins
            hopeless = max(hopeless, leader.mean - max(_CLEARLY_WORSE, _PRUNE_Z * noise))
        # scores have the machine's drift taken out, a slice that is measured now has not
        return hopeless + self.evaluation.estimates.swing(self.bench.pacer.block())

    def start_pacer(self) -> None:
        """Start a pacer if none runs and one may; after a replacement, measure anchors.

        Anchors are measured with both pacers, so that scores of both times can be compared.
        """
        if self.bench.pacer.is_running:
            return
        if self.is_short_of_time:
            self.bench.pacer.do_without("the budget is too short for more launches")
        if not self.bench.pacer.block():
            self.notes.warn(
                f"no pacer stays resident ({self.bench.pacer.why_none}): search scores carry the "
                "machine's drift"
            )
            return
        leaders = (
            self.evaluation.default_at_best(),
            best_in(self.evaluation, WinnerClass.REDUCED_PRECISION),
        )
        for configuration in dict.fromkeys(found[0] for found in leaders if found is not None):
            noise = self.evaluation.estimates.scatter
            self.bench.measure(configuration, Purpose.ANCHOR, noise=noise)
        self.evaluation.refresh()

    def adopt_orphans(self) -> None:
        """Tell the trials of launches that a killed tool had completed but not yet noted."""
        known = {launch for trial in self.evaluation.trials() for launch in trial.launches}
        for record in list(self.store.launches.values()):
            request, ending = record.request, record.ending
            if request.purpose not in (Purpose.BASELINE, Purpose.SEARCH) or request.id in known:
                continue
            if ending is None or ending.outcome is Outcome.INTERRUPTED:
                continue
            source = "default" if is_default(request.configuration) else "resumed"
            self.tell(self.search.enter(request.configuration, source), record)

    def tell(self, proposal: Proposal, record: LaunchRecord) -> None:
        """Close a trial: note it, tell Optuna, say who leads."""
        ending = record.ending or Ending(Outcome.MEASURED)
        score = None
        if ending.outcome is Outcome.MEASURED:
            score = self.evaluation.score(proposal.configuration)
        elif ending.outcome is Outcome.PRUNED and record.clean_slice is not None:
            score = self.evaluation.estimates.corrected(record)  # to learn from, never to win with
        self.store.add(
            TrialNoted(
                proposal.number,
                proposal.configuration,
                proposal.source,
                ending,
                (record.request.id,),
                score,
            )
        )
        outcome, reason = ending.outcome, ending.reason
        if why := self.evaluation.row(proposal.configuration).over_bound:
            outcome, reason, score = Outcome.OVER_BOUND, why, None
        self.search.tell(proposal, outcome, reason, score)
        self._name_leaders()

    def _name_leaders(self) -> None:
        """Say which configuration of each class is above the default, if any is."""
        for winner_class in WinnerClass:
            leader = best_in(self.evaluation, winner_class)
            if (
                leader is None
                or is_default(leader[0])
                or narrowest_class(leader[0]) is not winner_class
            ):
                continue
            ratio = self.evaluation.ratio(leader[0])
            if ratio is not None and ratio > 1:
                name = class_title(winner_class, leader[0])
                self.listen(BestSoFar(leader[0].label(), ratio, winner_class, name))

    def search_state(self) -> SearchState:
        """Return how the study stands, as far as the search asks to settle a class."""
        evaluation = self.evaluation
        leaders = {winner_class: best_in(evaluation, winner_class) for winner_class in self.turns}
        return SearchState(
            leaders={
                winner_class: best for winner_class, best in leaders.items() if best is not None
            },
            floor=evaluation.floor,
            launch_sd=evaluation.estimates.launch_sd,
            used_s=self.budget.used_s(),
            launch_s=lambda: statistics.fmean(
                self.costs.launch_s(t.configuration) for t in evaluation.trials()
            ),
        )

    def removals(self, configuration: Configuration) -> dict[str, Configuration]:
        """Return the configuration without each setting that may be removed, by setting."""
        shorter = {
            knob: self.space.canonical(configuration.without(knob).as_dict())
            for knob, _ in configuration.settings
        }
        return {knob: c for knob, c in shorter.items() if not self.space.refused(c)}

    def n_proposed(self) -> int:
        """Return how many proposals were measured."""
        records = self.store.launches.values()
        searched = (r.request for r in records if r.request.purpose is Purpose.SEARCH)
        return len({request.configuration for request in searched})
