"""Studies side by side: what changed, and whether by more than the intervals allow."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.command import Here
from tests.output.test_figures import SAMPLE, SAMPLES
from tuner.output.compare import StudyFound, compare, find_studies
from tuner.record.configuration import Value
from tuner.record.files import read_result, write_result
from tuner.record.index import FLEET_FILE, Elsewhere, Index, Row, write_index_file
from tuner.record.interval import Interval
from tuner.record.result import Result
from tuner.record.why import ClassTime, OperatorClass, Why


def sample(**changes: Any) -> Result:
    return msgspec.structs.replace(read_result(SAMPLE), **changes)


def at_rate(result: Result, point: float) -> Result:
    rate = Interval(point, point * 0.97, point * 1.03, 0.95)
    default = msgspec.structs.replace(result.default, rate=rate)
    return msgspec.structs.replace(result, default=default)


def shifts(before: Result, after: Result) -> dict[str, tuple[str, float | None]]:
    change = compare([StudyFound("one", before), StudyFound("two", after)]).changes[0]
    return {
        s.figure: (s.direction, None if s.ratio is None else round(s.ratio.point, 2))
        for s in change.shifts
    }


def test_a_slower_framework_is_a_regression_and_noise_is_none() -> None:
    old = at_rate(sample(created="2026-01-01T00:00:00+00:00"), 100.0)
    new = {"created": "2026-02-01T00:00:00+00:00", "versions": {**old.versions, "torch": "9.9"}}
    slower = at_rate(msgspec.structs.replace(old, **new), 80.0)
    same = at_rate(msgspec.structs.replace(old, **new), 97.0)
    assert shifts(old, slower)["default's speed"] == ("slower", 0.8)
    assert shifts(old, same)["default's speed"] == ("no change seen", 0.97)
    assert shifts(old, at_rate(slower, 120.0))["default's speed"] == ("faster", 1.2)
    change = compare([StudyFound("two", slower), StudyFound("one", old)]).changes[0]
    assert (change.before, change.after) == ("one", "two")  # in the order of their dates
    assert change.is_regression
    assert f"torch: {old.versions['torch']} -> 9.9" in change.differs


def explained(convolution_s: float) -> Why:
    """A study's default whose convolutions take this long; its elementwise operators 1 ms."""

    def about(seconds: float) -> Interval:
        return Interval(seconds, 0.95 * seconds, 1.05 * seconds, 0.95)

    classes = [
        ClassTime(OperatorClass.CONVOLUTION, about(convolution_s), about(0.01), about(0.0)),
        ClassTime(OperatorClass.ELEMENTWISE, about(0.001), about(0.001), about(0.0)),
    ]
    return Why({}, 3, convolution_s + 0.001, 0.011, classes, None, about(1.0), "a profiler")


def test_what_makes_a_default_slower_is_named_if_both_were_explained() -> None:
    old = sample(created="2026-01-01T00:00:00+00:00", why=[explained(0.01)])
    new = sample(created="2026-02-01T00:00:00+00:00", why=[explained(0.015)])
    (change,) = compare([StudyFound("one", old), StudyFound("two", new)]).changes
    assert change.because == ["convolution of the default: 10 ms an item, then 15 ms"]
    for before, after in (
        (old, sample(created="3")),
        (old, msgspec.structs.replace(new, why=old.why)),
    ):
        (change,) = compare([StudyFound("one", before), StudyFound("two", after)]).changes
        assert change.because == []


def test_the_interval_of_a_quotient_holds_both_uncertainties() -> None:
    old, new = at_rate(sample(created="1"), 100.0), at_rate(sample(created="2"), 100.0)
    ratio = compare([StudyFound("1", old), StudyFound("2", new)]).changes[0].shifts[0].ratio
    assert ratio is not None
    assert ratio.point == 1.0
    assert ratio.low == pytest.approx(1 - 2**0.5 * 0.03, abs=0.001)
    assert ratio.high == pytest.approx(1 + 2**0.5 * 0.03, abs=0.002)


def test_a_faster_default_is_no_regression_though_the_speedup_shrinks() -> None:
    speedup = Interval(1.5, 1.45, 1.55, 0.95)
    old = at_rate(sample(created="1", speedup=speedup), 100.0)
    new = at_rate(sample(created="2", speedup=Interval(1.2, 1.16, 1.24, 0.95)), 130.0)
    assert shifts(old, new)["speedup"] == ("smaller", 0.8)
    change = compare([StudyFound("1", old), StudyFound("2", new)]).changes[0]
    assert not change.is_regression
    undecided = msgspec.structs.replace(new, verdict="ambiguous")
    assert shifts(old, undecided)["speedup"] == ("not known", None)


