"""A study: its store, its bench and what it knows, shared by the phases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tuner.measurement.bench import Bench
from tuner.record.configuration import Configuration
from tuner.record.events import BestSoFar, Listener, PhaseBegins, TimeLeft, Warned
from tuner.record.journal import (
    FinalistNamed,
    Phase,
    PhaseDone,
    TrialNoted,
    WarningNoted,
    WinnerClass,
)
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.search.proposals import Belief, Proposal
from tuner.search.search import Search
from tuner.space.baselines import Baseline, to_measure
from tuner.space.catalogue import allowed_in, winner_class
from tuner.space.knobs_of.launch import BATCH
from tuner.space.space import Space
from tuner.study.budget import Budget
from tuner.study.costs import Costs
from tuner.study.leaders import is_default
from tuner.study.ledger import Ledger
from tuner.study.preference import Preference, preference_of

LONG_BUDGET_S = 1800.0
"""From here on every baseline is confirmed and the recommendation is minimal within 1 %."""
NO_TIME = "the budget left no time"
TURNS = (WinnerClass.SAME, WinnerClass.REDUCED, WinnerClass.LAUNCH_ONLY)
"""The winner classes in the order of their turns: what ships by default comes first."""
MIN_ROUNDS = 4
HOPELESS = 0.5
"""Of what the default is worth: a proposal worse than this is not measured to its end."""
_CLEARLY_SLOWER = 0.1
_SURELY = 4.0
"""A first slice is enough of what is worse (log) than the best of its class by the
former, and by so many standard errors."""
_NEARLY_BEST = 0.05
"""A default this close (log) to the default's best batch may yet be the best."""


