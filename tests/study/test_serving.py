"""Studies of a server whose speed is known: the highest rate within a latency, on the fake."""

import itertools
import json
import math
import random
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.command import Here, run
from tests.study.fake_studies import study
from tuner.record.configuration import Value
from tuner.record.files import RESULT_SCHEMA
from tuner.record.launch import Purpose
from tuner.record.store import Store
from tuner.space.knobs_of.launch import MAX_WAIT
from tuner.worker.frameworks.fake.surface import CHOICES, Surface

MODEL = "fake@seed=2,noise=0.003,drift=0.0"
"""Without drift: how many times as many requests are in time depends on how fast the host is."""
SMALL = ("--numerics", "same", *itertools.chain.from_iterable(
    ("--exclude", knob) for knob in ("launch.allocator", "fake.compile", "fake.streams")
), "--set", "server.max_wait_ms=5")  # fmt: skip
"""A space that is soon known. What trials take is estimated, and no part of the test's clock."""
OTHER = ("--numerics", "same", *itertools.chain.from_iterable(
    ("--exclude", knob) for knob in ("launch.allocator", "fake.compile", "env.FAKE_THREADS")
))  # fmt: skip
BUDGET = "1500s"
TRACED = "4000s"
"""Where requests come in pairs, fewer are in time, and as many take longer."""


@pytest.fixture(scope="module")
def served(shared_study: Callable[..., Path]) -> tuple[Path, dict[str, Any]]:
    """One study of a server, whose latency the tool has to find itself."""
    out = shared_study(MODEL, BUDGET, *SMALL, "--scenario", "server")
    return out.parent, json.loads((out / "result.json").read_text())


def test_a_budget_that_holds_no_verdict_is_searched_to_its_end_for_hints(tmp_path: Path) -> None:
    """The only server of the fast tier; a space of three layouts and three batches."""
    space = (*SMALL, "--exclude", "env.FAKE_THREADS")
    result = study(tmp_path, MODEL, "20s", *space, "--scenario", "server", "--slo", "p99=60ms")
    told = "; ".join(result["warnings"])
    assert "expect no verdict, but hints of what is fast" in told
    assert "exhausted" in result["phases"]["explore"] and len(result["trials"]) >= 9
    assert "hold no first look" in result["phases"]["confirm"]
    assert "to confirm anything" in told and "to confirm the best baseline" not in told
    winner = result["winners"]["same_precision"]
    assert winner["verdict"] == "ambiguous" and winner["n_rounds"] == 0
    assert winner["configuration"] and winner["search_ratio"] > 1
    report = (tmp_path / "out/report.md").read_text()
    assert f"{winner['search_ratio']:.2f}x in the search" in report


@pytest.mark.slow
def test_a_server_is_judged_by_the_rate_that_it_answers_in_time(
    served: tuple[Path, dict[str, Any]],
) -> None:
    cwd, result = served
    jsonschema.validate(result, json.loads(RESULT_SCHEMA.read_text()))
    told = result["objective"]
    assert (told["metric"], told["unit"]) == ("rate_within", "requests/s")
    winner, default = result["winners"]["same_precision"], result["default"]
    assert (winner["verdict"], result["default_meets_slo"]) == ("faster", True)
    ratio = winner["value"]["point"] / default["value"]["point"]
    assert result["speedup"]["point"] == pytest.approx(ratio, rel=1e-3)
    for section in (winner, default):
        serving = section["serving"]
        assert serving["n_met"] == serving["n_launches"] >= 4
        within = [t for t in serving["rates"] if t["quantile_s"] <= told["slo"]["seconds"]]
        assert max(t["rate"] for t in within) >= 0.9 * section["value"]["low"]
        assert 0 <= serving["queue_share"] < 1
    report = (cwd / "out/report.md").read_text()
    assert "requests/s" in report and "They were sorted in the servers' own processes" in report


