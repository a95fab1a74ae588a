"""Reports are rendered from the result alone, and a hostile name does no harm in them."""

import html
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from tests.output.test_figures import whole
from tuner.cli import report
from tuner.cli.summary import show
from tuner.output.advice import arms, in_words, to_apply
from tuner.output.headline import next_steps
from tuner.output.measured import measured
from tuner.output.report import render
from tuner.output.values import ratio
from tuner.record.files import SCHEMAS, read_result, write_result
from tuner.record.interval import Interval
from tuner.record.launch import Operator
from tuner.record.result import OperatorProfile, Result, Verdict
from tuner.record.result_faults import fault_of_result
from tuner.record.study_stats import Disturbance, FasterNotShipped, LeftToFind, NoiseSection
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import class_title

SAMPLES = Path(__file__).parent.parent.parent / "reports/samples"


@pytest.fixture(scope="module")
def result(finished_study: Path) -> Result:
    found = read_result(finished_study / "result.json")
    # whatever so short a study made of it: a class that has another's settings is told as that one
    allocator = {"launch.allocator": "jemalloc"}
    own = msgspec.structs.replace(found.winners[WinnerClass.NO_CODE], configuration=allocator)
    return msgspec.structs.replace(found, winners=found.winners | {WinnerClass.NO_CODE: own})


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_everything_of_the_contract_is_told(result: Result, template: str) -> None:
    text = render(result, template)
    for heading in ("three winners", "Baselines", "in force", "confirmation", "Trials",
                    "seconds went", "How to use it"):  # fmt: skip
        assert heading in text
    for name in (*WinnerClass, *(b.name for b in result.baselines)):
        assert name in text
    assert ratio(result.speedup) in text
    assert result.command in text.replace("&#39;", "'")
    assert all(str(t.number) in text for t in result.trials)


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_a_baseline_that_crashed_is_not_said_to_lack_time(result: Result, template: str) -> None:
    crashed = next(b for b in result.baselines if b.name == "vendor_compiler")
    assert crashed.applicable
    assert crashed.search_ratio is None
    assert "not measured: crashed: killed by SIGSEGV" in render(result, template)


_CONFIRMED = {"speedup": {"point": 0.74, "low": 0.5, "high": 1.1, "confidence": 0.95}}
_SEEN = {"speedup": None, "search_ratio": 0.74}


