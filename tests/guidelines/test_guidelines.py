"""From studies to rules to a recommendation, on the fake, whose truth the rules must meet."""

import copy
import json
import math
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any, cast

import jsonschema
import numpy as np
import pytest

import tuner
from tests.command import DESIGNED, Here, result_of, run
from tests.conftest import made_once
from tuner.app import recommend as recommending
from tuner.app.plan import plan
from tuner.app.request import Request
from tuner.errors import NothingMeasured
from tuner.galleries import MODELS
from tuner.guidelines import calibration
from tuner.guidelines.calibration import Calibration
from tuner.guidelines.prior import as_earlier
from tuner.host.identity import probe
from tuner.launchers.describe import describe_model, find_model
from tuner.launchers.made_up import MadeUp
from tuner.launchers.recorded import RecordedTestbed
from tuner.record.configuration import Configuration
from tuner.record.files import read_recommendation
from tuner.record.guidelines import (
    GUIDELINES_SCHEMA,
    RECORDING_SCHEMA,
    read_guidelines,
)
from tuner.record.journal import TRANSFERRED
from tuner.record.launch import Purpose
from tuner.record.outcome import Ending, Outcome
from tuner.record.winner_class import WinnerClass
from tuner.space.design import Factors
from tuner.study.trial_run import TrialRun, trial_runs
from tuner.worker.frameworks.fake.surface import Surface

pytestmark = pytest.mark.usefixtures("described_once")
NOT_ALIKE = "of models and hosts like those that were measured, which is not so here"
FAMILIES = ("cnn", "encoder", "decoder", "recommendation", "recurrent")
SURFACE = Surface(seed=3, noise=0.003)
MODEL = """
from tuner.worker.frameworks.fake import Surface
from tuner.worker.gallery import Features, Model

MODEL = Model(title="Unseen", task="none", kind="{kind}", family="mlp",
              inputs=(Features(16),), reference_batch=4, batches=(4, 16), n_classes=32)


def fake() -> Surface:
    return Surface(seed=3, noise=0.003)
"""


@pytest.fixture
def as_shipped() -> None:
    """Have intervals as real models need them."""


@pytest.fixture(autouse=True)
def adds_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake's effects add up and are the same everywhere, but for its noise."""
    if "as_shipped" in request.fixturenames:
        return
    exact = Calibration(0.0, 77, 87, [], "")
    monkeypatch.setattr(calibration, "shipped", lambda: exact)


class Untried:
    """A trial run in which everything runs."""

    is_over = False

    def fault(self, configuration: Configuration) -> None:
        """Find none."""


@pytest.fixture
def tried() -> None:
    """Have what is recommended launched."""


