"""What rules recommend in fresh rounds: of rounds whose truth is written down."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.guideline_rounds import (
    Pair,
    Round,
    best_known,
    class_of,
    shares_of,
    tell_all,
)
from benchmarks.real_regret import Study
from tests.command import DESIGNED
from tuner.app.plan import plan
from tuner.app.request import Request
from tuner.guidelines.studies import recording_of
from tuner.host.identity import probe
from tuner.record.configuration import Configuration
from tuner.record.files import read_result
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in

DEFAULT = Configuration()
TCMALLOC = Configuration.of({"launch.allocator": "tcmalloc"})
JEMALLOC = Configuration.of({"launch.allocator": "jemalloc"})
TWO = Configuration.of({"launch.instances": 2})
LOW = Configuration.of({"torch.autocast": "bf16"})
TRUTH = {DEFAULT: 0.0, TCMALLOC: 0.2, JEMALLOC: 0.1, TWO: 0.4}
ARMS = {
    "default": DEFAULT,
    "guideline same_precision": TCMALLOC,
    "best known same_precision": TWO,
    "guideline reduced_precision": TCMALLOC,
    "best known reduced_precision": TWO,
    "a_guide": JEMALLOC,
    "another": DEFAULT,
    "packrat": TWO,
}


def pair(rounds: list[Round], model: str = "fc", **arms: Configuration) -> Pair:
    return Pair(model, "torch", {**ARMS, **arms}, rounds)


def drawn(n_rounds: int, sd: float, seed: int = 0) -> list[Round]:
    """Draw rounds in which all arms drift together, and each launch scatters by itself."""
    random = np.random.default_rng(seed)
    found: list[Round] = []
    for _ in range(n_rounds):
        drift = random.normal(0, 0.3)
        found.append({c: rate + drift + random.normal(0, sd) for c, rate in TRUTH.items()})
    return found


def test_all_arms_tell_how_launches_scatter_and_drift_is_no_scatter() -> None:
    found = [pair(drawn(3, 0.05, seed)) for seed in range(300)]
    variances = [each.launch_sd()[0] ** 2 for each in found]
    assert math.sqrt(float(np.mean(variances))) == pytest.approx(0.05, rel=0.1)
    assert found[0].launch_sd()[1] == 3 * 2
    held = [
        gain[1] < math.exp(0.2) < gain[2]
        for each in found
        if (gain := each.gain("guideline same_precision")) is not None
    ]
    assert len(held) == 300
    assert 0.9 < float(np.mean(held)) < 0.99


def test_the_share_of_a_guideline_that_failed_is_none() -> None:
    rounds = drawn(3, 0.001)
    assert shares_of([pair(rounds)], WinnerClass.SAME_PRECISION) == {
        "fc/torch": pytest.approx(0.5, abs=0.02)
    }
    failed = [{c: r for c, r in row.items() if c != TCMALLOC} for row in rounds[:1]] + rounds[1:]
    assert shares_of([pair(failed)], WinnerClass.SAME_PRECISION) == {"fc/torch": 0.0}
    # where the best known is not surely worth it, nothing can be told
    noisy: list[Round] = [
        {c: r + n * (c == TWO) for c, r in TRUTH.items()} for n in (-0.5, 0.0, 0.5)
    ]
    assert shares_of([pair(noisy)], WinnerClass.SAME_PRECISION) == {}
    assert shares_of([pair(rounds[:1])], WinnerClass.SAME_PRECISION) == {}


def test_what_is_ahead_of_whom_is_told_over_the_same_pairs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pairs = [pair(drawn(3, 1e-5, n), model) for n, model in enumerate(("fc", "ncf", "gnmt"))]
    families = {"fc/torch": "mlp", "ncf/torch": "recommendation", "gnmt/torch": "translation"}
    tell_all([*pairs, pair([], "minigo")], families)
    told = capsys.readouterr().out
    assert "too few rounds yet, left out: minigo/torch" in told
    assert "same_precision: share of the best known gain, 3 pairs: mean 0.50 (0." in told
    assert "surely slower than the default: none" in told
    (line,) = [line for line in told.splitlines() if " a_guide " in line and "ahead" in line]
    assert "1.105x, the guideline 1.221x: ahead by 1.105" in line
    (line,) = [line for line in told.splitlines() if " another " in line and "ahead" in line]
    assert "over 3 models, in 3 of which it is the default" in line
    assert "reduced_precision: both arms are those of the class same_precision" in told


def test_each_class_is_told_of_the_pairs_that_have_arms_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    launch = {"guideline no_code": DEFAULT, "best known no_code": JEMALLOC}
    pairs = [pair(drawn(3, 1e-5, 0), "fc", **launch), pair(drawn(3, 1e-5, 1), "ncf")]
    assert pairs[0].classes == list(WinnerClass)
    assert pairs[1].classes == [WinnerClass.SAME_PRECISION, WinnerClass.REDUCED_PRECISION]
    assert class_of("a_guide", pairs[0]) == WinnerClass.NO_CODE
    assert "best known no_code" not in pairs[0].others()
    assert shares_of(pairs, WinnerClass.NO_CODE) == {"fc/torch": 0.0}
    tell_all(pairs, {"fc/torch": "mlp", "ncf/torch": "recommendation"})
    told = capsys.readouterr().out
    assert "no_code: share of the best known gain, 1 pairs: mean 0.00" in told
    assert "\nsame_precision: share of the best known gain, 2 pairs: mean 0.50" in told
    # in one model the guideline of its own class is compared, the default: half of 1.221x is left
    (line,) = [line for line in told.splitlines() if " a_guide " in line and "ahead" in line]
    assert "1.105x, the guideline 1.105x" in line


def test_a_recommendation_is_of_the_narrowest_class_that_allows_it() -> None:
    assert class_of("a_guide", pair([])) == WinnerClass.SAME_PRECISION
    assert class_of("a_guide", pair([], a_guide=LOW)) == WinnerClass.REDUCED_PRECISION


def test_the_best_known_is_the_fastest_by_all_that_was_measured_here(designed_study: Path) -> None:
    result = read_result(designed_study / "result.json")
    recording = recording_of(result)
    assert recording is not None
    request = Request(model=DESIGNED, frameworks=("fake",), hardware="fake")
    (planned,) = plan(request, probe())
    won = Configuration.of(recording.winners[WinnerClass.SAME_PRECISION].configuration)
    assert best_known(planned, WinnerClass.SAME_PRECISION, [recording], []) == won
    recording = msgspec.structs.replace(recording, winners={})
    best = best_known(planned, WinnerClass.SAME_PRECISION, [recording], [])
    cells = {
        Configuration.of(cell.configuration): cell.log_ratio
        for cell in recording.design.cells
        if cell.log_ratio is not None
        and allowed_in(WinnerClass.SAME_PRECISION, Configuration.of(cell.configuration))
    }
    assert best in cells
    assert best == max(cells, key=lambda c: cells[c] or 0.0)
    # a study that found this slower counts as much as the cell
    slow = {"verdict": "faster", "configuration": best.as_dict(),
            "speedup_at_reference_batch": {"point": 0.01}}  # fmt: skip
    own = {"identity": result.host.identity}
    study = Study(
        "known", 8, {"winners": {"same_precision": slow}, "host": msgspec.to_builtins(own)}
    )
    assert best_known(planned, WinnerClass.SAME_PRECISION, [recording], [study]) != best
    # what another host found counts where nothing was measured on this one
    elsewhere = msgspec.structs.replace(recording, host="another")
    assert best_known(planned, WinnerClass.SAME_PRECISION, [elsewhere], []) == best
    assert best_known(planned, WinnerClass.SAME_PRECISION, [elsewhere], [study]) == DEFAULT
