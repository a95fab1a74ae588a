"""What a study makes of launches: trials that are told, also of a tool that was killed."""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.study.studies import BASELINE, new_study
from tuner.record.configuration import Configuration
from tuner.record.events import BestSoFar, Event
from tuner.record.journal import TrialNoted
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.objective import Bound
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.search.search import study_in
from tuner.study.study import Study

DEFAULT = Configuration()
FASTER = Configuration.of({"fake.layout": "packed"})
SLOWER = Configuration.of({"fake.layout": "blocked"})
RATES = {DEFAULT: 1.0, BASELINE: 1.1, FASTER: 1.3, SLOWER: 0.5}
GIB = 2**30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        yield opened


def add(
    store: Store,
    configuration: Configuration,
    purpose: Purpose = Purpose.SEARCH,
    outcome: Outcome | None = Outcome.MEASURED,
    memory_bytes: int = 0,
) -> LaunchRecord:
    id = store.next_launch_id()
    seconds = math.exp(-RATES[configuration])
    store.launches[id] = LaunchRecord(
        LaunchRequest(id, configuration, 4, purpose),
        prepared=Prepared(0.1, 0.1, 0.5, True, memory_bytes, 0, ()),
        slices=[Slice(id * 10 + k, 1, 1, seconds, id + k / 10) for k in range(4)],
        ending=None if outcome is None else Ending(outcome, "so it ended"),
        total_s=10.0,
    )
    return store.launches[id]


def told(store: Store) -> list[tuple[Configuration, str, tuple[int, ...]]]:
    return [(t.configuration, t.source, t.launches) for t in store.all(TrialNoted)]


def tell(study: Study, record: LaunchRecord) -> TrialNoted:
    """Have a study told of a launch, and return what it noted."""
    study.evaluation.refresh()
    proposal = study.search.enter(record.request.configuration, "script")
    study.tell(proposal, record)
    return study.store.all(TrialNoted)[-1]


def test_what_a_killed_tool_had_measured_and_not_noted_is_told_once(
    store: Store, tmp_path: Path
) -> None:
    add(store, DEFAULT, Purpose.BASELINE)
    noted = add(store, BASELINE, Purpose.BASELINE)
    ending, launches = Ending(Outcome.MEASURED), (noted.request.id,)
    store.add(TrialNoted(1, BASELINE, "vendor", ending, launches, 1.1))
    add(store, FASTER)
    add(store, SLOWER, Purpose.RACE)  # of what was told before, or never will be
    add(store, SLOWER, outcome=Outcome.INTERRUPTED)
    add(store, SLOWER, outcome=None)
    study = new_study(store, tmp_path, 1000.0)
    study.adopt_orphans()
    expected = [
        (BASELINE, "vendor", (2,)), (DEFAULT, "default", (1,)), (FASTER, "resumed", (3,)),
    ]  # fmt: skip
    assert told(store) == expected
    study.adopt_orphans()
    assert told(store) == expected


@pytest.mark.parametrize(
    ("outcome", "score"),
    [(Outcome.MEASURED, 1.3), (Outcome.PRUNED, 1.3), (Outcome.CRASHED, None)],
)
def test_a_trial_is_noted_with_its_launch_its_ending_and_its_score(
    store: Store, tmp_path: Path, outcome: Outcome, score: float | None
) -> None:
    add(store, DEFAULT, Purpose.BASELINE)
    study = new_study(store, tmp_path, 1000.0)
    found = tell(study, add(store, FASTER, outcome=outcome))
    assert (found.number, found.configuration, found.source) == (0, FASTER, "script")
    assert (found.ending, found.launches) == (Ending(outcome, "so it ended"), (2,))
    assert found.score == (None if score is None else pytest.approx(score, abs=0.01))
    with study_in(tmp_path / "study.db") as (name, storage):
        (trial,) = storage.get_all_trials(storage.get_study_id_from_name(name))
    assert trial.user_attrs["outcome"] == outcome
    assert trial.user_attrs["reason"] == "so it ended"
    assert trial.value == (None if score is None else pytest.approx(score, abs=0.01))


def test_what_lies_beyond_a_bound_is_measured_and_the_search_keeps_away(
    store: Store, tmp_path: Path
) -> None:
    add(store, DEFAULT, Purpose.BASELINE, memory_bytes=GIB)
    study = new_study(store, tmp_path, 1000.0)
    bound = Bound("memory", 2 * GIB, "--max-memory 2G")
    study.evaluation.objective = msgspec.structs.replace(
        study.evaluation.objective, bounds=(bound,)
    )
    found = tell(study, add(store, FASTER, memory_bytes=4 * GIB))
    assert found.ending.outcome is Outcome.MEASURED
    assert study.evaluation.tried()[FASTER] is None
    with study_in(tmp_path / "study.db") as (name, storage):
        (trial,) = storage.get_all_trials(storage.get_study_id_from_name(name))
    assert (trial.user_attrs["outcome"], trial.value) == (Outcome.OVER_BOUND, None)
    assert "--max-memory 2G" in trial.user_attrs["reason"]


def test_only_what_is_above_the_default_is_told_as_the_best_so_far(
    store: Store, tmp_path: Path
) -> None:
    study = new_study(store, tmp_path, 1000.0)
    heard: list[Event] = []
    study.listen = heard.append
    for configuration, best in (
        (DEFAULT, []), (SLOWER, []), (BASELINE, [BASELINE]), (FASTER, [BASELINE, FASTER]),
    ):  # fmt: skip
        heard.clear()
        tell(study, add(store, configuration))
        named = [event for event in heard if isinstance(event, BestSoFar)]
        assert sorted(event.label for event in named) == sorted(c.label() for c in best)
    ratios = {event.label: event.ratio for event in named}
    assert ratios[FASTER.label()] == pytest.approx(math.exp(0.3), rel=0.02)
    assert ratios[BASELINE.label()] == pytest.approx(math.exp(0.1), rel=0.02)


def test_proposals_are_counted_once_and_baselines_are_none(store: Store, tmp_path: Path) -> None:
    study = new_study(store, tmp_path, 1000.0)
    assert study.n_proposed() == 0
    add(store, DEFAULT, Purpose.BASELINE)
    for _ in range(2):
        add(store, FASTER)
    add(store, SLOWER)
    add(store, BASELINE, Purpose.RACE)
    assert study.n_proposed() == 2


def test_a_removal_is_the_configuration_without_one_setting(store: Store, tmp_path: Path) -> None:
    study = new_study(store, tmp_path, 1000.0)
    both = FASTER.with_value("env.FAKE_THREADS", 4)
    assert study.removals(both) == {"fake.layout": BASELINE, "env.FAKE_THREADS": FASTER}
    assert study.removals(FASTER) == {"fake.layout": DEFAULT}
    assert study.removals(DEFAULT) == {}


@pytest.mark.parametrize(("budget_s", "is_long"), [(1799.0, False), (1800.0, True)])
def test_half_an_hour_is_long(store: Store, tmp_path: Path, budget_s: float, is_long: bool) -> None:
    assert new_study(store, tmp_path, budget_s).is_long is is_long
