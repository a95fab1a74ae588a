"""Of an index, a host gets the recommendation of its own kind, if another host has confirmed it."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner
from tuner.errors import UsageError
from tuner.galleries import MODELS
from tuner.host.identity import Host, kind_of, probe
from tuner.record.index import Elsewhere, Index, Kind, Row, read_index, write_index_file
from tuner.record.interval import Interval
from tuner.space.chosen import chosen

GAIN = Interval(1.5, 1.4, 1.6, 0.95)
CONFIRMS = Elsewhere("b", "confirmed", "", GAIN, 4, 1.0)


@pytest.fixture(scope="module")
def here() -> Host:
    return probe()


def index(folder: Path, study: Path, here: Host, **of_row: Any) -> Path:
    """Write an index of one study, on this kind of host and on another."""
    kinds = [Kind("this", here.fingerprint(), ""), Kind("that", "0" * 64, "")]
    rows = []
    for kind in kinds:
        name = f"fake-{kind.name}"
        shutil.copytree(study, folder / name)
        row = Row("fake", "fake", "done", folder=name, verdict="faster", speedup=GAIN,
                  kind=kind.name, host="a", n_elsewhere=1)  # fmt: skip
        rows.append(msgspec.structs.replace(row, **of_row))
    toml = folder / "fake-that" / "recommended.toml"
    here_isa = here.processor.model
    toml.write_text(toml.read_text().replace(here_isa, "another processor"))
    toml.write_text(toml.read_text().replace(here.fingerprint(), "0" * 64))
    write_index_file(folder, Index(rows, kinds=kinds))
    return folder


def test_that_of_this_kind(tmp_path: Path, finished_study: Path, here: Host) -> None:
    folder = index(tmp_path / "fleet", finished_study, here, elsewhere=[CONFIRMS])
    assert chosen(folder, here) == folder / "fake-this" / "recommended.toml"
    assert chosen(folder / "index.json", here) == folder / "fake-this" / "recommended.toml"
    assert chosen(folder, here, "fake", "fake").parent.name == "fake-this"


def test_of_kinds_that_differ_in_what_a_study_rests_on_it_is_the_own_one(
    tmp_path: Path, finished_study: Path, here: Host
) -> None:
    """Its winner was refuted: that of the other, whose gallery lies elsewhere, is not taken."""
    folder = index(tmp_path / "fleet", finished_study, here, elsewhere=[CONFIRMS])
    rows = read_index(folder).rows
    own = kind_of(here, MODELS)
    refuted = [msgspec.structs.replace(CONFIRMS, verdict="refuted")]
    rows[1] = msgspec.structs.replace(rows[1], kind=own, elsewhere=refuted)
    kinds = [Kind(name, here.fingerprint(), "") for name in ("this", own)]
    write_index_file(folder, Index(rows, kinds=kinds))
    with pytest.raises(UsageError, match="not confirmed on another one"):
        chosen(folder, here)


def test_what_is_no_index_stays_as_it_is(tmp_path: Path, finished_study: Path, here: Host) -> None:
    assert chosen(finished_study, here) == finished_study
    assert chosen(tmp_path / "nothing.toml", here) == tmp_path / "nothing.toml"


@pytest.mark.parametrize(
    "said",
    [[], [msgspec.structs.replace(CONFIRMS, verdict="inconclusive")],
     [CONFIRMS, msgspec.structs.replace(CONFIRMS, verdict="refuted")]],
)  # fmt: skip
def test_what_is_not_confirmed_is_not_shipped(
    tmp_path: Path, finished_study: Path, here: Host, said: list[Elsewhere]
) -> None:
    folder = index(tmp_path / "fleet", finished_study, here, elsewhere=said)
    with pytest.raises(UsageError, match="not confirmed on another one"):
        chosen(folder, here)


def test_a_model_that_is_not_there(tmp_path: Path, finished_study: Path, here: Host) -> None:
    folder = index(tmp_path / "fleet", finished_study, here, elsewhere=[CONFIRMS])
    with pytest.raises(UsageError, match="no study of resnet50; there: fake in fake"):
        chosen(folder, here, "resnet50")


def test_a_host_of_no_kind_that_is_there(tmp_path: Path, finished_study: Path, here: Host) -> None:
    folder = index(tmp_path / "fleet", finished_study, here, elsewhere=[CONFIRMS])
    shutil.rmtree(folder / "fake-this")
    with pytest.raises(UsageError, match="on this kind of host"):
        chosen(folder, msgspec.structs.replace(here, cxx="another", versions={"torch": "0"}))


def test_run_and_apply_take_an_index(
    tmp_path: Path, finished_study: Path, here: Host, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = index(tmp_path / "fleet", finished_study, here, elsewhere=[CONFIRMS])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # this process was not started under it
        applied = tuner.apply(folder, model="fake")
    assert applied.settings is not None
    assert capfd.readouterr().err == ""


def test_run_names_what_it_took(tmp_path: Path, finished_study: Path, here: Host) -> None:
    from tests.command import run

    folder = index(tmp_path / "fleet", finished_study, here, elsewhere=[CONFIRMS])
    done = run("run", str(folder), "--", "true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fake-this/recommended.toml" in done.stderr
    missing = run("run", "--model", "other", str(folder), "--", "true", cwd=tmp_path)
    assert missing.returncode == 125
    assert "no study of other" in missing.stderr
