"""Progress: plain lines where nobody watches, live and without a timer on a terminal."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tests.command import command
from tuner.cli.progress import progress
from tuner.record.events import (
    BestSoFar,
    LaunchBegins,
    LaunchDone,
    LaunchStage,
    PhaseBegins,
    RoundEnds,
    StudyBegins,
    TransferLoaded,
    WaitingForModel,
    Warned,
)
from tuner.record.figures import duration
from tuner.record.launch import Purpose
from tuner.record.outcome import Outcome
from tuner.record.winner_class import WinnerClass


def test_durations_are_short() -> None:
    assert [duration(s) for s in (0, 5.4, 65, 3661, -3)] == ["0:00", "0:05", "1:05", "1:01:01",
                                                            "0:00"]  # fmt: skip


def test_plain_lines_carry_the_time_left(capsys: object) -> None:
    from contextlib import redirect_stdout

    with redirect_stdout(io.StringIO()) as out, progress(quiet=False) as listen:
        listen(WaitingForModel("mine", "importing its file", 5.0, 60.0))
        listen(StudyBegins("fake", "out", 60.0, 0.0, 864))
        listen(TransferLoaded(("one (here)", "two", "three", "four", "five"), 31))
        listen(PhaseBegins("baselines", "a phase in which nothing is measured"))
        listen(PhaseBegins("explore", "up to 864 combinations"))
        listen(LaunchBegins(1, "", Purpose.SEARCH))
        listen(Warned("the host is busy"))
        listen(BestSoFar("a=1", 1.5, WinnerClass.NO_CODE, "no code change"))
        listen(BestSoFar("b=2", 1.6, WinnerClass.REDUCED_PRECISION, "bf16"))
        # no new leader: no line
        listen(BestSoFar("b=2", 1.61, WinnerClass.REDUCED_PRECISION, "bf16"))
        listen(RoundEnds(2, {"recommended": (1.5, 1.2, 1.9)}, is_preliminary=True))
    lines = out.getvalue().splitlines()
    assert lines.pop(0).endswith(
        "] waiting for mine: importing its file, 0:05 so far, at most 1:00"
    )
    assert len(lines) == 7
    assert "1:00 left" in lines[0]
    assert "told of 31 configurations by one (here), two, three and 2 more" in lines.pop(1)
    assert "explore: up to 864" in lines[1]
    assert "warning: the host is busy" in lines[2]
    best = "best so far, {}x the default at its best batch: {}"
    assert best.format("no code change: 1.50", "a=1") in lines[3]
    assert best.format("bf16: 1.60", "b=2") in lines[4]
    assert lines[5].endswith("recommended 1.50x (1.20 - 1.90), preliminary")


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        ({}, "raw 49,350 items/s"),
        ({"search_ratio": 1.5}, "1.50x in the search, raw 49,350 items/s"),
        ({"is_late": True, "search_ratio": 0.01}, "too late even for single requests"),
        (
            {"is_late": True, "n_disturbed": 4},
            "too late even for single requests, all slices disturbed",
        ),
        ({"n_disturbed": 4}, "raw 49,350 items/s, all slices disturbed"),
        ({"n_disturbed": 1}, "raw 49,350 items/s, 1 of 4 slices disturbed: not counted"),
    ],
)
def test_a_rate_is_told_as_raw_beside_what_the_table_will_say(
    measured: dict[str, Any], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = LaunchDone(
        1,
        "a=1",
        Purpose.SEARCH,
        Outcome.MEASURED,
        "",
        49353.2,
        3.0,
        4,
        value=49353.2,
        unit="items/s",
    )
    with progress(quiet=False) as listen:
        listen(msgspec.structs.replace(ended, **measured))
    assert f"search {told} (3.0 s): a=1" in capsys.readouterr().out


def test_of_launches_side_by_side_the_view_names_the_one_that_does_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(
        "tuner.cli.progress.Console",
        lambda **_: Console(file=shown, force_terminal=True, width=110, legacy_windows=False),
    )

    def named() -> str:
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
        return [line.rstrip() for line in text.splitlines() if line.startswith("measuring")][-1]

    with progress(quiet=False) as listen:
        listen(StudyBegins("fake", "out", 60.0, 0.0, 864))
        listen(LaunchBegins(4, "a=1", Purpose.SEARCH))
        listen(LaunchBegins(5, "b=1", Purpose.SEARCH))
        listen(LaunchStage(4, "compiling"))
        first = named()
        listen(LaunchStage(5, "building"))
        second = named()
        died = LaunchDone(5, "b=1", Purpose.SEARCH, Outcome.INTERRUPTED, "beside", None, 1.0, 0)
        listen(died)
        listen(LaunchStage(4, "measuring"))
        third = named()
        assert "0 measured" in shown.getvalue()
        assert "failed" not in shown.getvalue()
    assert first.endswith("search: a=1 (compiling)")
    assert second.endswith("search: b=1 (building)")
    assert third.endswith("search: a=1 (measuring)")


def test_the_view_counts_earlier_sessions_and_is_never_blank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(
        "tuner.cli.progress.Console",
        lambda **_: Console(file=shown, force_terminal=True, width=110, legacy_windows=False),
    )

    def drawn() -> list[str]:
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue()).splitlines()
        shown.seek(0)
        shown.truncate()
        return [line.rstrip() for line in lines]

    many = " ".join(f"torch.compile.option_{i}=value" for i in range(20))
    with progress(quiet=False) as listen:
        before = drawn()
        listen(StudyBegins("fake", "out", 60.0, 20.0, 864, n_measured=7, n_failed=1))
        begun = drawn()
        listen(
            LaunchDone(
                9,
                many,
                Purpose.SEARCH,
                Outcome.MEASURED,
                "",
                1234.4,
                3.0,
                4,
                value=1234.4,
                unit="items/s",
            )
        )
        measured = drawn()
    for lines in (before, begun, measured):
        for row in ("phase", "measuring", "launches", "best so far"):
            found = {line for line in lines if line.startswith(row)}
            assert found
            assert row not in found
    assert "launches     7 measured, 1 failed" in begun
    assert "launches     8 measured, 1 failed" in measured
    assert any("search raw 1,234 items/s (3.0 s): torch.compile" in line for line in measured)


def test_on_a_terminal_it_redraws_and_clears_up(tmp_path: Path) -> None:
    main, terminal = pty.openpty()
    arguments = ("--model", "fake", "--hw", "fake", "--budget", "4s", "--out", "out")
    with subprocess.Popen(
        command(*arguments, is_made_up=True),
        cwd=tmp_path,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    ) as process:
        os.close(terminal)
        data = b""
        while True:
            try:
                piece = os.read(main, 4096)
            except OSError:  # the other end has gone
                break
            data += piece
        process.wait()
    os.close(main)
    text = data.decode(errors="replace")
    assert process.returncode == 0, text[-2000:]
    for expected in ("measuring", "best so far", "time left", "\x1b["):
        assert expected in text
    assert "report.html" in text.splitlines()[-1]


def test_no_thread_draws_while_the_engine_waits() -> None:
    """A refresh thread would use the CPUs that are measured."""
    code = (
        "import sys, threading, io, rich.console\n"
        "from tuner.cli import progress as p\n"
        "real = rich.console.Console\n"
        "p.Console = lambda **k: real(file=io.StringIO(), force_terminal=True)\n"
        "with p.progress(quiet=False):\n"
        "    sys.__stdout__.write(str(threading.active_count()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"
