"""explain: what the fake's profiles show, where it is written, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

import tuner
from tests.command import Here
from tests.study.fake_studies import made_up_study
from tuner.app.explain import ExplainRequest, run_explain
from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.record.events import unheard
from tuner.record.files import RESULT_SCHEMA, read_result, write_result
from tuner.record.why import OperatorClass
from tuner.worker.frameworks.fake.parts import FLOPS

MODEL = "fake@seed=2,noise=0.003"


def test_the_classes_of_both_are_shown_and_kept(tmp_path: Path, here: Here) -> None:
    made_up_study(tmp_path, MODEL, "30s")
    out = tmp_path / "out"
    done = here("explain", str(out), "--model", MODEL, "--budget", "2m")
    assert done.returncode == 0, done.stderr
    assert "matrix product" in done.stdout
    assert "rounds:" in done.stdout
    result = read_result(out / "result.json")
    (found,) = result.why
    assert found.n_rounds >= 3
    assert found.tuned_s < found.default_s
    names = {each.name for each in found.classes}
    assert names == {"matrix product", "normalisation and elementwise"}
    total = sum(each.saved_s.point for each in found.classes)
    assert abs(total / (found.default_s - found.tuned_s) - 1) < 1e-6
    jsonschema.validate(
        json.loads((out / "result.json").read_text()), json.loads(RESULT_SCHEMA.read_text())
    )
    for name in ("report.md", "report.html"):
        assert "Why it is faster" in (out / name).read_text()
    assert found.best is not None
    assert found.best.flops["fp32"] == pytest.approx(FLOPS["fp32"])
    assert found.roofline is not None
    assert found.roofline.points[1].name is OperatorClass.PRODUCT
    assert "How near to the best of this host" in (out / "report.html").read_text()
    assert "Why: " in (out / "report.md").read_text()
    made_up_study(tmp_path, MODEL, "30s")  # rendered again
    assert read_result(out / "result.json").why == [found]


def test_a_model_is_profiled_without_a_study(here: Here) -> None:
    done = here("explain", "--model", MODEL, "--framework", "fake", "--budget", "2m")
    assert done.returncode == 0, done.stderr
    assert "Of the " in done.stdout
    assert "saved" not in done.stdout


def test_settings_are_profiled_beside_the_default() -> None:
    found = tuner.explain(model=MODEL, framework="fake", fix=("fake.compile=fast",), budget=120)
    assert found.configuration == {"fake.compile": "fast"}
    assert found.tuned_s < found.default_s
    times = {each.name: each for each in found.classes}
    less = times[OperatorClass.ELEMENTWISE]
    assert less.tuned_s < less.default_s
    with pytest.raises(UsageError, match="what is explained"):
        tuner.explain()


def test_what_cannot_be_explained_is_refused_on_one_line(tmp_path: Path, here: Here) -> None:
    made_up_study(tmp_path, "fake@flat=true,noise=0.003", "20s")
    for given, expected in (
        ((str(tmp_path / "out"),), "has nothing that could be explained"),
        ((str(tmp_path / "nowhere"),), "nowhere"),
        ((str(tmp_path / "out"), "--budget", "soon"), "is not a duration"),
        ((), "what is explained?"),
        (("--model", " "), "--model is empty"),
        (("--model", MODEL, "--fix", "fake.layuot=packed"), "did you mean fake.layout"),
        (("--model", MODEL, "--fix", "fake.layout"), "--fix"),
        ((str(tmp_path / "out"), "--fix", "fake.layout=packed"), "leave out --fix"),
        (("--model", "resnet50"), "choose one with --framework"),
        (("--model", "mobilenet", "--framework", "torch"), "did you mean"),
    ):
        done = here("explain", *given)
        assert done.returncode == 2, given
        assert expected in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "is_shown"),
    [
        ({"fake.streams": 2}, True),
        ({"fake.streams": 4}, False),  # it crashes: the rest stands without it
        ({"engine.name": "openvino"}, False),  # no profiler looks into it
    ],
)
def test_the_best_recommendation_of_others_is_shown_beside_both(
    tmp_path: Path, settings: dict[str, Value], is_shown: bool
) -> None:
    model = f"{MODEL},faults=fake.streams=4:crash"
    made_up_study(tmp_path, model, "30s")
    folder = tmp_path / "out"
    result = read_result(folder / "result.json")
    first = msgspec.structs.replace(result.baselines[0], name="guide", configuration=settings)
    changed = msgspec.structs.replace(
        result, baselines=[first, *result.baselines[1:]], best_baseline="guide"
    )
    write_result(folder / "result.json", changed)
    request = ExplainRequest(folder, 200.0, model)
    found = run_explain(request, unheard)
    assert found.n_rounds >= 3
    if is_shown:
        assert found.baseline is not None
        assert (found.baseline.name, found.baseline.configuration) == ("guide", settings)
        assert "guide" in (folder / "report.md").read_text()
    else:
        assert found.baseline is None