def test_other_hardware_is_named_and_is_no_regression() -> None:
    old = at_rate(sample(created="1"), 100.0)
    identity = {**old.host.identity, "libraries": {}, "physical_cores": 1}
    host = msgspec.structs.replace(old.host, identity=identity, fingerprint="another")
    change = compare(
        [StudyFound("1", old), StudyFound("2", at_rate(sample(created="2", host=host), 50.0))]
    ).changes[0]
    assert "physical cores: 2 -> 1" in change.differs
    assert any(text.startswith("libraries, tcmalloc: /usr/lib") for text in change.differs)
    assert change.shifts[0].direction == "slower"
    assert not change.is_regression


def test_a_host_that_differs_in_what_is_not_listed_is_not_called_the_same() -> None:
    old = sample(created="1")
    host = msgspec.structs.replace(old.host, fingerprint="another")
    change = compare([StudyFound("1", old), StudyFound("2", sample(created="2", host=host))])
    assert change.changes[0].differs == ["the host, in what its result does not name"]


def test_a_fleets_hosts_are_each_compared_with_themselves() -> None:
    here = sample().host
    other = msgspec.structs.replace(
        here, identity={**here.identity, "physical_cores": 64}, fingerprint="another"
    )
    rates = {"a old": 100.0, "b old": 400.0, "a new": 70.0, "b new": 420.0}
    studies = [
        StudyFound(
            name, at_rate(sample(created=str(i), host=here if name[0] == "a" else other), rate)
        )
        for i, (name, rate) in enumerate(rates.items())
    ]
    changes = compare(studies).changes
    pairs = {(c.before, c.after): c.is_regression for c in changes}
    assert pairs == {
        ("a old", "a new"): True,
        ("b old", "b new"): False,
        ("a new", "b new"): False,  # the latest of each host
    }