@pytest.mark.parametrize(
    ("configuration", "seen", "text"),
    [
        ({}, {}, "the default"),
        ({"workload.batch": 16}, _CONFIRMED, "the default, workload.batch=16"),
        ({"fake.streams": 2}, {}, "the default; best candidate: fake.streams=2"),
        ({"fake.streams": 2}, _CONFIRMED, "the default; tried, and not faster: fake.streams=2"),
        ({"fake.streams": 2}, _SEEN, "the default; tried, and not faster: fake.streams=2"),
    ],
)
def test_neither_the_default_nor_what_is_slower_is_called_a_candidate(
    result: Result, configuration: dict[str, Any], seen: dict[str, Any], text: str
) -> None:
    data: dict[str, Any] = json.loads(msgspec.json.encode(result))
    known = {"speedup": {**_CONFIRMED["speedup"], "point": 1.01}, "search_ratio": None}
    data["winners"]["same_precision"] |= {"verdict": "keep_default", "configuration": configuration}
    data["winners"]["same_precision"] |= known | seen
    lines = render(msgspec.convert(data, Result), "report.md.j2").splitlines()
    row = next(line for line in lines if line.startswith("| same") and "keep the default" in line)
    assert row.split(" | ")[-1] == f"{text} |"


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_a_candidate_without_rounds_has_the_ratio_of_the_search_marked_as_such(
    result: Result, template: str
) -> None:
    data: dict[str, Any] = json.loads(msgspec.json.encode(result))
    data["winners"]["same_precision"] |= {
        "verdict": "ambiguous",
        "configuration": {"fake.streams": 2},
        "speedup": None,
        "search_ratio": 3.21,
    }
    lines = render(msgspec.convert(data, Result), template).splitlines()
    rows = [line for line in lines if "3.21x in the search" in line and "not decided" in line]
    headline, table = ("- ", '<tr><th scope="row">same precision'), ("| ", '<tr class="above">')
    assert sum(row.startswith(headline) for row in rows) == 1
    assert sum(row.startswith(table) for row in rows) == 1


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_what_each_setting_is_worth_is_told_with_its_evidence(
    result: Result, template: str
) -> None:
    data: dict[str, Any] = json.loads(msgspec.json.encode(result))
    log_score = {"point": 1.3, "low": 1.1, "high": 1.5, "confidence": 0.95}
    data["winners"]["same_precision"]["configuration"] = {
        "fake.streams": 2,
        "fake.layout": "packed",
    }
    data["winners"]["same_precision"]["contributions"] = [
        {"knob": "fake.streams", "value": 2, "ratio": 1.3, "speedup": log_score, "n_rounds": 4},
        {"knob": "fake.layout", "value": "packed", "ratio": 1.2, "speedup": None, "n_rounds": 0},
        {"knob": "fake.stage", "value": "off", "ratio": 0.98, "speedup": None, "n_rounds": 0},
    ]
    data["winners"]["same_precision"]["compile_seconds"] = {
        "cold": 40.0,
        "warm": 5.0,
        "items_to_pay": 1234.5,
    }
    text = render(msgspec.convert(data, Result), template)
    rows = {"2": "", "packed": ""}
    for line in text.splitlines():
        for value in rows:
            if "fake." in line and f"={value}" in line and ("rounds" in line or "hint" in line):
                rows[value] += line
    assert "1.30x (1.10 - 1.50)" in rows["2"]
    assert "4 rounds" in rows["2"]
    assert "1.20x" in rows["packed"]
    assert "hint" in rows["packed"]
    assert "40.0 s / 5.0 s, pays after 1,234 items" in text
    for name in data["winners"]:
        data["winners"][name]["contributions"] = []
    nothing = render(msgspec.convert(data, Result), template)
    assert "each setting is worth" not in nothing


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_calls_of_instances_stand_in_columns_and_rates_are_said_to_be_summed(
    result: Result, template: str
) -> None:
    data: dict[str, Any] = json.loads(msgspec.json.encode(result))
    settings = {"launch.instances": 2, "workload.batch": 16}
    call = {"p50_s": 0.02, "p99_s": 0.031, "n_calls": 90}
    own = {"configuration": settings, "call": call, "verdict": "faster"}
    data["winners"]["same_precision"] |= own
    data["default"] |= {"call": {"p50_s": 0.0123, "p99_s": 0.02, "n_calls": 80}, "batch": 4}
    changed = msgspec.convert(data, Result)
    table = measured(changed)
    by_name = {row[0]: dict(zip(table.heads, row, strict=True)) for row in table.rows}
    figures = ("batch", "median call", "99 % of calls", "calls timed")
    assert [by_name["same precision"][f] for f in figures] == ["16", "20 ms", "31 ms", "90"]
    assert [by_name["default"][f] for f in figures] == ["4", "12.3 ms", "20 ms", "80"]
    text = render(changed, template)
    assert "The rate of several instances is the sum of theirs" in text
    assert all(cell in text for row in table.rows for cell in row)
    data["winners"]["same_precision"] |= {
        "configuration": {"fake.streams": 2},
        "verdict": "ambiguous",
    }
    names = [row[0] for row in measured(msgspec.convert(data, Result)).rows]
    assert "same precision (candidate)" in names
    assert "the sum of" not in render(msgspec.convert(data, Result), template)


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_the_committed_samples_are_results_of_their_version_and_can_be_read(path: Path) -> None:
    written = json.loads(path.read_text())
    schema = SCHEMAS / f"result-{written['schema_version']}.json"
    jsonschema.validate(written, json.loads(schema.read_text()))
    assert read_result(path).baselines[0].name in render(read_result(path), "report.html.j2")


def test_markdown_tables_are_whole(result: Result) -> None:
    lines = render(result, "report.md.j2").splitlines()
    tables: list[list[str]] = []
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|"):
            if not before.startswith("|"):
                tables.append([])
            tables[-1].append(line)
    assert len(tables) >= 6
    for table in tables:
        widths = {line.replace("\\|", "").count("|") for line in table}
        assert len(widths) == 1, table[:3]
        assert set(table[1]) <= set("|-"), table[:3]