@pytest.mark.slow
def test_the_bound_is_five_times_what_the_default_takes_alone_and_stays(
    served: tuple[Path, dict[str, Any]],
) -> None:
    cwd, result = served
    slo = result["objective"]["slo"]
    with Store(cwd / "out") as store:
        alone = [r for r in store.launches.values() if r.request.purpose is Purpose.BOUND]
        rates = [s.served for r in store.launches.values() for s in r.slices]
        prepared = [r.prepared for r in store.launches.values() if r.prepared is not None]
    assert len(alone) == 1
    calls = sorted(s for taken in alone[0].slices for s in taken.call_s)
    assert slo["seconds"] == pytest.approx(5 * calls[len(calls) // 2], rel=0.01)
    assert slo["quantile"] == 0.99
    assert any("no --slo was given" in text for text in result["warnings"])
    assert any(each is not None and each.offered for each in rates)
    waits = [i for p in prepared for i in p.read_back if i.knob == MAX_WAIT]
    assert {(i.requested, i.observed, i.evidence) for i in waits} == {(5, 5, "effective")}
    recommended = tomllib.loads((cwd / "out/recommended.toml").read_text())
    assert recommended["slo"]["seconds"] == slo["seconds"]


@pytest.mark.slow
def test_what_was_claimed_of_a_server_is_verified_by_its_rate(
    served: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    cwd, result = served
    path = cwd / "out/recommended.toml"
    done = run("verify", str(path), "--budget", BUDGET, "--json", cwd=tmp_path, is_virtual=True)
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"], found["unit"]) == (0, "confirmed", "requests/s")
    assert found["default_value"] == pytest.approx(result["default"]["value"]["point"], rel=0.3)


@pytest.mark.slow
def test_the_same_command_keeps_to_the_bound_that_was_found(
    here: Here, served: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    cwd, result = served
    shutil.copytree(cwd / "out", tmp_path / "out")
    given = ("--model", MODEL, "--hw", "fake", "--budget", BUDGET, *SMALL, "--scenario", "server")
    done = here(*given, "--out", "out")
    assert done.returncode == 0, done.stderr
    again = json.loads((tmp_path / "out/result.json").read_text())
    assert again["objective"]["slo"] == result["objective"]["slo"]
    # the last digit of a least-squares fit depends on where its arrays lie in memory
    assert again["speedup"] == pytest.approx(result["speedup"], rel=1e-12)


def write_trace(folder: Path, n_requests: int) -> Path:
    """Write arrivals in pairs: two requests at once, then a pause."""
    draw, moment, lines = random.Random(1), 0.0, list[str]()
    for _ in range(n_requests // 2):
        moment += draw.expovariate(1.0)
        lines += [f"{moment + i / 1e4:.6f}" for i in range(2)]
    path = folder / "arrivals.csv"
    path.write_text("\n".join(["when", *sorted(lines, key=float)]))
    return path


@pytest.mark.slow
def test_recorded_arrivals_are_compressed_in_time(
    here: Here, served: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    _, result = served
    slo = result["objective"]["slo"]
    bound, trace = f"p99={1000 * slo['seconds']:.4f}ms", write_trace(tmp_path, 1800)
    asked = ("--scenario", "server", "--slo", bound, "--trace", str(trace))
    traced = study(tmp_path, MODEL, TRACED, *SMALL, *asked)
    jsonschema.validate(traced, json.loads(RESULT_SCHEMA.read_text()))
    told = traced["objective"]["slo"]["trace"]
    assert (told["n_requests"], told["path"]) == (1800, str(trace))
    assert traced["identity"] != result["identity"]
    rate = traced["default"]["value"]["point"]
    # two at once wait for each other: fewer of them are in time than of single ones
    assert rate < 0.9 * result["default"]["value"]["point"]
    report = (tmp_path / "out/report.md").read_text()
    assert "times the trace's pace" in report and "arrivals.csv" in report
    assert traced["default"]["validations"] == []

    moved = trace.rename(tmp_path / "moved.csv")
    path = str(tmp_path / "out/recommended.toml")
    given = ("verify", path, "--budget", TRACED, "--json")
    done = here(*given)
    assert done.returncode == 2 and "name the file with --trace" in done.stderr
    done = run(*given, "--trace", str(moved), cwd=tmp_path, is_virtual=True)
    assert json.loads(done.stdout)["verdict"] == "confirmed"
    moved.write_text(moved.read_text() + "\n1e9\n")
    done = here(*given, "--trace", str(moved))
    assert done.returncode == 2 and "is not the trace that" in done.stderr


@pytest.mark.slow
def test_a_default_that_is_never_in_time_has_no_speedup_but_rates(tmp_path: Path) -> None:
    """The fake's default takes longer for one request than the bound; its best does not."""
    surface = Surface(seed=2)

    def alone_ms(**settings: Value) -> float:
        named = {f"fake.{name}": value for name, value in settings.items()}
        return 1000 / math.exp(surface.log_rate({"workload.batch": 1, **named}))

    searched = itertools.product(CHOICES["fake.streams"], CHOICES["fake.layout"])
    best_ms = min(alone_ms(streams=streams, layout=layout) for streams, layout in searched)
    bound = f"p99={(alone_ms() * best_ms) ** 0.5:.4f}ms"
    asked = ("--scenario", "server", "--slo", bound, "--exclude", "server.max_wait_ms")
    result = study(tmp_path, MODEL, "6000s", *OTHER, *asked)  # the default's are low
    assert (result["verdict"], result["default_meets_slo"]) == ("faster", False)
    assert result["speedup"] is None
    assert result["winners"]["same_precision"]["speedup"] is None
    # nor a ratio of the search: that to a server which serves nobody in time
    assert {t["search_ratio"] for t in result["trials"]} == {None}
    assert "not measured" not in (tmp_path / "out/report.md").read_text()
    assert result["winners"]["same_precision"]["value"]["point"] > 1.0
    report = (tmp_path / "out/report.md").read_text()
    assert "the default kept within the bound" in report
    assert "at no rate that was tried" in report
    path = str(tmp_path / "out/recommended.toml")
    done = run("verify", path, "--budget", BUDGET, "--json", cwd=tmp_path, is_virtual=True)
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"]) == (0, "confirmed")
    assert "the default in 0" in found["reason"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--slo", "p99=15ms"), "take --scenario server"),
        (("--scenario", "single-stream", "--slo", "p99=15ms"), "take --scenario server"),
        (("--scenario", "server", "--slo", "15ms"), "write p99=15ms"),
        (("--scenario", "server", "--slo", "p99=15"), "write p99=15ms"),
        (("--scenario", "server", "--slo", "p99=0ms"), "a latency above 0"),
        (("--scenario", "server", "--slo", "p10=1ms"), "p50 to p99.9"),
        (("--scenario", "server", "--slo", "p99.99=1ms"), "p50 to p99.9"),
        (("--scenario", "server", "--slo", ""), "write p99=15ms"),
        (("--fix", "server.max_wait_ms=5"), "server.max_wait_ms"),
        (("--trace", "none.csv"), "a trace is about requests that arrive by themselves"),
        (("--scenario", "server", "--trace", "none.csv"), "none.csv: No such file"),
        (("--scenario", "server", "--trace", "."), "cannot read the trace"),
    ],
)
def test_what_cannot_be_asked_of_a_server_is_said(
    here: Here, arguments: tuple[str, ...], words: str
) -> None:
    done = here("--model", MODEL, "--hw", "fake", "--dry-run", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
