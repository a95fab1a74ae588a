"""A recommendation proved again, through the command that users type: made up, and in processes."""

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from tests.command import FINISHED, MARKER, Here, new_marker, run, wait_until_gone
from tests.made_up import MadeUpFake
from tuner.host.identity import probe
from tuner.record.files import read_recommendation, write_recommendation
from tuner.record.identities import differing
from tuner.record.interval import Interval
from tuner.record.recommendation import Recommendation, Setting
from tuner.space.differences import differences
from tuner.study.verification import Conclusion
from tuner.study.verify import refused_here


@pytest.fixture
def recommended(finished_study: Path) -> Recommendation:
    return read_recommendation(finished_study / "recommended.toml")


Found = tuple[subprocess.CompletedProcess[str], dict[str, Any]]


class Verify(Protocol):
    """Verify a recommendation by the command; return how it ended, and what it printed."""

    def __call__(
        self, recommendation: Recommendation, *arguments: str, in_processes: bool = False
    ) -> Found: ...


@pytest.fixture(scope="module")
def kept() -> dict[tuple[bytes, ...], Found]:
    """What was found of equal recommendations, which are verified once."""
    return {}


@pytest.fixture
def verified(here: Here, tmp_path: Path, kept: dict[tuple[bytes, ...], Found]) -> Verify:
    def verify(
        recommendation: Recommendation, *arguments: str, in_processes: bool = False
    ) -> Found:
        key = msgspec.json.encode(recommendation), *map(str.encode, arguments), b"%d" % in_processes
        if key not in kept:
            path = tmp_path / "recommended.toml"
            write_recommendation(path, recommendation)
            given = ("verify", str(path), "--json", *arguments)
            if in_processes:
                done = run(*given, cwd=tmp_path, is_virtual=True)
            else:
                done = here(*given, testbed=MadeUpFake())
            kept[key] = done, json.loads(done.stdout) if done.stdout else {}
        return kept[key]

    return verify


EITHER = pytest.mark.parametrize(
    "in_processes",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["made up", "in processes"],
)


def changed(recommendation: Recommendation, **parts: Any) -> Recommendation:
    return msgspec.structs.replace(recommendation, **parts)


def test_what_was_confirmed_is_confirmed_again(
    verified: Verify, recommended: Recommendation
) -> None:
    assert recommended.claim.verdict == "faster"
    done, found = verified(recommended)
    assert done.returncode == 0, done.stderr + done.stdout
    assert found["verdict"] == "confirmed"
    assert found["differences"] == []
    assert found["n_rounds"] == len(found["ratios"]) == 4
    assert found["claimed_default_value"] == recommended.claim.default_value
    assert found["default_value"] == pytest.approx(recommended.claim.default_value, rel=0.3)
    assert found["speedup"]["low"] > 1
    share = found["share"]
    assert 0.5 < share["low"] < share["point"] < share["high"]
    assert found["at_least"] is None


@pytest.mark.slow
def test_what_is_verified_is_read_back(verified: Verify, recommended: Recommendation) -> None:
    done, found = verified(recommended, in_processes=True)
    assert (done.returncode, found["verdict"]) == (0, "confirmed")
    assert found["n_rounds"] == len(found["ratios"]) == 4
    assert found["speedup"]["low"] > 1
    read_back = {item["knob"]: item["observed"] for item in found["read_back"]}
    for setting in recommended.settings:
        if setting.knob != "workload.batch":
            assert read_back[setting.knob] == setting.value
    assert found["not_in_force"] == []


@EITHER
def test_one_line_for_a_pipeline(
    here: Here,
    finished_study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_processes: bool,
) -> None:
    marker = new_marker()
    path = str(finished_study / "recommended.toml")
    if in_processes:
        temporary = {"TMPDIR": str(tmp_path), MARKER: marker}
        done = run("verify", path, "--quick", cwd=tmp_path, environment=temporary, is_virtual=True)
        assert wait_until_gone(marker) == []
    else:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        done = here("verify", path, "--quick", testbed=MadeUpFake())
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    (line,) = done.stdout.splitlines()
    ratio = r"\d\.\d\dx \(\d\.\d\d - \d\.\d\d\)"
    said = r"confirmed: faster than the default.*: \d+% of the claimed gain \(\d+% - \d+%\)"
    assert re.fullmatch(rf"{said}.*; here {ratio}; claimed {ratio}; \d rounds, \d+ s", line)