def test_no_escape_of_a_tampered_result_reaches_a_report(
    result: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    escape = "\x1b]52;c;AAAA\x07\x1b[2J"
    warned = msgspec.structs.replace(result, warnings=[f"a{escape}"], model=f"b{escape}")
    write_result(tmp_path / "result.json", warned)
    report.main(tmp_path, as_json=False)
    shown = capsys.readouterr().out
    pages = [(tmp_path / name).read_text() for name in ("report.html", "report.md")]
    for text in (shown, *pages):
        assert "52;c;AAAA" in text
        assert "\x1b" not in text
        assert "\x07" not in text


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_hostile_text_is_escaped(result: Result, template: str) -> None:
    bad = "<script>alert(1)</script>|`x`\n# heading\n[a](http://x)"
    data: dict[str, Any] = json.loads(msgspec.json.encode(result))
    data["model_title"] = data["model"] = data["framework"] = data["scenario"] = bad
    data["warnings"] = [bad]
    data["phases"] = {"confirm": bad, bad: bad}
    data["versions"] = {bad: bad}
    data["baselines"][0]["source"] = data["trials"][0]["reason"] = bad
    for winner in data["winners"].values():
        winner["reason"] = bad
        winner["seconds_to_decide"] = None  # else the command is told twice
        winner["removed"] = winner["not_in_force"] = [bad]
        for item in winner["read_back"]:
            item["requested"] = item["observed"] = item["how"] = bad
    text = render(msgspec.convert(data, Result), template)
    assert len(re.findall("^```$", text, re.MULTILINE)) == text.count("```")  # none ends early
    assert text.count("```") % 2 == 0
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?<!\\)<script", outside)
    assert not re.search(r"(?<!\\)\[a", text) or template.endswith(".html.j2")
    assert "\n# heading" not in text or template.endswith(".html.j2")
    assert ("&lt;script&gt;" if template.endswith(".html.j2") else r"\<script\>") in text
    data["command"] = bad
    shown = render(msgspec.convert(data, Result), template)
    assert shown.count("`") == text.count("`") or template.endswith(".html.j2")


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_operators_stand_in_a_table_without_any_drawing(result: Result, template: str) -> None:
    operators = [Operator("aten::conv<b>", 0.15, 53), Operator("aten::relu", 0.05, 49)]
    profile = OperatorProfile(operators, 4, 0.27, "a profiler")
    default = msgspec.structs.replace(result.default, profile=profile)
    text = render(msgspec.structs.replace(result, default=default), template)
    rows = [line for line in text.splitlines() if line.startswith(("<tr>", "|"))]
    (row,) = [line for line in rows if "aten::conv" in line]
    assert "75" in row
    assert "<b>" not in row.replace("\\<b\\>", "")


def test_nobody_is_called_by_a_report_in_a_pull_request(result: Result) -> None:
    title = "@team _now_ costs $5$ ~~x~~ under_score@2"
    text = render(msgspec.structs.replace(result, model_title=title), "report.md.j2")
    heading = text.splitlines()[0]
    assert "@\u200bteam \\_now\\_ costs \\$5\\$ \\~\\~x\\~\\~ under_score@2" in heading


def test_the_page_asks_nothing_of_the_network(result: Result) -> None:
    html = render(result, "report.html.j2")
    assert "http://" not in html
    assert "https://" not in html
    assert "<script" not in html