@pytest.fixture(autouse=True)
def untried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the launches of what is recommended, but where they are what is tested."""
    if "tried" not in request.fixturenames:
        monkeypatch.setattr(recommending, "trial_runs", lambda *_: nullcontext(Untried()))


def trying(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[Configuration], Ending | None]
) -> None:
    """Have trial runs launch made-up processes, which end as told."""
    testbed = on_recordings(write_model(), fault)

    def on_testbed(*given: Any) -> AbstractContextManager[TrialRun]:
        workload, facts, objective, host, seconds, listen, _ = given
        return trial_runs(workload, facts, objective, host, seconds, listen, testbed)

    monkeypatch.setattr(recommending, "trial_runs", on_testbed)


def on_recordings(
    model: str, fault: Callable[[Configuration], Ending | None] = lambda _: None
) -> RecordedTestbed:
    """Return a testbed on which a model of the fake is as fast as the truth has it."""
    ref, card = find_model(model, MODELS)
    source = MadeUp(
        lambda configuration: SURFACE.log_rate(configuration.as_dict()),
        launch_sd=SURFACE.noise,
        slice_sd=SURFACE.noise,
        fault=fault,
        start_s=0.2,
        slice_s=0.01,
        check_s=0.01,
    )
    return RecordedTestbed(source, card, describe_model(ref, "fake", 0))


def let_try(monkeypatch: pytest.MonkeyPatch, slow: str, left_s: float = 0.0) -> list[Configuration]:
    """Have trial runs end in the time as told, with no process; return what will be launched.

    slow: a knob with which a launch is given up; "default": the reference is.
    left_s: of the time, after that.
    """
    time_s, launched, reference = [180.0], list[Configuration](), Path("reference")

    def make() -> None:
        if slow == "default":
            time_s[0] = left_s
            raise NothingMeasured("nothing can be measured: given up")
        reference.touch()

    def try_out(configuration: Configuration, _: Purpose) -> SimpleNamespace:
        launched.append(configuration)
        ending = Ending(Outcome.MEASURED)
        if slow in configuration.as_dict():
            time_s[0] = left_s
            ending = Ending(Outcome.TIMED_OUT, "slow")
        return SimpleNamespace(ending=ending, prepared=None)

    store, bench = SimpleNamespace(reference_path=reference), SimpleNamespace(try_out=try_out)
    trial = TrialRun(cast(Any, store), cast(Any, bench), make, lambda: time_s[0])
    monkeypatch.setattr(recommending, "trial_runs", lambda *_: nullcontext(trial))
    return launched


def write_model(kind: str = "other") -> str:
    """Write a model of a family that no study is of."""
    Path("unseen.py").write_text(MODEL.format(kind=kind))
    return "unseen.py"


def alike(result: dict[str, Any], family: str, random: np.random.Generator) -> dict[str, Any]:
    """Return a study as it might have been of a model of another family."""
    found: dict[str, Any] = copy.deepcopy(result)
    found["model"] = f"{family}-like"
    found["model_facts"]["family"] = family
    for cell in found["designed"]["cells"]:
        cell["log_ratio"] += random.normal(0, 0.004)
    return found


def in_nine_digits(text: str) -> Any:
    """Read JSON; where arrays lie in memory decides how BLAS rounds the last of 17 digits."""
    return json.loads(text, parse_float=lambda number: float(f"{float(number):.9g}"))


def truth(settings: dict[str, Any]) -> float:
    """Return how much faster than the default settings are."""
    return math.exp(SURFACE.log_rate(settings) - SURFACE.log_rate({}))


@pytest.fixture(scope="session")
def studies(tmp_path_factory: pytest.TempPathFactory, designed_study: Path) -> Path:
    def distil(folder: Path) -> None:
        result = json.loads((designed_study / "result.json").read_text())
        random = np.random.default_rng(1)
        for family in FAMILIES:
            own = folder / "studies" / family
            own.mkdir(parents=True)
            (own / "result.json").write_text(json.dumps(alike(result, family, random)))
        shutil.copytree(designed_study, folder / "studies" / "other")
        done = run("guidelines", "studies", "--out", "rules", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "6 studies" in done.stdout

    return made_once(tmp_path_factory, "guidelines", distil)


def test_rules_meet_the_truth(studies: Path) -> None:
    found = read_guidelines(studies / "rules")
    rules = {rule.setting: rule for rule in found.rules}
    assert set(found.settings["fake"]) == {"threads", "compile", "layout", "precision"}
    alone: dict[str, dict[str, Any]] = {
        "threads": {"env.FAKE_THREADS": 4},
        "compile": {"fake.compile": "fast"},
        "precision": {"fake.precision": "bf16"},
    }
    for name, settings in alone.items():
        # the families' studies are copies of one, whose launches err together
        effect, real = rules[name].effect, truth(settings)
        assert effect.point == pytest.approx(real, rel=0.02), name
        assert rules[name].n_families == len(FAMILIES) + 1
        assert rules[name].condition is None
        if abs(math.log(real)) > 0.1:
            assert rules[name].advice == ("set" if real > 1 else "leave")
    (sd,) = found.launch_sd.values()
    assert 0 < sd < 0.05


def test_files_hold_what_their_schemas_say_and_teach_the_same_again(
    studies: Path, here: Here, as_shipped: None
) -> None:
    rules = studies / "rules"
    schema = json.loads(GUIDELINES_SCHEMA.read_text())
    first = in_nine_digits((rules / "guidelines.json").read_text())
    jsonschema.validate(first, schema)
    recordings = sorted((rules / "studies").glob("*.json"))
    assert len(recordings) == len(FAMILIES) + 1
    assert [p.stem.rpartition("-")[0] for p in recordings] == sorted(
        [*(f"{family}-like-fake" for family in FAMILIES), "fake@noise=0.003,seed=3-fake"]
    )
    for path in recordings:
        jsonschema.validate(json.loads(path.read_text()), json.loads(RECORDING_SCHEMA.read_text()))
    done = here("guidelines", str(rules), "--out", "again", "--json")
    assert done.returncode == 0, done.stderr
    again = in_nine_digits(done.stdout)
    assert again == in_nine_digits(Path("again/guidelines.json").read_text())
    assert {**again, "created": first["created"]} == first


def test_the_page_tells_each_rule_with_its_evidence(studies: Path) -> None:
    page = (studies / "rules" / "guidelines.md").read_text()
    html = (studies / "rules" / "guidelines.html").read_text()
    for text in (page, html):
        assert "env.FAKE_THREADS=4" in text
        assert "they speak of this host" in text
        assert "arXiv:2311.18174" in text
    for rule in read_guidelines(studies / "rules").rules:
        if rule.setting == "threads":
            assert f"{rule.effect.point:.2f}x" in page
    assert html.count("<figure") >= 4
    assert "None" not in page and "{{" not in page


def test_of_an_unseen_family_the_best_combination_is_predicted(studies: Path, here: Here) -> None:
    given = ("--model", write_model(), "--hw", "fake", "--guidelines", str(studies / "rules"))
    done = here("recommend", *given, "--numerics", "reduced", "--out", "rec", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    advised = found["advised"]["reduced_precision"]
    assert advised["verdict"] == "predicted"
    told = read_recommendation(Path("rec"))
    settings = {s.knob: s.value for s in told.settings}
    every = [
        {k: v for k, v in {
            "env.FAKE_THREADS": threads, "fake.compile": compile_, "fake.layout": layout,
            "fake.precision": precision}.items() if v is not None}
        for threads in (None, 4) for compile_ in (None, "fast")
        for layout in (None, "packed" if compile_ else "blocked") for precision in (None, "bf16")
    ]  # fmt: skip
    best = max(truth(each) for each in every)
    assert truth(settings) == pytest.approx(best, rel=0.01)
    speedup = told.claim.speedup
    assert speedup is not None and speedup.point == pytest.approx(best, rel=0.03)
    assert told.claim.rests_on and "families" in told.claim.rests_on[0]
    assert "nothing of it was measured on this model" in Path("rec/recommended.toml").read_text()
    same = read_recommendation(Path("rec/recommended.same_precision.toml"))
    assert "fake.precision" not in {s.knob for s in same.settings}


def test_what_another_host_alone_taught_is_not_set_here(studies: Path, here: Here) -> None:
    kept = json.loads((studies / "rules" / "guidelines.json").read_text())
    for study in kept["studies"]:
        study["host"] = study["facts"]["host"] = "Another with AVX2, 2 cores"
    Path("elsewhere.json").write_text(json.dumps(kept))
    done = here("recommend", "--model", write_model(), "--hw", "fake", "--guidelines",
                "elsewhere.json", "--numerics", "reduced", "--out", "rec", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    for advised in found["advised"].values():
        assert (advised["verdict"], advised["configuration"]) == ("not_known", {})
        assert "was measured on one other host" in advised["rests_on"][0]
    told = read_recommendation(Path("rec")).nothing_set
    assert told.startswith("not known") and "a study of this model tells" in told
    (note,) = [note for note in found["notes"] if "alone" in note]
    assert "threads, compile" in note
    assert "measured on Another with AVX2, 2 cores alone, so not set on" in note


FAULTY = """
from tuner.worker.frameworks.fake import Surface
from tuner.worker.gallery import Features, Model