class Study:
    """What the phases work on. Every phase asks the store what is done already."""

    def __init__(
        self,
        store: Store,
        space: Space,
        baselines: list[Baseline],
        bench: Bench,
        ledger: Ledger,
        costs: Costs,
        search: Search,
        budget: Budget,
        listen: Listener,
        widest: WinnerClass = WinnerClass.SAME,
        *,
        turns: tuple[WinnerClass, ...] = TURNS,
    ) -> None:
        self.store = store
        self.space = space
        self.baselines = baselines
        self.bench = bench
        self.ledger = ledger
        self.costs = costs
        self.search = search
        self.budget = budget
        self.listen = listen
        self.widest = widest
        """The widest class whose winner may ship: baselines beyond it are no match for it."""
        self.turns = turns
        """The questions that are explored, in the order of their turns."""
        self._beliefs: dict[Configuration, Belief] = {}
        self._believed_at = (-1, -1)

    @property
    def preference(self) -> Preference:
        """What is asked of a winner beside its value."""
        return preference_of(self.ledger.objective)

    # ---------------------------------------------------------------- phases

    def is_done(self, phase: Phase) -> bool:
        """Tell whether a phase was finished, in this session or an earlier one."""
        return any(note.phase is phase for note in self.store.all(PhaseDone))

    def enter(self, phase: Phase, detail: str) -> None:
        """Announce a phase."""
        self.listen(PhaseBegins(str(phase), detail))

    def done(self, phase: Phase, reason: str) -> None:
        """Note that a phase is finished."""
        self.store.add(PhaseDone(phase, reason))

    def warn(self, text: str) -> None:
        """Note a warning that travels with the result, once."""
        if all(note.text != text for note in self.store.all(WarningNoted)):
            self.store.add(WarningNoted(text))
            self.listen(Warned(text))

    def leave_undone(self, what: str) -> None:
        """Note what the budget has no time for ("to ..."); one line tells all of it at the end."""
        self.store.add(WarningNoted(f"{NO_TIME} {what}"))

    # ---------------------------------------------------------------- measuring

    def measure(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        may_prune: bool = False,
        beside_neighbour: bool = False,
    ) -> LaunchRecord:
        """Measure one launch of a configuration; with `may_prune`, not to its end if hopeless.

        beside_neighbour: at its end also beside a synthetic busy neighbour.
        """
        self.start_pacer()
        began_s = self.budget.used_s()
        hopeless = self._hopeless_below(configuration) if may_prune else -math.inf
        record = self.bench.measure(
            configuration,
            purpose,
            noise=self.ledger.estimates.scatter,
            hopeless_below=hopeless,
            beside_neighbour=beside_neighbour,
        )
        self.costs.note_overhead(self.budget.used_s() - began_s - record.total_s)
        self.ledger.refresh()
        self.listen(TimeLeft(self.budget.left_s()))
        return record

    def _hopeless_below(self, configuration: Configuration) -> float:
        """Return the worth below which a first slice is enough: it cannot lead its own class.

        The class of configurations that are allowed wherever it is; far below the default nothing
        is worth more either.
        """
        default = self.ledger.leaders.default_at_best()
        leader = self.beliefs().get(self.standing(winner_class(configuration)))
        if default is None or leader is None:
            return -math.inf
        scatter = self.ledger.estimates.scatter
        noise = math.hypot(self.ledger.estimates.launch_sd, scatter.within, leader.sd)
        hopeless = default[1] + math.log(HOPELESS)
        if not self.preference.bears_neighbours:  # else what is behind a leader that collapses wins
            hopeless = max(hopeless, leader.mean - max(_CLEARLY_SLOWER, _SURELY * noise))
        # scores have the machine's drift taken out, a slice that is measured now has not
        return hopeless + self.ledger.estimates.swing(self.bench.pacer_block())

    def start_pacer(self) -> None:
        """Make sure that a pacer runs, if one may; after one was replaced, measure anchors.

        The anchors are measured beside both pacers: scores of both their times then compare.
        """
        if self.bench.has_pacer():
            return
        if not self.bench.pacer_block():
            self.warn(f"no pacer stays resident ({self.bench.why_no_pacer}): search scores carry "
                      "the machine's drift")  # fmt: skip
            return
        leaders = (
            self.ledger.leaders.default_at_best(),
            self.ledger.leaders.best_in(WinnerClass.REDUCED),
        )
        for configuration in dict.fromkeys(found[0] for found in leaders if found is not None):
            noise = self.ledger.estimates.scatter
            self.bench.measure(configuration, Purpose.ANCHOR, noise=noise)
        self.ledger.refresh()

    def adopt_orphans(self) -> None:
        """Tell the trials of launches that a killed tool had completed but not yet noted."""
        told = {launch for trial in self.ledger.trials() for launch in trial.launches}
        for record in list(self.store.launches.values()):
            request, ending = record.request, record.ending
            if request.purpose not in (Purpose.BASELINE, Purpose.SEARCH) or request.id in told:
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
            score = self.ledger.score(proposal.configuration)
        elif ending.outcome is Outcome.PRUNED and record.clean_slice is not None:
            score = self.ledger.estimates.corrected(record)  # to learn from, never to win with
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
        if why := self.ledger.eligible.over_bound(proposal.configuration):
            outcome, reason, score = Outcome.OVER_BOUND, why, None
        self.search.tell(proposal, outcome, reason, score)
        leader = self.ledger.leaders.best_in(WinnerClass.REDUCED)
        if leader is not None:
            ratio = self.ledger.ratio(leader[0])
            if ratio is not None:
                self.listen(BestSoFar(leader[0].label(), ratio))

    # ---------------------------------------------------------------- finalists and their cost

    def finalists(self) -> dict[WinnerClass, Configuration]:
        """Return the latest finalist of each class; before the race, who would be it now."""
        found: dict[WinnerClass, Configuration] = {}
        for klass in WinnerClass:
            named = [n for n in self.store.all(FinalistNamed) if n.klass is klass]
            found[klass] = named[-1].configuration if named else self.candidate(klass)
        return found

    def candidate(
        self, klass: WinnerClass, allows: Callable[[Configuration], bool] = lambda _: True
    ) -> Configuration:
        """Return what a class would confirm: its best beside the default, if it may be better.

        Even where the default leads: that nothing is better is for the confirmation to say. What is
        known to be out of the question is passed over.
        """

        def may_be(c: Configuration) -> bool:
            return allows(c) and not self.ledger.eligible.refusal(c)

        challenger = self.ledger.leaders.challenger(klass, may_be, self.believed())
        default = self.ledger.leaders.default_at_best()
        return challenger or (default[0] if default else Configuration())

    def believed(self) -> dict[Configuration, float]:
        """Return what is believed of everything measured to its end (worths).

        Not the scores alone: of many, the highest was lucky, and what is alike tells by how much.
        """
        return {c: belief.mean for c, belief in self.beliefs().items()}

    def beliefs(self) -> dict[Configuration, Belief]:
        """Return the same with by how much each may be off."""
        now = self.ledger.version, len(self.ledger.trials())
        if now != self._believed_at:  # asked for many times between two launches
            self._believed_at = now
            measured = list(self.ledger.leaders.measured(WinnerClass.REDUCED))
            found = self.search.beliefs(measured) if measured else []
            self._beliefs = dict(zip(measured, found, strict=True))
        return self._beliefs

    def standing(self, klass: WinnerClass) -> Configuration:
        """Return what a class would recommend if nothing more were measured; maybe the default."""
        believed = self.believed()
        allowed = [c for c in believed if allowed_in(klass, c)]
        return max(allowed, key=believed.__getitem__, default=Configuration())

    def best_baseline(self) -> Configuration | None:
        """Return the baseline that scored best, at its best batch; None if there is none.

        Of those that keep the numerics, where the winner has to: the others are no match for it.
        """
        bare = [
            b.configuration
            for b in self.baselines
            if b.is_applicable and not b.same_as and allowed_in(self.widest, b.configuration)
        ]
        at_batches = [self.ledger.at_batch(c, batch) for c in bare for batch in self.ledger.batches]
        found = self.ledger.leaders.best([c for c in at_batches if self.ledger.eligible.may_win(c)])
        return self._as_finalists([found[0]])[0] if found else None

    def _as_finalists(self, baselines: Iterable[Configuration]) -> list[Configuration]:
        """Return for each baseline the finalist that is it, perhaps at another batch; else itself.

        Finalists are chosen by what is believed, not by the score: none is confirmed at two batches
        for being both.
        """
        finalists = {f.without(BATCH): f for f in self.finalists().values()}
        return [finalists.get(c.without(BATCH), c) for c in baselines]

    def baseline_name(self, configuration: Configuration) -> str | None:
        """Return the name of the baseline that a configuration is, at whatever batch."""
        named = (b for b in self.baselines if b.is_applicable and not b.same_as)
        bare = configuration.without(BATCH)
        return next((b.name for b in named if b.configuration == bare), None)

    def baselines_to_confirm(self) -> list[Configuration]:
        """Return the baselines to confirm, the best first; below 30 minutes only that one."""
        best, ledger = self.best_baseline(), self.ledger
        found = [] if best is None else [best]
        if self.budget.total_s >= LONG_BUDGET_S:
            at_their_best = [
                ledger.leaders.best(
                    [ledger.at_batch(baseline.configuration, b) for b in ledger.batches]
                )
                for baseline in to_measure(self.baselines)
            ]
            scored = [pair for pair in at_their_best if pair is not None]
            found += self._as_finalists(c for c, _ in sorted(scored, key=lambda pair: -pair[1]))
        return list(dict.fromkeys(found))

    def removals(self, configuration: Configuration) -> dict[str, Configuration]:
        """Return, per setting that may go, what the configuration is without it."""
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

    def confirmation_arms(
        self, candidates: Iterable[Configuration | None], *, at_reference: bool = False
    ) -> list[Configuration]:
        """Return what a confirmation round launches, the default's arms first.

        The default at its best batch, and at every batch at which it may yet be the best. With
        `at_reference`, what is tuned at another batch also at the reference batch: for the gain
        that is not the batch's.
        """
        ledger = self.ledger
        default = ledger.leaders.default_at_best()
        arms = [default[0] if default else Configuration()]
        for batch in ledger.batches:
            at_batch = ledger.at_batch(Configuration(), batch)
            score = ledger.score(at_batch)
            if default and score is not None and score > default[1] - _NEARLY_BEST:
                arms.append(at_batch)
        for candidate in candidates:
            if candidate is not None and not is_default(candidate):
                arms.append(candidate)
                at_batch = ledger.at_batch(candidate, ledger.reference_batch)
                if at_reference:
                    arms += [at_batch, Configuration()]
        return list(dict.fromkeys(arms))

    def beats_default(self, configuration: Configuration) -> bool:
        """Tell whether a configuration scored above the default at its best batch."""
        default, score = self.ledger.leaders.default_at_best(), self.ledger.score(configuration)
        return (
            not is_default(configuration)
            and default is not None
            and score is not None
            and score > default[1]
        )