@pytest.mark.parametrize(
    ("changed", "configuration", "text"),
    [
        ({}, {}, "1.20x (1.10 - 1.30) over NAME"),
        ({"speedup_over_best_baseline": None}, {"workload.batch": 16}, "the winner is NAME"),
        (
            {"speedup_over_best_baseline": None},
            {"fake.streams": 9},
            "too few rounds compare it with NAME",
        ),
        (
            {"speedup_over_best_baseline": None, "confirmation": []},
            {"fake.streams": 9},
            "the best baseline, NAME, was not confirmed",
        ),
        (
            {"speedup_over_best_baseline": None, "verdict": "keep_default"},
            {},
            "nothing is recommended; the best baseline is NAME",
        ),
        (
            {"speedup_over_best_baseline": None, "best_baseline": None},
            {},
            "the baselines were not measured",
        ),
    ],
)
def test_the_gain_over_the_best_baseline_is_told_or_why_there_is_none(
    result: Result, changed: dict[str, Any], configuration: dict[str, Any], text: str
) -> None:
    best = next(b for b in result.baselines if b.configuration and not b.same_as)
    winner_class = result.recommended_class
    winner = msgspec.structs.replace(
        result.winners[winner_class], configuration=best.configuration | configuration
    )
    arms = changed.get("confirmation", [{}, best.configuration | {"workload.batch": 16}])
    found = {
        "speedup_over_best_baseline": Interval(1.2, 1.1, 1.3, 0.95),
        "best_baseline": best.name,
        "verdict": "faster",
        "winners": result.winners | {winner_class: winner},
    }
    confirmation = msgspec.structs.replace(result.confirmation, arms=arms, rounds=[])
    changed_result = msgspec.structs.replace(
        result, **(found | changed | {"confirmation": confirmation})
    )
    line = f"| over the best baseline | {text.replace('NAME', best.name)} |"
    assert line in render(changed_result, "report.md.j2")


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (None, "-"),
        (Interval(1.5, 1.25, 1.75, 0.95), "1.50x (1.25 - 1.75)"),
        (Interval(1.5, 0.0, 1e300, 0.95), "1.50x (0.00 - unbounded)"),
    ],
)
def test_ratios_are_written_with_their_interval(interval: Interval | None, text: str) -> None:
    assert ratio(interval) == text


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_a_winner_of_two_classes_is_told_once(result: Result, template: str) -> None:
    data: dict[str, Any] = json.loads(msgspec.json.encode(result))
    data["verdict"] = "faster"  # else the head tells the reason too
    data["winners"]["same_precision"] |= {
        "configuration": {"fake.streams": 2},
        "reason": "this and that",
    }
    data["winners"]["reduced_precision"] = data["winners"]["same_precision"]
    text = render(msgspec.convert(data, Result), template)
    assert text.count("this and that") == 1
    assert "as same precision" in text.partition("three winners")[2]
    data["winners"]["reduced_precision"] = data["winners"]["same_precision"] | {
        "reason": "something else"
    }
    text = render(msgspec.convert(data, Result), template)
    assert "something else" in text  # for another reason, but with the same settings
    assert text.partition("three winners")[2].count("as same precision") == 1


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_what_is_not_known_is_not_written_as_a_figure(result: Result, template: str) -> None:
    default = msgspec.structs.replace(result.default, rate=None, value=None)
    text = render(msgspec.structs.replace(result, default=default, n_parameters=0), template)
    assert "not known: too few rounds confirmed it" in text
    assert "0 parameters" not in text
    hint = msgspec.structs.replace(default, search_value=53.42)
    text = render(msgspec.structs.replace(result, default=hint), template)
    assert f"about 53.42 items/s at batch {default.batch} in the search" in text


def won_by_an_allocator(result: Result, **changes: Any) -> Result:
    """Return a result that recommends what a program is started under, and nothing else."""
    name, allocator = result.recommended_class, {"launch.allocator": "jemalloc"}
    won = msgspec.structs.replace(result.winners[name], configuration=allocator)
    winners = result.winners | {name: won}
    return msgspec.structs.replace(result, verdict="faster", winners=winners, **changes)


@pytest.mark.parametrize(
    ("command", "label", "wanted"),
    [
        ("tune-framework --model resnet50 --hw auto", "resnet50", ""),
        ("tune-framework --model=resnet50@size=64", "resnet50@size=64", ""),
        ("tune-framework --model mine.py:f@n=2", "mine-f@n=2", " --model mine.py:f@n=2"),
        ("tune-framework '--model=my models/a.keras'", "a", " --model 'my models/a.keras'"),
        ("tune-framework --model resnet50-64", "resnet50@size=64", ""),
        ("""tuner.tune('a\\'b"c.py')""", "a'b\"c", ""),  # no shell text
    ],
)
def test_a_model_of_one_s_own_is_verified_by_what_was_typed(
    result: Result, command: str, label: str, wanted: str
) -> None:
    lines = to_apply(won_by_an_allocator(result, command=command, model=label))
    verified = f"tune-framework verify recommended.toml{wanted}"
    assert lines == [f"{verified}  # its path from here" if wanted else verified]


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_it_begins_with_what_to_do(template: str) -> None:
    """The settings in words and the lines that apply them stand before any long table."""
    result = whole()
    text = html.unescape(render(result, template))
    first_table = text.index('<table class="stacks"' if template.endswith("html.j2") else "|---|")
    winner = result.winners[result.recommended_class].configuration
    commands = [step.command for step in next_steps(result)]
    assert "tune-framework run recommended.toml -- python serve.py" in commands
    for wanted in (*commands, *to_apply(result), *(what for what, _ in in_words(result))):
        assert -1 < text.index(wanted) < first_table
    assert len(in_words(result)) == len(winner)
    nothing = msgspec.structs.replace(result, verdict="keep_default")
    assert "tuner.apply" not in render(nothing, template)


