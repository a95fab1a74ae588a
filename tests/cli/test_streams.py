"""Standard streams that are closed, full or left by their reader: the rest is done all the same."""

import io
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.command import HANGS_S, command
from tests.deploy.recommendations import written
from tests.host.libraries import Describe
from tuner.cli.streams import Output

DRY_RUN = ("--model", "fake", "--hw", "fake", "--dry-run", "--json")


def redirected(redirection: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command(*arguments)],
        cwd=cwd, capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip


def test_child_processes_work_where_input_and_errors_are_closed(
    tmp_path: Path, system_libraries: Describe
) -> None:
    system_libraries("tcmalloc", "jemalloc")
    done = redirected("<&- 2>&-", *DRY_RUN, cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["combinations"] == 864


def test_child_processes_work_where_output_is_closed(tmp_path: Path) -> None:
    done = redirected("<&- >&-", *DRY_RUN, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_table_may_be_printed_to_a_closed_output(tmp_path: Path) -> None:
    done = redirected(">&-", "spaces", "fake", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_is_not_printed_as_a_result_where_errors_are_closed(tmp_path: Path) -> None:
    done = redirected("2>&-", "report", "nowhere", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("arguments", [("--help",), ("spaces", "fake", "--json")])
def test_a_full_disk_under_the_output_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = redirected(">/dev/full", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "error: standard output cannot be written (No space left on device): what is printed is "
        "lost\n"
    )


def test_an_error_that_cannot_be_written_keeps_its_exit_code(tmp_path: Path) -> None:
    assert redirected("2>/dev/full", "report", "nowhere", cwd=tmp_path).returncode == 2


def test_a_program_is_given_the_streams_that_were_given(tmp_path: Path) -> None:
    """`run` becomes the program: what is closed for the one is closed for the other."""
    (tmp_path / "open.sh").write_text(
        "for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] && echo $fd; done; true"
    )
    path = written(tmp_path, {"env.OMP_NUM_THREADS": 2})
    done = redirected("<&- 2>&-", "run", str(path), "--", "sh", "open.sh", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n")


def test_a_failure_is_told_once_and_then_nothing_is_written() -> None:
    told: list[OSError] = []
    descriptor = os.open("/dev/full", os.O_WRONLY)
    output = Output(descriptor, told.append)
    try:
        assert output.write(b"first") == 5
        assert output.write(b"second") == 6
    finally:
        os.close(descriptor)
    assert [error.strerror for error in told] == ["No space left on device"]
    assert output.is_lost


def test_who_closes_a_pipe_expects_nothing_more() -> None:
    told: list[OSError] = []
    end, beginning = os.pipe()
    os.close(end)
    output = Output(beginning, told.append)
    output.write(b"x")
    os.close(beginning)
    assert told == []
    assert not output.is_lost


def test_a_pipe_that_does_not_block_is_waited_for() -> None:
    """A parent that reads without blocking may have made its end and ours so."""
    end, beginning = os.pipe()
    os.set_blocking(beginning, False)
    data = b"x" * 300_000  # more than a pipe holds
    with subprocess.Popen(["wc", "-c"], stdin=end, stdout=subprocess.PIPE) as reader:
        os.close(end)
        with io.BufferedWriter(Output(beginning)) as output:  # type: ignore[type-var]
            output.write(data)
        os.close(beginning)
        assert reader.communicate()[0].strip() == b"300000"
