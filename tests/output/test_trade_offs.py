"""What is worth choosing between: speed, calls and memory of everything that was measured."""

from typing import Any

import msgspec
import pytest

from tests.output.test_figures import whole
from tuner.output.report import render
from tuner.output.trade_offs import MOST, trade_off_table, trade_offs
from tuner.record.interval import Interval
from tuner.record.outcome import Outcome
from tuner.record.result import Result
from tuner.record.study_stats import TrialSection

MIB = 2**20
DEFAULT: tuple[dict[str, Any], float, float, float] = ({}, 1.0, 100, 400)


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
        # by no more than noise: not either, and a saving does not change that
        ([(of(1), 2.0, 80, 300), (of(2), 1.01, 10, 100)], [1, None]),
        # the default at another batch is the default
        ([(of(1), 2.0, 80, 300), ({"workload.batch": 1}, 1.2, 10, 100)], [1, None]),
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
    assert default.name == "the default"
    table = trade_off_table(study(({}, 0.98, 100, 400), (of(1), 2.0, 80, 300)))
    assert table is not None
    assert table.rows[-1][:2] == ["the default", "1.00x"]
    assert "batch sizes" not in table.text


def test_failed_trials_take_no_part_and_a_confirmed_ratio_replaces_the_search_s() -> None:
    result = confirmed_at(1.8, study(DEFAULT, (of(1), 3.0, 80, 300), (of(2), 2.0, 80, 200)))
    failed = msgspec.structs.replace(result.trials[1], outcome=Outcome.WRONG_OUTPUT)
    trials = [result.trials[0], failed, result.trials[2]]
    table = trade_off_table(msgspec.structs.replace(result, trials=trials))
    assert table is not None
    assert [row[:2] for row in table.rows] == [
        ["same precision", "1.80x (1.70 - 1.90)"],
        ["the default", "1.00x"],
    ]


def confirmed_at(point: float, result: Result) -> Result:
    """Return a result whose winner is the configuration 2."""
    winner = msgspec.structs.replace(
        result.winners[result.recommended_class],
        configuration=of(2),
        speedup=Interval(point, point - 0.1, point + 0.1, 0.95),
    )
    winners = result.winners | {result.recommended_class: winner}
    return msgspec.structs.replace(result, winners=winners)


def test_a_lucky_ratio_of_the_search_replaces_nothing_that_is_confirmed() -> None:
    result = study(DEFAULT, (of(1), 1.85, 80, 300), (of(2), 2.0, 80, 300))
    assert shown(confirmed_at(1.8, result)) == [1, 2, None]
    assert shown(confirmed_at(1.9, result)) == [2, None]


def test_names_are_escaped_and_a_batch_that_is_not_the_winner_s_is_not_called_its() -> None:
    other = of(2) | {"workload.batch": 32}
    result = confirmed_at(1.8, study(DEFAULT, (other, 2.0, 80, 300)))
    (first, _) = trade_offs(result)
    assert first.name == ""
    named = msgspec.structs.replace(
        whole().baselines[1], name="a|b *c*", configuration=of(1), same_as=None, search_ratio=3.0
    )
    result = study(DEFAULT, (of(1), 2.0, 80, 300))
    text = render(msgspec.structs.replace(result, baselines=[named]), "report.md.j2")
    assert r"| a\|b \*c\* | 2.00x in the search |" in text
    assert "| a|b" not in text


def test_a_latency_is_not_listed_twice() -> None:
    result = study(DEFAULT, (of(1), 2.0, 80, 300), (of(2), 1.5, 40, 350))
    objective = msgspec.structs.replace(result.objective, metric="latency_p90", unit="ms")
    result = msgspec.structs.replace(result, objective=objective)
    assert shown(result) == [1, None]
    assert "shorter calls" not in render(result, "report.md.j2")