def test_two_kinds_of_host_of_one_fleet_stand_beside_each_other(here: Here, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    own = sample().host
    for kernel, rate in (("5.15", 100.0), ("6.1", 70.0)):
        (fleet / kernel).mkdir(parents=True)
        host = msgspec.structs.replace(own, fingerprint=kernel)
        found = at_rate(sample(created=kernel, host=host), rate)
        write_result(fleet / kernel / "result.json", found)
    (fleet / FLEET_FILE).touch()
    confirmed = Elsewhere("b7", "confirmed", "", Interval(1.3, 1.2, 1.4, 0.95), 3, 60.0)
    rows = [
        Row("resnet50", "torch", folder=k, hosts=[f"of {k}"], verdict="faster",
            elsewhere=[confirmed], n_elsewhere=1)
        for k in ("5.15", "6.1")
    ]  # fmt: skip
    write_index_file(fleet, Index(rows))
    (change,) = compare(find_studies([fleet])).changes
    assert change.shifts[0].direction == "slower"
    assert not change.is_regression  # neither is what the other was before
    shown = here("compare", "fleet", "--out", "compare.html")
    assert "5.15 beside 6.1" in shown.stdout
    assert "tune both again" not in shown.stdout
    page = (tmp_path / "compare.html").read_text()
    assert "5.15 beside 6.1" in page
    for text in (shown.stdout, page):
        assert "of 6.1" in text
        assert "b7: confirmed" in text
    assert "b7: confirmed, 1.30x (1.20 - 1.40)" in page
    # the same host with another kernel is what it was before
    write_index_file(fleet, Index([msgspec.structs.replace(r, hosts=["one"]) for r in rows]))
    (change,) = compare(find_studies([fleet])).changes
    assert change.is_regression
    assert change.title == "5.15, then 6.1"


def test_studies_and_changes_are_in_the_order_of_time_whatever_the_model_and_the_host() -> None:
    here = sample().host
    other = msgspec.structs.replace(
        here, identity={**here.identity, "physical_cores": 64}, fingerprint="another"
    )
    hosts = {"1 here": here, "2 there": other, "4 here": here}
    studies = [
        StudyFound(name, sample(created=f"2026-01-0{name[0]}T00:00:00+00:00", host=host))
        for name, host in hosts.items()
    ]
    early = sample(model="a", created="2026-01-03T00:00:00+00:00")
    found = compare([StudyFound("3 of another model", early), *reversed(studies)])
    assert [s.name for s in found.studies] == ["1 here", "2 there", "3 of another model", "4 here"]
    pairs = [(c.before, c.after) for c in found.changes]
    assert pairs == [("1 here", "4 here"), ("2 there", "4 here")]  # never a later one before


def test_another_file_of_the_same_name_is_another_model() -> None:
    old = at_rate(sample(created="1", source_sha256="a" * 64), 100.0)
    new = at_rate(sample(created="2", source_sha256="b" * 64), 50.0)
    change = compare([StudyFound("1", old), StudyFound("2", new)]).changes[0]
    assert change.differs == [f"the model's file: {'a' * 12} -> {'b' * 12}"]
    assert change.shifts[0].direction == "slower"
    assert not change.is_regression


def test_studies_of_other_numerics_are_not_set_against_each_other() -> None:
    pair = [StudyFound("1", sample(created="1")), StudyFound("2", sample(numerics="reduced"))]
    assert compare(pair).changes == []


def test_escapes_in_a_result_do_nothing_to_a_terminal(here: Here, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    escape = "\x1b]52;c;AAAA\x07"
    write_result(
        tmp_path / "one/result.json", sample(model_title=f"a{escape}b", model=f"a{escape}b")
    )
    for arguments in (("compare", "one"), ("report", "one")):
        shown = here(*arguments)
        assert shown.returncode == 0, shown.stderr
        assert "a?]52;c;AAAA" in shown.stdout  # rich drops a bell itself
        assert "\x1b]" not in shown.stdout


def test_what_was_not_measured_is_not_known() -> None:
    nothing = msgspec.structs.replace(sample().default, rate=None)
    assert shifts(sample(created="1"), sample(created="2", default=nothing))["default's speed"] == (
        "not known", None,
    )  # fmt: skip


def test_only_studies_of_the_same_workload_are_set_against_each_other() -> None:
    everything = find_studies(sorted(SAMPLES.glob("*.json")))
    assert {s.name for s in everything} == {
        "resnet50-torch", "resnet50-tensorflow", "bert-base-torch", "bert-base-tensorflow",
    }  # fmt: skip
    assert compare(everything).changes == []
    assert compare(everything[:1]).changes == []


def test_what_is_recommended_now_and_was_not_before_is_named() -> None:
    result = sample()
    winner_class = result.recommended_class

    def recommending(created: str, settings: dict[str, Value]) -> Result:
        winner = msgspec.structs.replace(result.winners[winner_class], configuration=settings)
        return sample(created=created, winners=result.winners | {winner_class: winner})

    before: dict[str, Value] = {"launch.allocator": "tcmalloc", "torch.compile.mode": "freezing"}
    old = recommending("1", {**before, "workload.batch": 16})
    new = recommending("2", {"launch.allocator": "jemalloc", "workload.batch": 16})
    change = compare([StudyFound("1", old), StudyFound("2", new)]).changes[0]
    assert "launch.allocator: tcmalloc -> jemalloc" in change.differs
    assert "torch.compile.mode: freezing -> default" in change.differs
    assert not [text for text in change.differs if text.startswith("workload.batch")]


def two_studies(cwd: Path) -> None:
    for folder, rate, created in (("old", 100.0, "2026-01-01T12:30:00"), ("new", 70.0, "2026-02")):
        (cwd / folder).mkdir()
        write_result(cwd / folder / "result.json", at_rate(sample(created=created), rate))


def test_the_command_prints_a_table_and_writes_a_page(here: Here, tmp_path: Path) -> None:
    two_studies(tmp_path)
    done = here("compare", "old", "new", "--out", "compare.html")
    assert done.returncode == 0, done.stderr
    assert "old, then new" in done.stdout
    assert "2026-01-01 12:30" in done.stdout
    assert "default's speed: 0.70x" in done.stdout
    assert "slower" in done.stdout
    page = (tmp_path / "compare.html").read_text()
    assert "old, then new" in page
    assert "0.70x" in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    told = json.loads(here("compare", ".", "--json").stdout)
    assert [s["name"] for s in told["studies"]] == ["old", "new"]
    assert told["changes"][0]["shifts"][0]["direction"] == "slower"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere",), "nowhere: there is no such folder"),
        (("begun",), "begun: the study in begun/fc-torch has no result yet; the command that"),
        (("empty",), "empty: no result.json lies below it; name the folder of an earlier study"),
        (("broken",), "is not a result that this version reads"),
        ((), "Missing argument"),
    ],
)
def test_bad_input_is_one_line(
    here: Here, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "begun/fc-torch").mkdir(parents=True)
    (tmp_path / "begun/fc-torch/study.jsonl").write_text("")
    (tmp_path / "broken/result.json").write_text("{}")
    done = here("compare", *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_defaults_that_were_fastest_at_two_batches_are_told_apart() -> None:
    old = at_rate(sample(created="1"), 100.0)
    new = at_rate(sample(created="2"), 50.0)
    new = msgspec.structs.replace(new, default=msgspec.structs.replace(new.default, batch=99))
    change = compare([StudyFound("1", old), StudyFound("2", new)]).changes[0]
    assert change.is_regression
    assert change.shifts[0].note == f"fastest at batch {old.default.batch}, then at 99"


def test_why_a_speedup_is_not_known_is_said() -> None:
    old = sample(created="1")
    new = msgspec.structs.replace(sample(created="2"), verdict="keep_default")
    change = compare([StudyFound("one", old), StudyFound("two", new)]).changes[0]
    assert change.shifts[-1].note == "nothing was recommended after"
