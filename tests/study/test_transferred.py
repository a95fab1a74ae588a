"""What earlier studies or rules say is best comes right after the default."""

import bisect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.study.studies import BASELINE, Scripted, carried_out, new_study
from tuner.record.configuration import Configuration
from tuner.record.journal import TRANSFERRED, TrialNoted
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.search.transfer import Earlier
from tuner.study.study import Study
from tuner.study.transferred import try_transferred

OF_LAUNCH = Configuration.of({"launch.allocator": "jemalloc"})
OF_MODEL = Configuration.of({"fake.compile": "fast"})
OTHER = Configuration.of({"fake.streams": 2})
LAUNCH_S = 10.0


class Measured(Scripted):
    """A study in which nothing is faster than the default."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        return add(self.store, configuration)


def add(store: Store, configuration: Configuration) -> LaunchRecord:
    id = store.next_launch_id()
    store.launches[id] = LaunchRecord(
        LaunchRequest(id, configuration, 4, Purpose.SEARCH),
        prepared=Prepared(0.5, 0.0, 0.5, True, 0, 0, ()),
        slices=[Slice(id * 10 + k, 1, 1, math.exp(-1.0), id + k / 10) for k in range(6)],
        ending=Ending(Outcome.MEASURED),
        total_s=LAUNCH_S,
    )
    return store.launches[id]


@contextmanager
def begun(folder: Path) -> Iterator[Store]:
    """Yield a study whose default is measured, and nothing else."""
    with Store(folder / "study") as opened:
        record = add(opened, Configuration())
        ending = Ending(Outcome.MEASURED)
        opened.add(TrialNoted(0, Configuration(), "default", ending, (record.request.id,), 1.0))
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with begun(tmp_path) as opened:
        yield opened


def study_of(
    store: Store, folder: Path, ratios: dict[Configuration, float], budget_s: float = 3600.0
) -> Study:
    return new_study(store, folder, budget_s, Measured, [Earlier("earlier", ratios)])


def guessed(study: Study) -> list[Configuration]:
    return [t.configuration for t in study.evaluation.trials() if t.source == TRANSFERRED]


def test_the_best_of_each_class_is_tried_and_no_baseline(store: Store, tmp_path: Path) -> None:
    ratios = {Configuration(): 0.0, BASELINE: 0.4, OF_LAUNCH: 0.2, OTHER: 0.1, OF_MODEL: 0.3}
    study = study_of(store, tmp_path, ratios)
    carried_out(study, try_transferred(study, study.baselines, 4))
    # of what ships by default, and then the next best of what may be less exact: each once
    assert guessed(study) == [OF_MODEL, OF_LAUNCH]


def test_what_was_tried_by_a_session_before_is_not_tried_again(
    store: Store, tmp_path: Path
) -> None:
    ratios = {Configuration(): 0.0, OF_LAUNCH: 0.2, OF_MODEL: 0.3}
    study = study_of(store, tmp_path, ratios)
    carried_out(study, try_transferred(study, study.baselines, 4))
    again = study_of(store, tmp_path / "again", ratios)
    carried_out(again, try_transferred(again, again.baselines, 4))
    assert len(guessed(again)) == len(set(guessed(again))) == 2


def least_budget_s(folder: Path, n_baselines: int) -> float:
    """Return from which budget on a guess is tried, in steps of 5 s."""

    def is_tried(budget_s: float) -> bool:
        with begun(folder / f"{budget_s}-{n_baselines}") as store:
            ratios = {Configuration(): 0.0, OF_LAUNCH: 0.2}
            study = study_of(store, folder / f"{budget_s}-{n_baselines}", ratios, budget_s)
            theirs = [
                msgspec.structs.replace(
                    study.baselines[0], configuration=Configuration.of({"env.FAKE_THREADS": n + 3})
                )
                for n in range(n_baselines)
            ]
            carried_out(study, try_transferred(study, theirs, 4))
            return bool(guessed(study))

    steps = range(10, 900, 5)
    least = bisect.bisect_left(steps, True, key=is_tried)
    assert 0 < least < len(steps)
    return steps[least]


def test_there_is_time_for_every_recommendation_beside_a_guess(tmp_path: Path) -> None:
    without = least_budget_s(tmp_path, 0)
    assert least_budget_s(tmp_path, 4) >= without + 4 * LAUNCH_S


def test_baselines_that_did_best_come_first(store: Store, tmp_path: Path) -> None:
    other = Configuration.of({"env.FAKE_THREADS": 1})
    study = study_of(store, tmp_path, {Configuration(): 0.0, other: -0.1, BASELINE: 0.2})
    (known,) = study.baselines
    unknown = msgspec.structs.replace(known, name="other", configuration=other)
    order = carried_out(study, try_transferred(study, [unknown, known], 4))
    assert order == [known, unknown]
    assert guessed(study) == []