def test_a_claim_that_does_not_hold_here_is_refuted(
    verified: Verify, recommended: Recommendation
) -> None:
    assert recommended.claim.speedup is not None
    point = recommended.claim.speedup.point
    twice = 2 * point - 1
    boasting = msgspec.structs.replace(
        recommended.claim, speedup=Interval(twice, 0.6 * twice, 1.6 * twice, 0.95)
    )  # its interval holds what is here, and yet half of what it says is gone
    done, found = verified(changed(recommended, claim=boasting))
    assert (done.returncode, found["verdict"]) == (4, "refuted")
    assert re.match(r"faster, but \d\.\d\dx here of the claimed \d\.\d\dx", found["reason"])
    assert found["share"]["point"] == pytest.approx(0.5, abs=0.1)
    assert found["share"]["high"] < 1
    enough, found = verified(changed(recommended, claim=boasting), "--at-least", "25%")
    assert (enough.returncode, found["verdict"], found["at_least"]) == (0, "confirmed", 0.25)


@EITHER
def test_a_setting_that_crashes_here_is_refuted_once_it_did_so_by_itself(
    verified: Verify, recommended: Recommendation, in_processes: bool
) -> None:
    workload = msgspec.structs.replace(
        recommended.workload, model=f"{FINISHED};fake.layout=packed:exception"
    )
    others = [s for s in recommended.settings if s.knob != "fake.layout"]
    broken = msgspec.structs.replace(
        others[0], knob="fake.layout", value="packed", applies="model", needs_code_change=True
    )
    recommended = changed(recommended, workload=workload, settings=[*others, broken])
    done, found = verified(recommended, in_processes=in_processes)
    assert done.returncode == 4, done.stdout
    assert "by itself as well (crashed: " in found["reason"]
    assert "the fake framework was told to fail" in found["reason"]


@EITHER
def test_a_setting_that_breaks_the_outputs_here_is_refuted(
    verified: Verify, recommended: Recommendation, in_processes: bool
) -> None:
    workload = msgspec.structs.replace(
        recommended.workload, model=f"{FINISHED};fake.layout=packed:wrong_output"
    )
    others = [s for s in recommended.settings if s.knob != "fake.layout"]
    broken = msgspec.structs.replace(
        others[0], knob="fake.layout", value="packed", applies="model", needs_code_change=True
    )
    recommended = changed(recommended, workload=workload, settings=[*others, broken])
    done, found = verified(recommended, in_processes=in_processes)
    assert done.returncode == 4, done.stdout
    assert "wrong_output" in found["reason"]


@pytest.mark.slow
def test_what_does_not_end_within_the_time_is_given_up(
    tmp_path: Path, recommended: Recommendation
) -> None:
    """Each start of the model sleeps: describing, the reference and a launch exceed the budget."""
    marker = new_marker()
    workload = msgspec.structs.replace(recommended.workload, model=f"{FINISHED},start_s=3")
    path = tmp_path / "recommended.toml"
    write_recommendation(path, changed(recommended, workload=workload))
    arguments = ("verify", str(path), "--json", "--budget", "7s")
    done = run(*arguments, cwd=tmp_path, environment={MARKER: marker})
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"], found["n_rounds"]) == (5, "inconclusive", 0)
    assert found["reason"].startswith("the time was up")
    assert wait_until_gone(marker) == []


