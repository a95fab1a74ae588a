"""What the listing commands and --dry-run show."""

import json
from pathlib import Path

import pytest

from tests.command import Here
from tests.host.libraries import Describe
from tests.made_up import MadeUpFake
from tuner.app.request import parse_duration
from tuner.errors import UsageError


def test_hardware_shows_what_was_read(here: Here, tmp_path: Path) -> None:
    data = json.loads(here("hardware", "--json").stdout)
    assert data["facts"]["host.physical_cores"] >= 1
    assert "fingerprint" in data
    text = here("hardware").stdout
    assert "host.physical_cores" in text


def test_models_lists_the_gallery(here: Here, tmp_path: Path) -> None:
    cards = json.loads(here("models", "--json").stdout)
    assert {c["name"] for c in cards} >= {"resnet50", "fake"}
    assert "ResNet-50 v1.5" in here("models").stdout


def test_models_are_filtered_and_sorted(here: Here, tmp_path: Path) -> None:
    def names(*given: str) -> list[str]:
        return [c["name"] for c in json.loads(here("models", *given, "--json").stdout)]

    assert set(names("--family", "translation")) == {"gnmt", "transformer"}
    assert {"ssd-resnet34", "detr-resnet50"} <= set(names("--task", "detection"))
    assert "detr-resnet50" not in names("--framework", "tensorflow")
    largest = names("--sort", "parameters")
    assert largest.index("bert-large") < largest.index("bert-base") < largest.index("squeezenet")
    busiest = names("--sort", "macs")
    assert busiest.index("ssd-resnet34") < busiest.index("resnet50") < busiest.index("ncf")


def test_a_model_is_told_in_full(here: Here, tmp_path: Path) -> None:
    told = here("models", "bert-large").stdout
    for expected in ("question answering", "MLPerf Inference", "130 ms", "334,094,338", "GELU"):
        assert expected in told
    assert "are the same" in here("models", "resnet50").stdout
    tables = here("models", "dlrm-rmc1").stdout
    assert "row_scale=0.0625" in tables
    assert "--model dlrm-rmc1@row_scale=0.0625" in tables
    card = json.loads(here("models", "llama-decode", "--json").stdout)
    assert (card["name"], card["item"]) == ("llama-decode", "token")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("bert-huge",), "unknown model 'bert-huge': did you mean bert-"),
        (("resnet50-v3",), "unknown model 'resnet50-v3': did you mean resnet50"),
        (("--family", "cn"), "unknown family 'cn': did you mean cnn?"),
        (("--framework", "jax"), "unknown framework 'jax'"),
        (("--task", "chess"), "no model is left by --task 'chess'; tasks are"),
        (("--sort", "speed"), "sort by name, parameters, macs"),
        (("resnet50", "--family", "cnn"), "resnet50 is one model, and --family"),
    ],
)
def test_a_wrong_view_of_models_is_said(here: Here, given: tuple[str, ...], said: str) -> None:
    done = here("models", *given)
    assert done.returncode == 2
    assert said in done.stderr


def test_spaces_lists_profiles_and_shows_one(here: Here, tmp_path: Path) -> None:
    listed = here("spaces").stdout
    for name in ("xeon", "epyc", "arm", "cuda", "auto"):
        assert name in listed
    shown = here("spaces", "xeon").stdout
    assert "xeon_run_cpu_single" in shown
    assert "changes numerics" in shown
    assert json.loads(here("spaces", "xeon", "--json").stdout)["name"] == "xeon"


@pytest.mark.parametrize(("libraries", "n"), [(("tcmalloc", "jemalloc"), 864), ((), 288)])
def test_a_dry_run_shows_the_space_and_measures_nothing(
    here: Here, tmp_path: Path, system_libraries: Describe, libraries: tuple[str, ...], n: int
) -> None:
    system_libraries(*libraries)
    done = here("--model", "fake", "--hw", "fake", "--dry-run", testbed=MadeUpFake())
    assert done.returncode == 0
    for expected in ("fake.layout", "plain, blocked, packed", "same as vendor_threads", str(n)):
        assert expected in done.stdout
    answer = done.stdout.index("the study would lie in")
    assert answer < done.stdout.index("fake.layout")  # the lists come after it
    assert not (tmp_path / "reports").exists()
    done = here("--model", "fake", "--hw", "fake", "--dry-run", "--json", testbed=MadeUpFake())
    data = json.loads(done.stdout)
    assert data["combinations"] == n
    assert data["folder"].startswith("reports/fake-fake-offline-")
    assert len(data["folder"].rpartition("-")[2]) == 8


def test_a_host_that_the_profile_does_not_name_is_said(here: Here, tmp_path: Path) -> None:
    matches = []
    for hw in ("xeon", "epyc"):
        given = ("--model", "fake", "--hw", hw, "--dry-run", "--json")
        done = here(*given, testbed=MadeUpFake())
        matches.append(json.loads(done.stdout)["profile_matches"])
    assert not all(matches)


def test_a_users_space_and_batch(here: Here, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'schema_version = 1\ntitle = "x"\n[[knob]]\nid = "fake.layout"\nvalues = ["packed"]\n'
    )
    given = ("--model", "fake", "--space", "mine.toml", "--batch", "32", "--dry-run", "--json")
    done = here(*given, testbed=MadeUpFake())
    data = json.loads(done.stdout)
    assert data["combinations"] == 2
    assert data["workload"]["card"]["batches"] == [32]


def test_a_users_space_does_nothing_to_a_terminal(here: Here, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'schema_version = 1\ntitle = "a\\u001b]52;c;AAAA\\u0007b"\n'
        '[[knob]]\nid = "fake.layout"\nvalues = ["packed"]\n'
        '[[baseline]]\nname = "[bold]n\\u001b[2J"\nsource = "s\\u001b[2J"\n'
        'frameworks = ["fake"]\nsettings = { "fake.layout" = "packed" }\n'
    )
    dry = ("--model", "fake", "--space", "mine.toml", "--dry-run")
    for arguments in (("spaces", "mine.toml"), dry):
        shown = here(*arguments, testbed=MadeUpFake())
        assert shown.returncode == 0, shown.stderr
        assert "[bold]n?[2J" in shown.stdout
        assert "\x1b" not in shown.stdout
        assert "\x07" not in shown.stdout


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("90", 90), ("10m", 600), ("1h30m", 5400), ("0.5m", 30)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "10 minutes", "-5s", "0", "1e9h", "5x"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="90s, 10m or 1h"):
        parse_duration(text)
