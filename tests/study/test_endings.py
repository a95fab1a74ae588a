"""How studies on the fake framework end where there is little to find, or no time to find it."""

from pathlib import Path

from tests.command import Here
from tests.study.fake_studies import made_up_study
from tuner.record.files import read_recommendation


def test_where_nothing_beats_the_default_it_says_so(tmp_path: Path) -> None:
    # launches differ by far less than a gain must have, so that only the drift could feign one
    result = made_up_study(tmp_path, "fake@flat=true,drift=0.1,noise=0.003", "6s")
    assert result["verdict"] in ("keep_default", "ambiguous")
    for winner in result["winners"].values():
        assert winner["verdict"] != "faster"
        if winner["speedup"] is None:
            # what the drift flattered did not come near again, had no rounds, or was not proved
            ends = (
                "within the noise",
                "rounds",
                "could not be proved",
                "accepts it",
                "no time to confirm",
            )
            assert any(end in winner["reason"] for end in ends), winner
        elif winner["verdict"] == "keep_default":
            assert winner["speedup"]["high"] < 1.05
        assert winner["contributions"] == []
    shipped = read_recommendation(tmp_path / "out/recommended.toml")
    assert shipped.settings == []


def test_settings_that_do_nothing_are_not_recommended(tmp_path: Path) -> None:
    neutral = ("launch.allocator", "fake.streams")
    model = f"fake@neutral={';'.join(neutral)},noise=0.003"
    small = ("--exclude", "fake.compile", "--exclude", "fake.layout")  # so that it is soon searched
    result = made_up_study(tmp_path, model, "15s", "--numerics", "same", *small)
    assert result["phases"]["minimise"] == "minimal"
    for winner in result["winners"].values():
        assert not set(winner["configuration"]) & set(neutral), winner


def test_too_small_a_budget_ends_ambiguous_and_not_in_a_claim(tmp_path: Path) -> None:
    # on this surface the first baseline is clearly faster: that it leads is no claim
    result = made_up_study(tmp_path, "fake@seed=4", "1s")
    for winner in result["winners"].values():
        assert winner["verdict"] == "ambiguous", winner


def test_a_default_that_cannot_be_measured_ends_with_code_3(here: Here) -> None:
    """Its process dies."""
    done = here("--model", "fake@faults=fake.layout=plain:crash", "--hw", "fake", "--json",
                "--budget", "10s", "--out", "out")  # fmt: skip
    assert done.returncode == 3
    assert "1 x crashed" in done.stderr
    assert "SIGSEGV" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_ruled_out_is_neither_measured_nor_shipped(tmp_path: Path) -> None:
    result = made_up_study(tmp_path, "fake@seed=3", "5s", "--exclude", "fake.compile", "--fix",
                   "fake.layout=packed")  # fmt: skip
    for trial in result["trials"]:
        if trial["source"] != "default":
            assert "fake.compile" not in trial["configuration"]
            assert trial["configuration"]["fake.layout"] == "packed"
    for winner in result["winners"].values():
        if winner["verdict"] == "faster":
            assert winner["configuration"]["fake.layout"] == "packed"
    reasons = {b["name"]: b["reason"] for b in result["baselines"]}
    assert "ruled out by --" in reasons["vendor_compiler"]