def test_an_arm_of_the_confirmation_has_a_letter_and_its_settings_once(result: Result) -> None:
    lettered = arms(result)
    assert [arm.letter for arm in lettered[:3]] == ["A", "B", "C"]
    assert lettered[0].who == "the default"
    assert any(class_title(result.recommended_class) in arm.who for arm in lettered)
    text = render(result, "report.md.j2")
    table = text[text.index("## The confirmation") : text.index("## Trials")]
    for arm in lettered:
        assert f"- **{arm.letter}** {arm.who}" in table
    assert max(len(line) for line in table.splitlines() if line.startswith("| round")) < 120


def test_letters_go_on_after_the_alphabet(result: Result) -> None:
    many = [{"workload.batch": i} for i in range(1, 30)]
    confirmation = msgspec.structs.replace(result.confirmation, arms=many)
    found = arms(msgspec.structs.replace(result, confirmation=confirmation))
    assert [arm.letter for arm in found[25:28]] == ["Z", "AA", "AB"]


@pytest.mark.parametrize(
    ("disturbances", "what", "todo"),
    [
        (
            [
                Disturbance(
                    "other processes used 98% of the CPU time in 50 of 51 slices", "end them"
                )
            ],
            "(other processes used 98% of the CPU time in 50 of 51 slices)",
            "What to do: end them; then tune again with a new --out.",
        ),
        ([], "(51 of 51 slices were disturbed)", "What to do: take another host"),
    ],
)
def test_a_host_that_was_too_noisy_is_said_to_be_with_what_to_do_and_without_a_percentage(
    disturbances: list[Disturbance], what: str, todo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = NoiseSection(9.982, 1.2, 51, 51, disturbances)
    noisy = msgspec.structs.replace(whole(), verdict="ambiguous", noise_floor=9.982, noise=noise)
    show(noisy, Path("out"))
    shown = [capsys.readouterr().out]
    shown += [render(noisy, template) for template in ("report.md.j2", "report.html.j2")]
    for text in (html.unescape(" ".join(each.replace("\\", "").split())) for each in shown):
        assert not re.search(r"998[.,]?2? ?%", text)
        assert "The host was too noisy: two launches of the same program may differ by" in text
        assert what in text
        assert todo in text
    assert all("not known: the host was too noisy" in page for page in shown[1:])


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (
            "tune-framework --serve 'python app.py {port}' --url=http://127.0.0.1:{port}/ "
            "--slo p99=9ms --requests requests.jsonl",
            "tune-framework verify recommended.toml --serve 'python app.py {port}' "
            "--url 'http://127.0.0.1:{port}/' --requests requests.jsonl",
        ),
        ("tune-framework --serve x --requests requests.jsonl", None),
    ],
)
def test_a_server_of_one_s_own_is_verified_by_what_was_typed(
    result: Result, command: str, wanted: str | None
) -> None:
    assert result.model_facts is not None
    facts = msgspec.structs.replace(result.model_facts, form="service")
    lines = to_apply(won_by_an_allocator(result, command=command, model_facts=facts))
    assert lines == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("verdict", "than"), [("faster", "what is recommended"), ("keep_default", "the default")]
)
def test_what_is_faster_than_the_recommended_stands_under_the_headline(
    verdict: Verdict, than: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lead = Interval(1.09, 1.06, 1.12, 0.95)
    found = FasterNotShipped(
        {"torch.compile.mode": "default"}, "torch_guide_compile", lead, "it is costly"
    )
    result = msgspec.structs.replace(whole(), verdict=verdict, ahead=[found])
    show(result, Path("out"))
    shown = [capsys.readouterr().out]
    shown += [render(result, template) for template in ("report.md.j2", "report.html.j2")]
    for text in (html.unescape(" ".join(each.replace("\\", "").split())) for each in shown):
        told = (
            f"torch_guide_compile is surely faster than {than}, 1.09x (1.06 - 1.12), and is not "
            "recommended: it is costly. It is torch.compile.mode=default."
        )
        assert told in text
        assert text.index(told) < text.find("three winners") or "three winners" not in text


def test_a_noise_floor_of_too_few_rounds_is_not_blamed_on_the_host() -> None:
    few = NoiseSection(0.57, 0.05, 0, 40)
    text = render(
        msgspec.structs.replace(whole(), verdict="ambiguous", noise_floor=0.57, noise=few),
        "report.md.j2",
    )
    assert "| noise floor | not known: too few rounds |" in text
    assert "The host was too noisy" not in text


def test_a_round_that_holds_no_logarithm_is_damage(result: Result) -> None:
    """A report writes what a launch was worth in the objective's unit: as an exponential."""
    first = result.confirmation.rounds[0]
    wrong = msgspec.structs.replace(first, log_rates=[1e6] * len(first.log_rates))
    confirmation = msgspec.structs.replace(result.confirmation, rounds=[wrong])
    damaged = msgspec.structs.replace(result, confirmation=confirmation)
    assert "no logarithm" in (fault_of_result(damaged) or "")


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_what_disturbed_calls_did_to_a_latency_is_shown_beside_it(
    result: Result, template: str
) -> None:
    """Only where they differ: the same figure twice would say that disturbance does nothing."""
    value, quiet = Interval(25.0, 24.0, 26.0, 0.95), Interval(20.0, 19.5, 20.5, 0.95)
    for undisturbed, is_shown in ((quiet, True), (value, False), (None, False)):
        default = msgspec.structs.replace(
            result.default, value=value, value_undisturbed=undisturbed
        )
        changed = msgspec.structs.replace(result, default=default)
        text, table = render(changed, template), measured(changed)
        assert ("20 (19.5 - 20.5)" in text) == is_shown
        assert ("items/s without disturbed calls" in table.heads) == is_shown


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
@pytest.mark.parametrize(
    ("left", "said"),
    [
        ({}, ""),  # also in results of earlier versions
        ({"same_precision": (4, 0.527)}, ""),  # more than half is not worth a sentence
        (
            {"same_precision": (7, 0.348), "reduced_precision": (2, 0.776)},
            "35% of what only same precision allows (7 draws)",
        ),
    ],
)
def test_how_much_may_be_left_to_find_is_said_where_it_is_little(
    template: str, left: dict[str, tuple[int, float]], said: str
) -> None:
    found = {name: LeftToFind(*figures) for name, figures in left.items()}
    text = html.unescape(render(msgspec.structs.replace(whole(), left=found), template))
    assert text.count("drawn at random") == bool(said)
    assert said in text
    assert "what only reduced allows" not in text


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
@pytest.mark.parametrize(
    ("told", "words"),
    [
        ((0.0, 0.0, 0.185, 0, 12, "stable"), "Stable: nearly every start of your program gains"),
        ((1 / 3, 0.11, 0.65, 3, 9, "unstable"), "some starts of your program are slower than the"),
        ((0.0, 0.0, 0.445, 0, 4, "unknown"), "gains is unknown, for want of rounds."),
        (None, ""),  # a result of an earlier version
    ],
)
def test_whether_every_launch_of_a_winner_gains_is_told_in_words(
    template: str, told: tuple[Any, ...] | None, words: str
) -> None:
    data: dict[str, Any] = json.loads(msgspec.json.encode(whole()))
    for winner in data["winners"].values():
        winner.pop("stability")
    if told is not None:
        names = ("probability", "low", "high", "n_slower", "n_rounds", "word")
        data["winners"]["same_precision"]["stability"] = dict(zip(names, told, strict=True))
    result = msgspec.convert(data, Result)
    text, table = html.unescape(render(result, template)), measured(result)
    assert ("launches that may be slower" in text) == (told is not None)
    assert words in text
    row = next(row for row in table.rows if row[0] == "same precision")
    if told is not None:
        cells = dict(zip(table.heads, row, strict=True))
        assert cells["slower in"] == f"{told[3]} of {told[4]} rounds"
        assert cells["launches that may be slower"] == f"{told[1]:.0%} - {told[2]:.0%}"
