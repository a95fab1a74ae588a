"""A whole study on a recorded table: its space, its launches, its clock.

Everything above the launches is the tool's own: baselines, exploring, the race, the confirmation.
Not replayed are the memory model (a recorded launch that ran out of memory ran out of it),
minimising (in a table, a recommendation without some settings is another row that competes anyway)
and slices next to a busy neighbour. Like its rivals, the study looks for the fastest configuration
of all, precision included: it explores and races that one class. What counts is its leader at any
time, whatever the confirmation then says.

In a foreign table a launch is as many equal slices as a study takes at the least, which share its
recorded seconds: of what is dropped after a first slice, a third of the measuring is paid.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.deck import Deck, DeckSource
from benchmarks.recorded_bench import recorded_bench
from benchmarks.score import Run, Step
from benchmarks.table import Table
from tuner.launchers.recorded import SideBySide
from tuner.record.configuration import Configuration, Value
from tuner.record.journal import Phase, PhaseDone
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import ModelCard
from tuner.search.proposals import Proposal
from tuner.search.search import Search
from tuner.search.transfer import Earlier
from tuner.space.baselines import Baseline
from tuner.space.catalogue import describe
from tuner.space.knobs_of.launch import BATCH
from tuner.space.resolved_knob import ResolvedKnob
from tuner.space.space import Space
from tuner.study.baselines import measure_baselines
from tuner.study.confirm import confirm
from tuner.study.costs import Budget, Costs
from tuner.study.evaluation import Evaluation
from tuner.study.explore import explore
from tuner.study.planner import Planner
from tuner.study.race import race
from tuner.study.study import Study

REDUCED = WinnerClass.REDUCED_PRECISION
SEARCHING = (measure_baselines, explore, race)
PHASES = (*SEARCHING, confirm)
"""What a study on a table goes through, in this order."""


class TabledSpace(Space):
    """The space of a table. A configuration of it holds what differs from `start`.

    start: the values of the default; a foreign table has none, and any working configuration may
    stand for it.
    """

    def __init__(self, table: Table, start: tuple[Value, ...]) -> None:
        self._table = table
        self._start = dict(zip(table.knobs, start, strict=True))
        super().__init__(
            [
                ResolvedKnob(describe(k), self._start[k], choices, choices, (), "", "")
                for k, choices in table.choices.items()
            ],
            {},
        )
        self._from_row: dict[Configuration, Configuration] = {}
        self._rows: dict[Configuration, Configuration] = {}
        for row in table.launches:
            if row not in self._from_row:
                mine = self._differing(dict(zip(table.knobs, table.values(row), strict=True)))
                self._from_row[row] = mine
                self._rows[mine] = row

    def _differing(self, settings: Mapping[str, Value]) -> Configuration:
        return Configuration.of({k: v for k, v in settings.items() if v != self._start.get(k)})

    def row(self, configuration: Configuration) -> Configuration:
        """Return the table's own configuration."""
        return self._rows[configuration]

    def of(self, row: Configuration) -> Configuration:
        """Return a configuration of the table as this space has it."""
        return self._from_row[row]

    def canonical(
        self, settings: Mapping[str, Value], *, is_literal: bool = False
    ) -> Configuration:
        """Return the configuration with these settings; one that the table lacks as it is."""
        values = {**self._start, **settings}
        row = None
        if settings.keys() <= self._start.keys():  # with what the table lacks, it is another one
            row = self._table.same_as.get(tuple(values[knob] for knob in self._table.knobs))
        return self._differing(values) if row is None else self._from_row[row]

    def upper_size(self) -> int:
        """Return how many configurations the table has."""
        return len(self._rows)

    def contains(self, configuration: Configuration) -> bool:
        """Tell whether the table has it."""
        return configuration in self._rows

    def refused(self, configuration: Configuration) -> str:
        """Nothing is refused that the table has."""
        return "" if configuration in self._rows else "it is not in the table"

    def configurations(self) -> Iterator[Configuration]:
        """Yield what the table has."""
        yield from self._rows

    def _is_within_choices(self, configuration: Configuration) -> bool:
        return configuration in self._rows


class Watched(Study):
    """A study that notes, after every launch, what it would recommend by then."""

    tabled: TabledSpace
    steps: list[Step]

    def look(self) -> None:
        """Note what is recommended now."""
        if self.evaluation.default_at_best() is None:
            return
        row = self.tabled.row(self.candidates.leader(REDUCED))
        if not self.steps or self.steps[-1].row != row:
            self.steps.append(Step(self.budget.used_s(), row))

    def measure(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        may_prune: bool = False,
        beside_neighbour: bool = False,
    ) -> LaunchRecord:
        record = super().measure(configuration, purpose, may_prune=may_prune)
        if purpose is Purpose.RACE:
            self.look()
        return record

    def tell(self, proposal: Proposal, record: LaunchRecord) -> None:
        super().tell(proposal, record)
        self.look()


