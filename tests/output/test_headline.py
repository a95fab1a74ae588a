"""The headline: a line per class, the best confirmed first, each with its price and its command."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.output.test_figures import SAMPLE
from tuner.output.headline import class_lines, in_short, next_steps, what_was_tuned
from tuner.output.report import render
from tuner.record.files import read_result
from tuner.record.interval import Interval
from tuner.record.result import LeftOut, ModelSection, Result
from tuner.record.why import Why
from tuner.record.winner_class import WinnerClass

NO_CODE = WinnerClass.NO_CODE

SAME = WinnerClass.SAME_PRECISION

UNDECIDED: dict[str, Any] = {
    "verdict": "ambiguous",
    "speedup": Interval(1.2, 0.9, 1.5, 0.95),
    "n_rounds": 5,
    "n_won": 5,
    "n_compared": 5,
    "seconds_to_decide": 700.0,
}


def with_winner(result: Result, name: WinnerClass, **changes: Any) -> Result:
    """Return a result with another winner of a class; it recommends what it did."""
    winner = msgspec.structs.replace(result.winners[name], **changes)
    changed = msgspec.structs.replace(result, winners=result.winners | {name: winner})
    if name != result.recommended_class:
        return changed
    return msgspec.structs.replace(changed, verdict=winner.verdict, speedup=winner.speedup)


def found(result: Result) -> dict[str, str]:
    """Return what is said of each class, by its name."""
    return {line.name: line.reached for line in class_lines(result)}


def test_each_class_is_a_line_with_its_price_the_best_first() -> None:
    lines = class_lines(read_result(SAMPLE))
    assert [line.name for line in lines] == ["bf16", "same precision", "no code change"]
    assert lines[0].reached == "2.92x faster (2.59 - 3.30)"
    assert lines[0].price == [
        "37.16 items/s", "635 MiB (default 423)", "drift 2 %, top-1 100 %", "3 lines of code",
        "call 430 ms (default 326)",
    ]  # fmt: skip
    assert lines[1].price == [
        "21.7 items/s",
        "1262 MiB",
        "2 lines of code",
        "call 1,435 ms",
    ]
    assert lines[2].code == ""


def test_what_is_not_decided_says_which_budget_would_decide_it() -> None:
    result = with_winner(read_result(SAMPLE), NO_CODE, **UNDECIDED)
    told = "1.20x, not decided (0.90 - 1.50), won 5 of 5 rounds"
    assert found(result)["no code change"] == f"{told}: about 12 more minutes would decide it"
    hopeless = with_winner(result, NO_CODE, seconds_to_decide=None)
    assert found(hopeless)["no code change"] == f"{told}: more time would hardly decide it"
    earlier = with_winner(result, NO_CODE, seconds_to_decide=None, n_won=None)
    assert found(earlier)["no code change"] == "1.20x, not decided (0.90 - 1.50)"
    seen = {"speedup": None, "search_ratio": 1.3, "n_rounds": 0, "n_won": None}
    hint = with_winner(result, NO_CODE, **seen)
    assert found(hint)["no code change"] == (
        "1.30x in the search, not decided, about 12 more minutes would decide it"
    )


def test_rounds_that_were_too_few_for_a_claim_are_counted_as_they_were() -> None:
    few: dict[str, Any] = {"speedup": None, "search_ratio": None, "n_rounds": 0}
    few |= {"n_won": 2, "n_compared": 3}
    result = with_winner(read_result(SAMPLE), NO_CODE, **UNDECIDED | few)
    assert found(result)["no code change"].startswith("not decided, won 2 of 3 rounds: about")


def test_a_confirmed_reduced_winner_is_not_hidden_behind_what_is_not_decided() -> None:
    result = with_winner(read_result(SAMPLE), SAME, **UNDECIDED)
    assert result.verdict == "ambiguous"
    assert [line.name for line in class_lines(result)][:2] == ["bf16", "no code change"]
    assert in_short(result) == "bf16 2.92x faster"
    for template in ("report.md.j2", "report.html.j2"):
        text = render(result, template)
        headline = "2.92x faster (2.59 - 3.30)"
        assert text.index("bf16 2.92x faster") < text.index(headline) < text.index("not decided")


@pytest.mark.parametrize("verdict", ["ambiguous", "keep_default"])
def test_what_is_slower_than_the_default_is_never_called_best(verdict: str) -> None:
    slower: dict[str, Any] = {"verdict": verdict, "speedup": Interval(0.9, 0.7, 1.1, 0.95)}
    result = read_result(SAMPLE)
    for name in result.winners:
        result = with_winner(result, name, **slower)
    for template in ("report.md.j2", "report.html.j2"):
        head = render(result, template).partition("three winners")[0]
        for called in ("0.90x faster", "best candidate", "best so far"):
            assert called not in head
    assert "faster" not in in_short(result)


def test_classes_with_one_winner_have_its_price_once() -> None:
    result = read_result(SAMPLE)
    same = msgspec.structs.asdict(result.winners[SAME])
    lines = class_lines(with_winner(result, WinnerClass.REDUCED_PRECISION, **same))
    assert [line.name for line in lines] == [
        "same precision", "no code change", "reduced precision"
    ]  # fmt: skip
    assert (lines[2].reached, lines[2].price) == ("as same precision", [])


def test_what_was_faster_in_the_search_and_in_no_round_is_said_with_what_would_decide_it() -> None:
    """The class ships the winner of a narrower one, which is not all that there is to say."""
    result = read_result(SAMPLE)
    same = msgspec.structs.asdict(result.winners[SAME])
    better = LeftOut({"torch.dtype": "bf16"}, 2.4, 700.0)
    changed = with_winner(result, WinnerClass.REDUCED_PRECISION, **same | {"left_out": better})
    assert found(changed)["bf16"] == (
        "2.40x in the search, not confirmed, about 12 more minutes would decide it"
    )
    assert class_lines(changed)[2].verdict == "ambiguous"
    (going_on,) = [
        s for s in next_steps(changed, SAMPLE.parent, SAMPLE.parent) if s.label == "go on"
    ]
    assert "--extend 12m" in going_on.command


def test_where_the_default_misses_the_bound_the_rate_in_time_is_the_gain() -> None:
    result = msgspec.structs.replace(read_result(SAMPLE), default_meets_slo=False)
    for name in result.winners:
        result = with_winner(result, name, speedup=None)
    told = found(result)["same precision"]
    assert told.startswith("in time at 21.7 (")
    assert told.endswith("items/s, where the default misses the bound at any rate")
    assert class_lines(result)[0].name == "bf16"
    assert "1262 MiB" in class_lines(result)[1].price


def test_nothing_of_the_default_is_no_gain() -> None:
    result = with_winner(
        read_result(SAMPLE),
        WinnerClass.REDUCED_PRECISION,
        verdict="keep_default",
        configuration={},
        speedup=None,
    )
    assert found(result)["reduced precision"] == "keep the default"


def test_each_confirmed_class_has_the_command_that_ships_it() -> None:
    result = with_winner(read_result(SAMPLE), NO_CODE, **UNDECIDED)
    folder = Path("my studies/one")
    steps = {step.label: step.command for step in next_steps(result, folder, folder)}
    assert list(steps) == ["ship", "with bf16", "go on"]
    run = "tune-framework run 'my studies/one/recommended{}.toml' -- python serve.py"
    assert steps["ship"] == run.format("")
    assert steps["with bf16"] == run.format(".reduced_precision")
    assert steps["go on"] == (
        "tune-framework --model resnet50 --framework torch --extend 12m --out 'my studies/one'"
    )


def test_a_recommendation_that_a_profiler_can_look_into_is_explained_next() -> None:
    def step(result: Result, **changes: Any) -> list[str]:
        found = next_steps(msgspec.structs.replace(result, **changes), Path("x"), Path("x"))
        return [each.command for each in found if each.label == "explain"]

    result = read_result(SAMPLE)
    facts = ModelSection("cnn", "code", [], 4, "", None, None, "")
    assert step(result, model_facts=facts) == ["tune-framework explain x/recommended.toml"]
    mine = "tune-framework --model mine.py --budget 10m"
    assert step(result, model_facts=facts, command=mine) == [
        "tune-framework explain x/recommended.toml --model mine.py"
    ]
    engine = with_winner(result, SAME, configuration={"engine.name": "openvino"})
    assert step(engine, model_facts=facts) == []
    program = msgspec.structs.replace(facts, form="program")
    won = result.winners[result.recommended_class].configuration
    done = Why(won, 3, 2.0, 1.0, [], 1.0, Interval(2.0, 1.9, 2.1, 0.95), "a profiler")
    for changes in (
        {"model_facts": program},
        {"model_facts": facts, "verdict": "keep_default"},
        {"model_facts": facts, "scenario": "server"},
        {"model_facts": facts, "why": [done]},
    ):
        assert step(result, **changes) == []


def test_there_is_nothing_to_go_on_for_where_no_time_would_decide_it() -> None:
    result = with_winner(read_result(SAMPLE), NO_CODE, **{**UNDECIDED, "seconds_to_decide": None})
    assert "go on" not in [step.label for step in next_steps(result)]


def test_what_was_tuned_is_said_with_where_and_for_how_long() -> None:
    assert what_was_tuned(read_result(SAMPLE)) == (
        "resnet50 · torch · offline · AMD EPYC, 2 cores · 30:06"
    )


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_the_report_goes_on_with_its_own_study_alone(template: str) -> None:
    result = with_winner(read_result(SAMPLE), NO_CODE, **UNDECIDED)
    result = msgspec.structs.replace(result, command="tune-framework --models m,n --out all")
    text = render(result, template, Path("all/m-torch"))
    own = "--model resnet50 --framework torch --extend 12m --out all/m-torch"
    assert f"tune-framework {own}" in text
    assert "tune-framework run recommended.toml" in text  # in the folder itself


def test_what_was_written_with_an_early_verdict_is_resumed_by_its_command() -> None:
    early = {**UNDECIDED, "speedup": None, "search_ratio": 1.3, "n_rounds": 0, "n_won": None}
    result = with_winner(read_result(SAMPLE), NO_CODE, **early)
    phases = {k: v for k, v in result.phases.items() if k in ("baselines", "explore")}
    result = msgspec.structs.replace(result, phases=phases)
    told = found(result)["no code change"]
    assert told == "1.30x in the search, not decided, not confirmed yet"
    (goes_on,) = [s.command for s in next_steps(result, Path("x")) if s.label == "go on"]
    assert goes_on == result.command
    assert "--extend" not in goes_on


def test_what_is_faster_and_costs_too_much_is_not_called_undecided() -> None:
    costly = with_winner(
        read_result(SAMPLE),
        SAME,
        verdict="ambiguous",
        is_unjustified=True,
        speedup=Interval(1.25, 1.16, 1.35, 0.95),
        n_won=5,
        n_compared=5,
        seconds_to_decide=200.0,
    )
    (line,) = [each for each in class_lines(costly) if each.winner_class == "same_precision"]
    assert line.gain == "1.25x, too costly so far"
    assert line.evidence == "won 5 of 5 rounds: about 4 more minutes would decide it"