def test_where_nothing_is_recommended_nothing_may_be_set(
    here: Here, tmp_path: Path, recommended: Recommendation, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = msgspec.structs.replace(recommended.workload, model="not here")
    kept = changed(
        recommended, settings=[], environment={}, workload=workload,
        claim=msgspec.structs.replace(recommended.claim, verdict="keep_default", speedup=None),
    )  # fmt: skip
    path = tmp_path / "recommended.toml"
    write_recommendation(path, kept)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    set_here = here("verify", str(path))
    assert set_here.returncode == 0
    assert "; 0 rounds, " in set_here.stdout
    told = " ".join(set_here.stderr.split())
    assert "set in this shell, and not in what is measured: OMP_NUM_THREADS" in told


def test_both_are_measured_at_their_batches_whatever_the_models_own(
    verified: Verify, recommended: Recommendation
) -> None:
    """As after --batch: the study's reference is not the model's, and no setting says so."""
    card_batch, other = 4, 8
    settings = [s for s in recommended.settings if s.knob != "workload.batch"]
    workload = msgspec.structs.replace(recommended.workload, batch=other, default_batch=other)
    done, found = verified(changed(recommended, settings=settings, workload=workload))
    assert done.returncode in (0, 4), done.stderr
    back = changed(
        recommended, settings=settings,
        workload=msgspec.structs.replace(workload, batch=card_batch, default_batch=card_batch),
    )  # fmt: skip
    _, at_own = verified(back)
    assert found["speedup"]["point"] == pytest.approx(at_own["speedup"]["point"], rel=0.2)


def test_a_library_that_is_not_here_refutes(recommended: Recommendation) -> None:
    gone = Setting("launch.allocator", "tcmalloc", "launch", False, "")
    host = msgspec.structs.replace(probe(), libraries={})
    here = host.fingerprint()
    there = msgspec.structs.replace(recommended.host, fingerprint=here)
    found = refused_here(changed(recommended, settings=[gone], host=there), host)
    assert found is not None
    assert found.verdict is Conclusion.REFUTED
    assert "no such library is installed here" in found.reason


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"source_sha256": "f" * 64}, "is not the model that was tuned"),
        ({"form": "program"}, "cannot be verified"),
        ({"default_batch": None}, "older version"),
        ({"model": "nosuchmodel"}, "nosuchmodel, which is not built in: name its file or folder"),
        ({"model": "./evil.py"}, "which would be loaded and run"),
    ],
)
def test_what_cannot_be_verified_is_said_on_one_line(
    here: Here, tmp_path: Path, recommended: Recommendation, parts: dict[str, Any], said: str
) -> None:
    (tmp_path / "evil.py").write_text("open('was run', 'w')\n")
    workload = msgspec.structs.replace(recommended.workload, **parts)
    path = tmp_path / "recommended.toml"
    write_recommendation(path, changed(recommended, workload=workload))
    done = here("verify", str(path), "--json", testbed=MadeUpFake())
    assert not (tmp_path / "was run").exists()
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not a recommendation"),
        ("nonsense =", "is not a recommendation"),
        (None, "cannot read"),
    ],
)
def test_what_is_no_recommendation_is_refused(
    here: Here, tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "recommended.toml"
    if content is not None:
        path.write_text(content)
    done = here("verify", str(path))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_another_host_is_named_part_by_part(recommended: Recommendation) -> None:
    host = probe()
    assert differences(recommended, host) == []
    identity = recommended.host.identity
    assert differing(identity, host.identity()) == {}
    other = {
        **identity,
        "processor": identity["processor"] | {"model": "Another"},
        "versions": identity["versions"] | {"kernel": "2.6"},
        "libraries": {"tcmalloc": "/gone.so", "jemalloc": "/gone.so"},
        "memory_gib": 1.0,
        "quota_cores": 1.5,
    }
    tcmalloc = Setting("launch.allocator", "tcmalloc", "launch", False, "")
    there = msgspec.structs.replace(recommended.host, fingerprint="f" * 64, identity=other)
    told = differences(changed(recommended, host=there, settings=[tcmalloc]), host)
    found = {d.what: d for d in told}
    assert (found["processor, model"].there, found["processor, model"].here) == (
        "Another", host.processor.model,
    )  # fmt: skip
    assert found["quota cores"].there == "1.5"
    assert {d.what for d in told if d.matters} == {
        "processor, model", "quota cores", "libraries, tcmalloc",
    }  # fmt: skip
    assert {"versions, kernel", "libraries, jemalloc", "memory gib"} <= set(found)


def test_of_an_older_file_less_is_known(recommended: Recommendation) -> None:
    host = probe()
    there = msgspec.structs.replace(
        recommended.host, fingerprint="f" * 64, cpu="Another", physical_cores=999, identity={}
    )
    versions = recommended.versions | {"python": "2.7", "torch": "0.1"}
    found = {
        d.what: d for d in differences(changed(recommended, host=there, versions=versions), host)
    }
    assert set(found) == {"processor", "cores", "python", "torch"}
    assert (found["processor"].there, found["processor"].here) == ("Another", host.processor.model)
    assert [found[name].matters for name in ("processor", "torch", "python")] == [True, True, False]
    same = msgspec.structs.replace(recommended.host, fingerprint="f" * 64, identity={})
    built = {name: f"{version}+cu130" for name, version in recommended.versions.items()}
    (rest,) = differences(changed(recommended, host=same, versions=built), host)
    assert rest.what == "the rest of the host"