def start_of(table: Table, seed: int) -> tuple[Value, ...]:
    """Return the default's values; of a foreign table, those of a random one that works."""
    if table.default is not None:
        return table.values(table.default)
    working = [c for c, truth in table.truth().items() if truth is not None]
    return table.values(random.Random(seed).choice(working))


def baselines_of(table: Table, space: TabledSpace) -> list[Baseline]:
    """Return the baselines that the recording names."""
    named = table.recording.baselines if table.recording is not None else {}
    return [
        Baseline(name, "recorded", space.of(Configuration.of(settings)), True, "", None, ())
        for name, settings in named.items()
    ]


def card_of(table: Table) -> ModelCard:
    """Return the card of a model with the table's batches; nothing of it is built."""
    reference = table.recording.batch if table.recording is not None else 1
    batches = tuple(int(b) for b in table.choices.get(BATCH, (reference,)))
    return ModelCard(table.name, table.name, "", "other", ("torch",), reference, batches, None, "")


def study_on(
    table: Table, deck: Deck, budget_s: float, seed: int, earlier: Sequence[Earlier] = ()
) -> Run:
    """Carry out one study on a table's launches; return what it recommended when."""
    with study_of(table, deck, budget_s, seed, earlier) as study:
        ends, planner = {}, Planner(study)
        for phase in PHASES:
            planner.run([phase])
            ends[phase.__name__] = study.budget.used_s()
        space, store, evaluation = study.tabled, study.store, study.evaluation
        study.look()
        tried = [t.configuration for t in evaluation.trials()]
        return Run(
            steps=tuple(study.steps),
            seconds=ends["race"],
            total_s=study.budget.used_s(),
            n_launches=sum(
                r.request.purpose not in (Purpose.PACER, Purpose.CONFIRM)
                for r in store.launches.values()
            ),
            n_duplicates=len(tried) - len(set(tried)),
            pulls={space.row(c): evaluation.n_launches(c) for c in dict.fromkeys(tried)},
            why=next(n.reason for n in store.all(PhaseDone) if n.phase is Phase.EXPLORE),
            launch_sd=evaluation.estimates.launch_sd,
            n_confirming=sum(r.request.purpose is Purpose.CONFIRM for r in store.launches.values()),
        )


def earlier_on(table: Table, deck: Deck, budget_s: float, seed: int) -> Earlier:
    """Search a table; return what another study may learn from it."""
    with study_of(table, deck, budget_s, seed) as study:
        Planner(study).run(SEARCHING)
        default = study.evaluation.default_at_best()
        assert default is not None
        measured = study.evaluation.measured(REDUCED)
        usual = {}
        if table.default is not None:
            usual = dict(zip(table.knobs, table.values(table.default), strict=True))
        settings = {
            c: {
                knob: value
                for knob, value in zip(table.knobs, table.values(study.tabled.row(c)), strict=True)
                if knob not in usual or value != usual[knob]
            }
            for c in measured
        }
        return Earlier(
            table.name,
            {Configuration.of(settings[c]): score - default[1] for c, score in measured.items()},
        )


@contextmanager
def study_of(
    table: Table,
    deck: Deck,
    budget_s: float,
    seed: int,
    earlier: Sequence[Earlier] = (),
    turns: tuple[WinnerClass, ...] = (REDUCED,),
    side_by_side: SideBySide | None = None,
) -> Iterator[Watched]:
    """Assemble a study on a table's launches.

    turns: the questions that it asks.
    """
    space = TabledSpace(table, start_of(table, seed))
    source = DeckSource(deck, space.row)
    budget = Budget(budget_s, clock=source.clock)
    card = card_of(table)
    shared = Path("/dev/shm")
    where = shared if os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder, Store(Path(folder) / "study") as store:
        store.used_s = budget.used_s
        evaluation = Evaluation(store, card.reference_batch, card.batches)
        costs = Costs(store, evaluation)
        bench = recorded_bench(source, store, card, budget, seed, side_by_side)
        search = Search(
            store.folder / "study.db",
            space,
            evaluation.tried,
            seed,
            earlier=earlier,
            sd=evaluation.score_sd,
            cost_s=costs.own_s,
        )
        study = Watched(store, space, baselines_of(table, space), bench, evaluation, costs, search,
                        budget, lambda _: None, turns[0], turns=turns)  # fmt: skip
        study.tabled, study.steps = space, []
        yield study