MODEL = Model(title="Unseen", task="none", kind="other", family="mlp",
              inputs=(Features(16),), reference_batch=4, batches=(4, 16), n_classes=32)


def fake() -> Surface:
    return Surface(seed=3, noise=0.003, faults="{}")
"""


GIVEN = ("--hw", "fake", "--numerics", "reduced", "--out", "rec", "--json")


def check_that_the_next_best_is_advised(done: CompletedProcess[str]) -> None:
    """Check what is recommended where fake.compile=fast fails."""
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    advised = found["advised"]["reduced_precision"]
    assert (advised["verdict"], advised["configuration"]) == (
        "predicted", {"fake.precision": "bf16"},
    )  # fmt: skip
    assert found["advised"]["same_precision"]["configuration"] == {}
    told = [note for note in found["notes"] if "failed here" in note]
    assert told and all("fake.compile=fast" in note for note in told)
    assert all("it is not advised" in note for note in told)
    assert {f"note: {note}" for note in told} <= set(
        read_recommendation(Path("rec")).claim.rests_on
    )


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.NOT_APPLICABLE, Outcome.WRONG_OUTPUT])
def test_what_does_not_run_here_is_replaced_by_the_next_best(
    studies: Path, here: Here, tried: None, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    def fault(configuration: Configuration) -> Ending | None:
        return Ending(outcome, "told so") if configuration.get("fake.compile") == "fast" else None

    asked = ("recommend", "--model", write_model(), "--guidelines", str(studies / "rules"), *GIVEN)
    trying(monkeypatch, lambda _: None)
    (whole,) = json.loads(here(*asked).stdout)
    assert whole["advised"]["reduced_precision"]["configuration"].items() >= {
        ("fake.compile", "fast"), ("fake.precision", "bf16"),
    }  # fmt: skip
    trying(monkeypatch, fault)
    check_that_the_next_best_is_advised(here(*asked))


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["crash", "ignored", "wrong_output"])
def test_a_process_that_fails_is_replaced_like_any_launch(
    studies: Path, here: Here, tried: None, fault: str
) -> None:
    Path("faulty.py").write_text(FAULTY.format(f"fake.compile=fast:{fault}"))
    rules = str(studies / "rules")
    done = here("recommend", "--model", "faulty.py", "--guidelines", rules, *GIVEN)
    check_that_the_next_best_is_advised(done)


def test_a_trial_run_is_over_in_time(
    studies: Path, here: Here, tried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recommending, "TRIAL_S", 0.0)
    done = here("recommend", "--model", write_model(), "--hw", "fake", "--guidelines",
                str(studies / "rules"), "--out", "rec")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fake: not known: nothing is set\n")
    assert "rests on: nothing that is recommended ran here within 0 s" in done.stdout
    assert "find out, with a study: tune-framework --model unseen.py" in done.stdout


def threads_gain(studies: Path) -> str:
    """Write guidelines by which threads alone gain, too."""
    kept = json.loads((studies / "rules" / "guidelines.json").read_text())
    for rule in kept["rules"]:
        if rule["setting"] == "threads":
            rule.update(mean=0.3, spread=0.01)
    Path("threads_gain.json").write_text(json.dumps(kept))
    return "threads_gain.json"


def configurations(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [advised["configuration"] for advised in found["advised"].values()]


def test_what_ran_of_a_narrower_class_is_kept_when_the_time_is_up(
    studies: Path, here: Here, tried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("--model", write_model(), "--hw", "fake", "--guidelines", threads_gain(studies),
             "--numerics", "reduced", "--out", "rec", "--json")  # fmt: skip
    launched = let_try(monkeypatch, slow="fake.compile")
    (found,) = json.loads(here("recommend", *given).stdout)
    no_code, same, reduced = found["advised"].values()
    threads = {"env.FAKE_THREADS": 4}
    assert configurations(found) == [threads, threads, threads]
    assert no_code["verdict"] == same["verdict"] == reduced["verdict"] == "predicted"
    for wider in (same, reduced):
        assert wider["rests_on"] == [
            *no_code["rests_on"], "nothing beyond it ran here within 180 s",
        ]  # fmt: skip
    (narrow, compiled) = (each.as_dict() for each in launched)
    assert narrow == threads and "fake.compile" in compiled
    (told,) = [note for note in found["notes"] if "failed here" in note]
    assert "failed here, timed out: slow" in told  # and nothing of what was never launched
    let_try(monkeypatch, slow="fake.compile", left_s=90.0)
    (found,) = json.loads(here("recommend", *given).stdout)
    assert "fake.precision" in configurations(found)[-1]  # time for the next best


def test_what_nothing_ran_before_is_not_known_when_the_time_is_up(
    studies: Path, here: Here, tried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = let_try(monkeypatch, slow="env.FAKE_THREADS")
    done = here("recommend", "--model", write_model(), "--hw", "fake", "--guidelines",
                threads_gain(studies), "--out", "rec", "--json")  # fmt: skip
    (found,) = json.loads(done.stdout)
    assert len(launched) == 1 and configurations(found) == [{}, {}, {}]
    for advised in found["advised"].values():
        assert advised["verdict"] == "not_known"
        assert advised["rests_on"] == ["nothing that is recommended ran here within 180 s"]


def test_of_a_default_that_takes_all_the_time_launch_settings_are_advised_untried(
    studies: Path, here: Here, tried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("--hw", "fake", "--guidelines", threads_gain(studies), "--numerics", "reduced",
             "--out", "rec")  # fmt: skip
    untried = "not tried here: the default alone takes longer than 180 s"
    launched = let_try(monkeypatch, slow="default")
    done = here("recommend", "--model", write_model(), *given)
    assert done.returncode == 0, done.stderr
    assert f"note: {untried}; only predicted settings of the launch are set" in done.stdout
    told = read_recommendation(Path("rec"))
    assert {s.knob: s.value for s in told.settings} == {"env.FAKE_THREADS": 4}
    assert any(untried in each for each in told.claim.rests_on)

    let_try(monkeypatch, slow="default")  # and by rules of which no launch setting gains:
    done = here("recommend", "--model", "unseen.py", "--hw", "fake", "--guidelines",
                str(studies / "rules"), "--out", "rec", "--json")  # fmt: skip
    (found,) = json.loads(done.stdout)
    same = found["advised"]["same_precision"]
    assert (same["verdict"], same["configuration"]) == ("not_known", {})
    assert same["rests_on"] == [untried]

    let_try(monkeypatch, slow="default")  # a study of the model found it: that stands
    done = here("recommend", "--model", DESIGNED, *given, "--json")
    (found,) = json.loads(done.stdout)
    assert found["advised"]["same_precision"]["verdict"] == "looked_up"
    assert "fake.compile" in found["advised"]["same_precision"]["configuration"]
    assert not launched


def test_a_default_that_fails_is_no_slow_one(
    studies: Path, here: Here, tried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_try(monkeypatch, slow="default", left_s=90.0)
    done = here("recommend", "--model", write_model(), "--hw", "fake", "--guidelines",
                str(studies / "rules"), "--out", "rec")  # fmt: skip
    assert (done.returncode, Path("rec").exists()) == (3, False)
    assert "nothing can be measured" in done.stderr


def test_from_python_it_is_the_same(studies: Path, here: Here) -> None:
    rules, model = studies / "rules", write_model()
    (found,) = tuner.recommend(model, hw="fake", guidelines=rules, out="python", batch=4)
    done = here("recommend", "--model", model, "--hw", "fake", "--guidelines", str(rules),
                "--batch", "4", "--out", "typed")  # fmt: skip
    assert done.returncode == 0, done.stderr
    typed = Path("typed/recommended.toml").read_text()
    assert (found.folder / "recommended.toml").read_text() == typed


@pytest.mark.slow
def test_what_was_predicted_is_verified_like_any_other(studies: Path, here: Here) -> None:
    """And read back, which takes processes."""
    model, rules = write_model(), str(studies / "rules")
    assert here("recommend", "--model", model, "--hw", "fake", "--guidelines", rules,
                "--out", "rec").returncode == 0  # fmt: skip
    done = run("verify", "rec/recommended.toml", "--model", model, "--budget", "60s",
               cwd=Path.cwd(), is_virtual=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("confirmed")


def test_what_a_study_found_is_looked_up(studies: Path, here: Here) -> None:
    result = json.loads((studies / "studies" / "other" / "result.json").read_text())
    assert result["winners"]["same_precision"]["verdict"] == "faster"
    done = here("recommend", "--model", DESIGNED, "--hw", "fake",
                "--guidelines", str(studies / "rules"), "--out", "rec")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "looked up" in done.stdout and "predicted" not in done.stdout.splitlines()[0]
    told = read_recommendation(Path("rec"))
    assert {s.knob: s.value for s in told.settings} == result["winners"]["same_precision"][
        "configuration"
    ]


def advised_by(kept: dict[str, Any], here: Here) -> dict[str, Any]:
    """Return what such guidelines advise for the recorded model."""
    Path("altered.json").write_text(json.dumps(kept))
    done = here("recommend", "--model", DESIGNED, "--hw", "fake", "--guidelines", "altered.json",
                "--out", "rec", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)[0]["advised"]["same_precision"]
    return found


def _between(low: float, high: float) -> dict[str, float]:
    return {"point": (low + high) / 2, "low": low, "high": high, "confidence": 0.95}


def test_where_a_class_was_not_decided_the_surest_of_a_narrower_one_is_looked_up(
    studies: Path, here: Here
) -> None:
    kept = json.loads((studies / "rules" / "guidelines.json").read_text())
    sure = {"verdict": "faster", "speedup": _between(1.2, 1.4)}
    for study in kept["studies"]:
        narrower, own, wider = (study["winners"][k] for k in WinnerClass)
        own["verdict"] = "ambiguous"
        narrower |= {**sure, "configuration": {"env.FAKE_THREADS": 4}}
        wider |= {
            "verdict": "faster",
            "speedup": _between(2.9, 3.1),
            "configuration": {"fake.precision": "bf16"},
        }
    advised = advised_by(kept, here)
    assert (advised["verdict"], advised["configuration"]) == (
        "looked_up", {"env.FAKE_THREADS": 4},
    )  # fmt: skip
    assert (
        "confirmed there with no code change; it decided nothing more with same precision"
        in advised["rests_on"][0]
    )


def test_recordings_teach_in_a_folder_of_any_name(
    studies: Path, here: Here, as_shipped: None
) -> None:
    shutil.copytree(studies / "rules" / "studies", "kept")
    Path("kept/other.json").write_text('{"name": "no recording"}')
    done = here("guidelines", "kept", "--out", "again", "--json")
    assert done.returncode == 0, done.stderr
    told = in_nine_digits(done.stdout)
    before = in_nine_digits((studies / "rules" / "guidelines.json").read_text())
    assert told["rules"] == before["rules"]


def test_of_a_model_like_no_other_it_says_so(studies: Path, here: Here) -> None:
    kept = json.loads((studies / "rules" / "guidelines.json").read_text())
    for study in kept["studies"]:
        study["parameters_sha256"] = "of another"  # the fake's models have one architecture
    Path("others.json").write_text(json.dumps(kept))
    done = here("recommend", "--model", write_model(kind="cnn"), "--hw", "fake", "--guidelines",
                "others.json", "--out", "rec")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "unlike all that was measured (the model is of the kind cnn)" in done.stdout
    assert NOT_ALIKE in done.stdout and "fresh gains" not in done.stdout
    like = here("recommend", "--model", write_model(), "--hw", "fake", "--guidelines",
                "others.json", "--out", "rec")  # fmt: skip
    assert "(of 87 fresh gains such brackets held 77)" in like.stdout
    assert NOT_ALIKE not in like.stdout


@pytest.mark.parametrize(
    ("fact", "there", "is_alike"),
    [
        ("host", "another processor with as many cores", True),  # as where it was counted
        ("host_isa", "Neon", False),
        ("host_cores", 1024.0, False),
    ],
)
def test_coverage_is_told_of_hosts_like_those_that_were_measured(
    studies: Path, here: Here, fact: str, there: Any, is_alike: bool
) -> None:
    kept = json.loads((studies / "rules" / "guidelines.json").read_text())
    for study in kept["studies"]:
        study["parameters_sha256"] = "of another"
        study["facts"][fact] = there
    Path("there.json").write_text(json.dumps(kept))
    done = here("recommend", "--model", write_model(), "--hw", "fake", "--guidelines",
                "there.json", "--numerics", "reduced", "--out", "rec")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "times the default's throughput" in done.stdout
    assert ("fresh gains such brackets held" in done.stdout) == is_alike
    assert (NOT_ALIKE in done.stdout) != is_alike


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("guidelines", "nowhere"), "nowhere is no folder"),
        (("guidelines", "empty"), "no study has ended there"),
        (("recommend", "--model", "fake", "--hw", "fake", "--guidelines", "nowhere.json"),
         "cannot read nowhere.json"),
        (("recommend", "--model", "fake", "--hw", "fake", "--guidelines", "empty/x.json"),
         "is not guidelines"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(here: Here, arguments: tuple[str, ...], told: str) -> None:
    Path("empty").mkdir()
    Path("empty/x.json").write_text("[]")
    done = here(*arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_study_is_not_written_over(studies: Path, here: Here) -> None:
    folder = studies / "studies" / "other"
    before = (folder / "recommended.toml").read_text()
    done = here("recommend", "--model", DESIGNED, "--hw", "fake",
                "--guidelines", str(studies / "rules"), "--out", str(folder))  # fmt: skip
    assert done.returncode == 2
    assert "holds a study" in done.stderr
    assert (folder / "recommended.toml").read_text() == before


def test_a_recording_cannot_name_a_place_to_write_to(studies: Path, here: Here) -> None:
    (path, *_) = (studies / "rules" / "studies").glob("*.json")
    kept = json.loads(path.read_text())
    Path("in/studies").mkdir(parents=True)
    for name in ("../escaped", "/tmp/escaped", "a\0b", ""):
        Path("in/studies/x.json").write_text(json.dumps({**kept, "name": name}))
        done = here("guidelines", "in", "--out", "deep/out")
        assert done.returncode == 2
        assert "a study is named" in done.stderr
    assert not Path("deep/escaped.json").exists()


@pytest.mark.parametrize(
    "winner",
    [
        {"configuration": {"fake.precision": "bf16"}},
        {"configuration": {"workload.batch": "x"}},
        {"configuration": {"env.FAKE_THREADS": "4\n$(touch pwned)"}},
        {"configuration": {"no.such": 1}},
        {"speedup": None},
    ],
)
def test_what_cannot_be_a_winner_is_not_looked_up(
    studies: Path, here: Here, winner: dict[str, Any]
) -> None:
    kept = json.loads((studies / "rules" / "guidelines.json").read_text())
    for study in kept["studies"]:
        study["winners"]["same_precision"] |= winner
    advised = advised_by(kept, here)
    # what its designed part says is known all the same
    assert advised["verdict"] == "looked_up"
    assert "by the effects in its designed part" in advised["rests_on"][0]
    assert truth(advised["configuration"]) == pytest.approx(advised["speedup"]["point"], rel=0.05)
    assert "fake.precision" not in Path("rec/recommended.toml").read_text()


def test_what_it_came_to_in_the_very_model_on_another_host_is_said(
    studies: Path, here: Here
) -> None:
    kept = json.loads((studies / "rules" / "guidelines.json").read_text())
    for study in kept["studies"]:
        if study["model"].startswith("fake@"):
            study["host"] = "another host"
    advised = advised_by(kept, here)
    assert advised["verdict"] == "predicted"
    (told,) = [each for each in advised["rests_on"] if "itself, on another host: " in each]
    found = float(told.partition("another host: ")[2].partition("x")[0])
    assert found == pytest.approx(truth(advised["configuration"]), rel=0.05)


def test_what_failed_in_a_model_is_not_recommended_for_it(studies: Path, here: Here) -> None:
    kept = json.loads((studies / "rules" / "guidelines.json").read_text())
    for study in kept["studies"]:
        study["winners"]["same_precision"]["speedup"] = None

    assert "fake.compile" in advised_by(kept, here)["configuration"]
    for study in kept["studies"]:
        study["failed"] = [["compile"]]
    without = advised_by(kept, here)
    assert "fake.compile" not in without["configuration"]
    (name,) = without["studies"]
    assert name.startswith("fake@")
    for study in kept["studies"]:
        study["failed"] = []
    never = {"framework": "fake", "setting": "compile", "n_failed": 2, "n_cells": 2,
             "outcome": "crashed"}  # fmt: skip
    kept["failures"] = [never | {"model": "another"}]
    assert "fake.compile" in advised_by(kept, here)["configuration"]
    (model,) = (study["model"] for study in kept["studies"] if study["name"] == name)
    kept["failures"] = [never | {"model": model}]
    assert (
        "fake.compile" in advised_by(kept, here)["configuration"]
    )  # it ran here, in the very model
    for study in kept["studies"]:
        study["host"] = "another host" if study["name"] == name else study["host"]
    assert "fake.compile" not in advised_by(kept, here)["configuration"]
    for outcome in ("crashed", "timed_out"):
        kept["failures"] = [never | {"model": model, "n_failed": 1, "outcome": outcome}]
        assert "fake.compile" in advised_by(kept, here)["configuration"]
    kept["failures"] = [
        never | {"model": model, "n_failed": 1, "outcome": outcome}
        for outcome in ("crashed", "timed_out")
    ]
    assert "compile is not set" in advised_by(kept, here)["beware"][-1]


def test_where_a_setting_failed_is_said_beside_what_it_gains(studies: Path, here: Here) -> None:
    shutil.copytree(studies / "rules" / "studies", "studies")
    (path,) = Path("studies").glob("decoder-like*")
    recording = json.loads(path.read_text())
    n_cells = 0
    for cell in recording["design"]["cells"]:
        if "compile" in cell["factors"] and cell["same_as"] is None:
            n_cells += 1
            cell |= {"outcome": "out_of_memory", "log_ratio": None}
    path.write_text(json.dumps(recording))
    assert here("guidelines", "studies", "--out", "rules").returncode == 0
    (failure,) = read_guidelines(Path("rules")).failures
    assert (failure.setting, failure.model) == ("compile", "decoder-like")
    assert failure.n_failed == failure.n_cells == n_cells > 1
    told = f"decoder-like ({n_cells} of {n_cells} combinations with it: out of memory)"
    for name in ("guidelines.md", "guidelines.html"):
        page = Path("rules", name).read_text()
        assert f"compile: {told}" in page
        assert "failed in 1" in page
    done = here("recommend", "--model", write_model(), "--hw", "fake", "--guidelines", "rules")
    assert f"  beware: compile failed in {told}\n" in done.stdout
    assert "times the default's throughput, at batch 4; in brackets" in done.stdout
    assert "  start a program so: tune-framework run reports/" in done.stdout
    (file,) = Path().rglob("recommended.toml")
    claim = read_recommendation(file.parent).claim
    assert len(claim.studies) == len(FAMILIES)  # and not the one in which it failed


def test_figures_that_are_none_are_refused(studies: Path, here: Here) -> None:
    text = (studies / "rules" / "guidelines.json").read_text()
    for old, new in (('"spread"', '"spread": 1e300, "x"'), ('"low"', '"low": 9e9, "y"')):
        Path("altered.json").write_text(text.replace(old, new, 1))
        done = here("recommend", "--model", DESIGNED, "--hw", "fake", "--guidelines",
                    "altered.json")  # fmt: skip
        assert done.returncode == 2
        assert "is not guidelines" in done.stderr


def test_a_study_begins_with_what_rules_expect(studies: Path, here: Here) -> None:
    model = write_model()
    given = ("--model", model, "--hw", "fake", "--guidelines", str(studies / "rules"))
    done = here(*given, "--budget", "9s", "--out", "out", "--json", testbed=on_recordings(model))
    assert done.returncode == 0, done.stderr
    result = result_of(done.stdout)
    (name,) = result["learnt_from"]["studies"]
    assert name.startswith("guidelines of 20")
    sources = [t["source"] for t in result["trials"]]
    n_guesses = sources.count(TRANSFERRED)
    at = sources.index(TRANSFERRED)
    assert set(sources[:at]) == {"default"}
    assert set(sources[at : at + n_guesses]) == {TRANSFERRED}
    guessed = [t["configuration"] for t in result["trials"] if t["source"] == TRANSFERRED]
    # which ones depends on what is withheld from this study, if anything
    assert guessed and all(truth(each) > 1 for each in guessed)


def test_one_setting_is_withheld_from_one_study_in_four(studies: Path, here: Here) -> None:
    rules = read_guidelines(studies / "rules")
    (planned,) = plan(Request(model=write_model(), hardware="fake"), probe())
    factors = Factors(planned.profile, probe(), planned.workload, planned.facts, planned.space)
    of_all = as_earlier(rules, planned.workload, planned.facts, probe(), factors, "whole")
    assert of_all is not None
    withheld = 0
    for number in range(80):
        told = as_earlier(rules, planned.workload, planned.facts, probe(), factors, str(number))
        assert told is not None
        is_less = "withheld" in told.name
        withheld += is_less
        assert (len(told.log_ratios) < 16) is is_less
        assert min(told.log_ratios.values()) < 0  # what hurts is told too
    assert 13 <= withheld <= 27
