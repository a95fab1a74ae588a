"""What the study knows: costs and scores from the launches in its store."""

from pathlib import Path

import msgspec
import pytest

from tuner.measurement.queueing import with_sustained
from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted
from tuner.record.launch import (
    LaunchRecord,
    LaunchRequest,
    Prepared,
    Purpose,
    ReadBack,
    Slice,
    packed,
)
from tuner.record.load import Batching, Slo
from tuner.record.objective import THROUGHPUT, Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.serving import Served
from tuner.record.store import Store
from tuner.study.costs import Costs
from tuner.study.evaluation import Evaluation

DEFAULT = Configuration()


def add(store: Store, purpose: Purpose, total_s: float | None, n_slices: int = 4) -> None:
    """Add a launch; one without seconds still runs."""
    id = store.next_launch_id()
    prepared = Prepared(0.1, 0.1, 0.5, True, 0, 0, ())
    record = LaunchRecord(LaunchRequest(id, DEFAULT, 4, purpose), prepared=prepared)
    record.slices = [Slice(id * 100 + k, 4, 1, 0.1, float(k)) for k in range(n_slices)]
    if total_s is not None:
        record.ending = Ending(Outcome.MEASURED)
        record.total_s, record.slicing_s = total_s, 0.5 * n_slices
    store.launches[id] = record


def costs_of(store: Store, objective: Objective = THROUGHPUT) -> Costs:
    return Costs(store, Evaluation(store, 4, (4,), objective))


