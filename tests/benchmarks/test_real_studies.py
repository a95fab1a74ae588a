"""How real studies in which nothing is faster are counted."""

from pathlib import Path

import pytest

from benchmarks.false_claims import summarise_real
from benchmarks.real_studies import SPACE, RealStudy
from tests.space.spaces import defaults_on, model
from tuner.app.plan import plan
from tuner.app.request import Request
from tuner.host.identity import probe
from tuner.record.interval import Interval
from tuner.space.listing import upper_size


def study(verdict: str, low: float, high: float, *, repeats: bool | None = False) -> RealStudy:
    return RealStudy(
        model="fc",
        verdicts={
            "no_code": "keep_default",
            "same_precision": verdict,
            "reduced_precision": "ambiguous",
        },
        recommended="same_precision",
        interval=Interval((low * high) ** 0.5, low, high, 0.95),
        n_trials=4,
        n_rounds=4,
        one_run_each=True,
        repeats=repeats,
        best_trial=verdict == "faster",
        seconds=80.0,
    )


def test_false_claims_and_intervals_of_real_studies_are_counted() -> None:
    found = [
        study("faster", 1.1, 1.3),
        study("keep_default", 0.9, 1.05, repeats=True),
        study("ambiguous", 0.9, 1.2, repeats=None),
        study("keep_default", 0.97, 1.02),
    ]
    table = summarise_real(found)
    assert table["tune-framework, any winner"]["share"] == 0.25
    assert table["one run each"]["share"] == 1.0
    assert table["repeats"]["of"] == 3  # one had no round to compare
    assert table["best trial"]["share"] == 0.25
    assert table["interval holds 1"]["share"] == 0.75
    assert table["verdicts"] == {"ambiguous": 5, "faster": 1, "keep_default": 6}


def test_every_setting_that_does_nothing_is_live_all_the_same(
    tmp_path: Path, described_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = model(defaults_on(probe(), "torch"))
    monkeypatch.setattr("tuner.app.plan.describe_model", lambda *_: facts)
    request = Request(
        model="fc", hardware=str(SPACE), frameworks=("torch",), batch=64, out=tmp_path / "study"
    )
    (found,) = plan(request, probe())
    assert upper_size(found.space) == 4 * 3 * 3
    (baseline,) = found.baselines
    assert baseline.is_applicable
    assert not baseline.dead_settings
    assert baseline.same_as is None
