"""What is worth choosing between: speed, calls and memory of everything that was measured."""

from typing import Any

import msgspec
import pytest

from tests.output.test_figures import whole
from tuner.output.report import render
from tuner.output.trade_offs import MOST, trade_offs
from tuner.record.interval import Interval
from tuner.record.outcome import Outcome
from tuner.record.result import Result
from tuner.record.study_stats import TrialSection

MIB = 2**20
DEFAULT = ({}, 1.0, 100, 400)


def study(*measured: tuple[dict[str, Any], float, float | None, float | None]) -> Result:
    """Return a study whose trials have these settings, ratios, milliseconds and MiB."""
    trials = [
        TrialSection(
            number, settings, "nearby", Outcome.MEASURED, "", [], ratio, 0.01,
            None if call is None else call / 1000,
            None if memory is None else int(memory * MIB),
        )
        for number, (settings, ratio, call, memory) in enumerate(measured)
    ]  # fmt: skip
    plain = whole()
    objective = msgspec.structs.replace(plain.objective, slo=None)
    default = msgspec.structs.replace(plain.default, batch=plain.reference_batch)
    return msgspec.structs.replace(
        plain, trials=trials, default=default, objective=objective, baselines=[]
    )


def of(number: int) -> dict[str, Any]:
    return {"env.OMP_NUM_THREADS": number}


def shown(result: Result) -> list[Any]:
    return [each.configuration.get("env.OMP_NUM_THREADS") for each in trade_offs(result)]


@pytest.mark.parametrize(
    ("measured", "kept"),
    [
        # slower, larger and later than another: left out
        ([(of(1), 2.0, 80, 300), (of(2), 1.5, 90, 350)], [1, None]),
        # slower, but smaller, or earlier
        ([(of(1), 2.0, 80, 800), (of(2), 1.5, 90, 350)], [1, 2, None]),
        ([(of(1), 2.0, 80, 300), (of(2), 1.5, 40, 350)], [1, 2, None]),
        # 4 % less is what launches of one configuration differ by
        ([(of(1), 2.0, 80, 300), (of(2), 1.5, 77, 289)], [1, None]),
        # slower than the default: never
        ([(of(1), 2.0, 80, 300), (of(2), 0.9, 10, 100)], [1, None]),
        # nothing beats it: no table
        ([(of(2), 0.9, 10, 100)], []),
        # memory of no trial is known, as in results of earlier versions
        ([], []),
    ],
)
def test_what_costs_clearly_less_than_all_that_is_faster_is_kept(
    measured: list[tuple[dict[str, Any], float, float, float]], kept: list[int | None]
) -> None:
    assert shown(study(DEFAULT, *measured)) == kept


def test_no_memory_no_table() -> None:
    result = study(({}, 1.0, 100, None), (of(1), 2.0, 80, None))
    assert trade_offs(result) == []
    assert "Speed, latency and memory" not in render(result, "report.md.j2")


def test_the_fastest_five_are_listed_and_the_default_after_them() -> None:
    falling = [(of(n), 10.0 - n, 100.0, 4000.0 / 2**n) for n in range(8)]
    result = study(DEFAULT, *falling)
    assert shown(result) == [*range(MOST), None]
    text = render(result, "report.md.j2")
    assert "| found by the search | 10.00x in the search | 100 ms | 4000 MiB |" in text
    assert "| the default | 1.00x | 100 ms | 400 MiB |" in text


def test_the_default_is_the_measure_also_where_the_search_saw_another_batch_ahead() -> None:
    *_, default = trade_offs(study(({}, 0.98, 100, 400), (of(1), 2.0, 80, 300)))
    assert (default.name, default.gain) == ("the default", "1.00x")


def test_failed_trials_take_no_part_and_a_confirmed_ratio_replaces_the_search_s() -> None:
    result = study(DEFAULT, (of(1), 3.0, 80, 300), (of(2), 2.0, 80, 200))
    failed = msgspec.structs.replace(result.trials[1], outcome=Outcome.WRONG_OUTPUT)
    winner = msgspec.structs.replace(
        result.winners[result.recommended_class],
        configuration=of(2),
        speedup=Interval(1.8, 1.7, 1.9, 0.95),
    )
    result = msgspec.structs.replace(
        result,
        trials=[result.trials[0], failed, result.trials[2]],
        winners=result.winners | {result.recommended_class: winner},
    )
    first, default = trade_offs(result)
    assert (first.name, first.gain) == ("same precision", "1.80x (1.70 - 1.90)")
    assert default.name == "the default"


def test_a_latency_is_not_listed_twice() -> None:
    result = study(DEFAULT, (of(1), 2.0, 80, 300), (of(2), 1.5, 40, 350))
    objective = msgspec.structs.replace(result.objective, metric="latency_p50")
    assert shown(msgspec.structs.replace(result, objective=objective)) == [1, None]
