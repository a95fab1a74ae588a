"""What the study knows: costs and scores from the launches in its store."""

from pathlib import Path

import msgspec
import pytest

from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.objective import THROUGHPUT, Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.study.costs import Costs
from tuner.study.ledger import Ledger

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
    return Costs(store, Ledger(store, 4, (4,), objective))


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
        ledger = Ledger(store, 4, (4,))

        def told(configuration: Configuration, purpose: Purpose, seconds: float) -> float | None:
            add(store, purpose, total_s=9.0)
            record = store.launches[max(store.launches)]
            record.request = msgspec.structs.replace(record.request, configuration=configuration)
            record.slices = [msgspec.structs.replace(s, seconds=seconds) for s in record.slices]
            return ledger.ratio_after(record)

        assert told(DEFAULT, Purpose.BASELINE, 0.2) is None
        assert told(other, Purpose.SEARCH, 0.1) == pytest.approx(2.0)
        assert told(other, Purpose.RACE, 0.4) == pytest.approx(1.0)  # of both its launches
        assert ledger.ratio(other) == pytest.approx(1.0)
        assert told(other, Purpose.CONFIRM, 0.1) is None


def test_a_long_lived_pacer_says_nothing_of_what_a_launch_costs(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        add(store, Purpose.BASELINE, total_s=9.0)
        add(store, Purpose.PACER, total_s=300.0, n_slices=200)
        assert costs_of(store).own_s(DEFAULT) == pytest.approx(9.0)


def test_a_setting_without_effect_differs_by_noise_alone(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        ledger = Ledger(store, 4, (4,))
        one = ledger.noise(DEFAULT, DEFAULT)
        for _ in range(4):
            add(store, Purpose.BASELINE, total_s=9.0)
        ledger.refresh()
        assert 0.01 <= ledger.noise(DEFAULT, DEFAULT) < one