def test_a_confirming_launch_takes_as_many_slices_as_its_calls_need(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        add(store, Purpose.BASELINE, total_s=9.0)  # slices of one call and half a second
        few = costs_of(store).repeat_s(DEFAULT)
        many = costs_of(store, Objective.of("latency_p90")).repeat_s(DEFAULT)
        least = Objective.of("latency_p90").least_calls
        assert many == pytest.approx(few + (least - 4) * 0.5)


def test_a_launch_that_still_runs_does_not_cost_nothing(tmp_path: Path) -> None:
    """The pacer is a launch of the default without an end: the confirmation is not free."""
    with Store(tmp_path) as store:
        add(store, Purpose.BASELINE, total_s=9.0)
        add(store, Purpose.PACER, total_s=None)
        costs = costs_of(store)
        assert costs.own_s(DEFAULT) == pytest.approx(9.0)
        assert costs.repeat_s(DEFAULT) == pytest.approx(9.0)


def test_where_slices_scatter_a_confirming_launch_takes_more_of_them(tmp_path: Path) -> None:
    """And its cost is reckoned so, or the first look would not fit; launches here are alike."""
    with Store(tmp_path) as store:
        for _ in range(5):
            add(store, Purpose.BASELINE, total_s=9.0)
        quiet = costs_of(store).repeat_s(DEFAULT)
        for record in store.launches.values():
            record.slices = [
                msgspec.structs.replace(s, seconds=s.seconds * factor)
                for s, factor in zip(record.slices, (1.0, 1.4, 0.8, 1.2), strict=True)
            ]
        noisy = costs_of(store).repeat_s(DEFAULT)
        assert noisy == pytest.approx(quiet + 4 * 0.5)  # 8 instead of 4, and no more


def test_what_is_told_of_a_launch_is_what_the_table_says_of_its_configuration(
    tmp_path: Path,
) -> None:
    other = Configuration.of({"fake.streams": 2})
    with Store(tmp_path) as store:
        evaluation = Evaluation(store, 4, (4,))

        def told(configuration: Configuration, purpose: Purpose, seconds: float) -> float | None:
            add(store, purpose, total_s=9.0)
            record = store.launches[max(store.launches)]
            record.request = msgspec.structs.replace(record.request, configuration=configuration)
            record.slices = [msgspec.structs.replace(s, seconds=seconds) for s in record.slices]
            return evaluation.ratio_after(record)

        assert told(DEFAULT, Purpose.BASELINE, 0.2) is None
        assert told(other, Purpose.SEARCH, 0.1) == pytest.approx(2.0)
        assert told(other, Purpose.RACE, 0.4) == pytest.approx(1.0)  # of both its launches
        assert evaluation.ratio(other) == pytest.approx(1.0)
        assert told(other, Purpose.CONFIRM, 0.1) is None


def test_a_long_lived_pacer_says_nothing_of_what_a_launch_costs(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        add(store, Purpose.BASELINE, total_s=9.0)
        add(store, Purpose.PACER, total_s=300.0, n_slices=200)
        assert costs_of(store).own_s(DEFAULT) == pytest.approx(9.0)


def test_a_setting_without_effect_differs_by_noise_alone(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        evaluation = Evaluation(store, 4, (4,))
        one = evaluation.noise(DEFAULT, DEFAULT)
        for _ in range(4):
            add(store, Purpose.BASELINE, total_s=9.0)
        evaluation.refresh()
        assert 0.01 <= evaluation.noise(DEFAULT, DEFAULT) < one


def launched(
    store: Store, configuration: Configuration, seconds: float, outcome: Outcome = Outcome.MEASURED
) -> LaunchRecord:
    id = store.next_launch_id()
    record = LaunchRecord(LaunchRequest(id, configuration, 4, Purpose.SEARCH))
    record.slices = [Slice(id * 100, 4, 1, seconds, 0.0)]
    record.ending = Ending(outcome)
    store.launches[id] = record
    return record


def tell(store: Store, record: LaunchRecord, score: float | None = None) -> None:
    ending = record.ending or Ending(Outcome.MEASURED)
    number, launches = len(store.all(TrialNoted)), (record.request.id,)
    configuration = record.request.configuration
    store.add(TrialNoted(number, configuration, "script", ending, launches, score))


def test_what_was_tried_is_worth_what_all_its_launches_say(tmp_path: Path) -> None:
    """A failure is worth nothing, what was stopped after a slice is worth that slice."""
    good, slow, broken = (Configuration.of({"fake.streams": n}) for n in (2, 3, 4))
    with Store(tmp_path) as store:
        evaluation = Evaluation(store, 4, (4,))
        assert evaluation.tried() == {}
        tell(store, launched(store, good, 0.1), 9.0)
        evaluation.refresh()
        before = evaluation.tried()[good]
        tell(store, launched(store, slow, 0.8, Outcome.PRUNED), 1.5)
        tell(store, launched(store, broken, 0.1, Outcome.CRASHED), None)
        launched(store, good, 0.2)  # again, by the race
        evaluation.refresh()
        tried = evaluation.tried()
        assert list(tried) == [good, slow, broken]
        assert tried[good] == evaluation.score(good) != before
        assert (tried[slow], tried[broken]) == (1.5, None)
        assert evaluation.n_launches(good) == 2


def test_a_score_of_more_launches_is_surer_and_that_of_a_slice_less_so(tmp_path: Path) -> None:
    twice, sliced = (Configuration.of({"fake.streams": n}) for n in (2, 3))
    with Store(tmp_path) as store:
        for _ in range(2):
            launched(store, twice, 0.1)
        launched(store, DEFAULT, 0.1)
        launched(store, sliced, 0.1, Outcome.PRUNED)
        evaluation = Evaluation(store, 4, (4,))
        once = evaluation.score_sd(DEFAULT)
        assert once == pytest.approx(evaluation.estimates.launch_sd)
        assert evaluation.score_sd(twice) == pytest.approx(once / 2**0.5)
        assert evaluation.score_sd(sliced) >= once


def test_what_only_the_environment_shows_is_unobservable(tmp_path: Path) -> None:
    both = Configuration.of({"env.A": "1", "fake.streams": 2})
    with Store(tmp_path) as store:
        evaluation = Evaluation(store, 4, (4,))
        assert evaluation.row(both).unobservable == set()
        launched(store, both, 0.1)  # it ended before it told
        read_back = (
            ReadBack("env.A", "1", None, "environment_only", ""),
            ReadBack("env.B", None, "2", "environment_only", ""),  # nobody asked for it
            ReadBack("fake.streams", 2, 2, "effective", ""),
        )
        told = launched(store, both, 0.1)
        told.prepared = Prepared(0.1, 0.1, 0.5, True, 0, 0, read_back)
        evaluation.refresh()
        assert evaluation.row(both).unobservable == {"env.A"}
        assert evaluation.row(both.without("env.A")).unobservable == set()


def test_the_default_at_a_batch_is_named_as_the_search_names_it(tmp_path: Path) -> None:
    other = Configuration.of({"fake.streams": 2})
    with Store(tmp_path) as store:
        evaluation = Evaluation(store, 4, (4, 16))
        assert evaluation.at_batch(DEFAULT, 4) == DEFAULT
        at_16 = evaluation.at_batch(other, 16)
        assert at_16 == Configuration.of({"fake.streams": 2, "workload.batch": 16})
        assert evaluation.at_batch(at_16, 4) == other


@pytest.mark.parametrize(("n_late", "is_late"), [(0, False), (1, False), (2, True)])
def test_a_default_that_is_late_when_idle_in_most_slices_has_no_ratio(
    tmp_path: Path, n_late: int, is_late: bool
) -> None:
    slo = Slo(0.99, 0.1, "")
    served = msgspec.structs.replace(Objective.of("rate_within"), slo=slo)
    other = Configuration.of({"fake.streams": 2})
    with Store(tmp_path) as store:
        for configuration in (DEFAULT, other):
            record = launched(store, configuration, 0.1)
            record.slices = []
            for k in range(2):
                call_s = 0.2 if configuration == DEFAULT and k < n_late else 0.01
                answered = Served(Batching((1,)), 30, sustained=50.0)
                taken = Slice(
                    10 * record.request.id + k, 1, 30, 0.3, 0.5,
                    packed_calls=packed([call_s] * 30), served=answered,
                )  # fmt: skip
                record.slices.append(with_sustained(taken, slo))
        evaluation = Evaluation(store, 1, (1,), served)
        assert evaluation.default_is_late is is_late
        assert (evaluation.ratio(other) is None) is is_late
