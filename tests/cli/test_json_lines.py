"""--json: every event as a line, the result last; a reader that goes away ends nothing."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.command import HANGS_S, command, result_of
from tuner.cli.json_lines import write_line
from tuner.record.events import FrameworkEnds

STUDY = ("--model", "fake@seed=2", "--hw", "fake", "--json", "--out", "out")


def test_every_line_is_an_event_and_the_last_is_the_result(finished_study: Path) -> None:
    printed = (finished_study.parent / "events").read_text()
    events = [json.loads(line) for line in printed.splitlines()]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "study_begins"
    assert kinds[-2:] == ["study_ends", "result"]
    assert {"phase_begins", "launch_begins", "launch_done", "time_left", "round_ends"} <= set(kinds)
    ended = [e for e in events if e["type"] == "launch_done"]
    assert [e["launch"] for e in ended if e["purpose"] == "baseline"]
    assert all(e["rate"] for e in ended if e["outcome"] == "measured" and e["purpose"] == "search")
    assert all(e["search_ratio"] for e in ended if e["outcome"] == "measured"
               and e["purpose"] == "search")  # fmt: skip
    assert result_of(printed) == json.loads((finished_study / "result.json").read_text())


def test_a_framework_that_fails_says_so_in_its_last_line(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    write_line(FrameworkEnds("fake", "out", 3, "nothing could be measured", None))
    line = json.loads(capfdbinary.readouterr().out)
    assert line == {
        "type": "result", "framework": "fake", "folder": "out", "exit_code": 3,
        "error": "nothing could be measured", "result": None,
    }  # fmt: skip


EITHER = pytest.mark.parametrize(
    "kind",
    [{"is_made_up": True}, pytest.param({"is_virtual": True}, marks=pytest.mark.slow)],
    ids=["made up", "with workers"],
)


@EITHER
def test_a_reader_that_goes_away_ends_nothing(tmp_path: Path, kind: dict[str, bool]) -> None:
    study = command(*STUDY, "--budget", "2s", **kind)
    with subprocess.Popen(
        study, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert b"study_begins" in running.stdout.readline()
        running.stdout.close()
        said = running.stderr.read().decode()
        assert running.wait(timeout=HANGS_S) == 0, said
    assert "Traceback" not in said
    assert "BrokenPipe" not in said
    assert json.loads((tmp_path / "out/result.json").read_text())["verdict"]


@pytest.mark.slow
def test_what_cannot_be_written_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    """With standard input closed besides: the files of a study must not take its place."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >/dev/full <&-', "sh",
         *command(*STUDY, "--budget", "2s", is_virtual=True)],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False, timeout=HANGS_S,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].endswith("tune-framework report out")
    assert done.stderr.count("standard output cannot be written (No space left on device)") == 1
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "out/result.json").read_text())["verdict"]
