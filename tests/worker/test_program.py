"""A whole program in the place of a model: real programs, started by a real worker.

Of what a program loads, the kernel shows that it is mapped and no more: files of these names are
PyTorch and its OpenMP runtime here. models/README.md has one that imports PyTorch.
"""

import os
import re
import sys
import time
from pathlib import Path

import pytest

from tests.wants import needs
from tests.worker.workers import Launched
from tuner.errors import UsageError
from tuner.galleries import SEARCH_SPACES
from tuner.launchers.describe import find_program
from tuner.record.configuration import Value
from tuner.record.launch import Checked
from tuner.record.load import OFFLINE, Load
from tuner.record.outcome import Outcome
from tuner.record.protocol import Failed, Prepare, Reply
from tuner.space.catalogue import describe
from tuner.space.knob import Applies
from tuner.space.profile_file import load_profile
from tuner.space.resolve import knob_ids

PYTHON = Path(sys.executable)
BENCH = """
import mmap, os, pathlib, time
held = []
for name in ("libtorch_cpu.so", "libgomp.so.1"):
    with open(pathlib.Path(__file__).with_name(name), "wb+") as library:
        library.write(bytes(4096))
        library.flush()
        held.append(mmap.mmap(library.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC))
start = time.perf_counter()
n = 0
while time.perf_counter() - start < 0.1:
    sum(range(10_000))
    n += 1
print("warm; samples: 0 seconds: 0.1")
print(f"samples={n} seconds={time.perf_counter() - start}")
print(f"samples {n}, seconds {time.perf_counter() - start:.2e}")
print("OPENBLAS", os.environ.get("OPENBLAS_NUM_THREADS"))
print("CPU", time.process_time())
"""


def bench(folder: Path, text: str = BENCH) -> str:
    (folder / "bench.py").write_text(text)
    return f"{PYTHON} {folder / 'bench.py'}"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One program for all, which is therefore run once to see what it is."""
    return bench(tmp_path_factory.mktemp("program"))


def test_a_program_is_run_once_for_every_slice(tmp_path: Path, program: str) -> None:
    with Launched(tmp_path, "", {"env.OMP_NUM_THREADS": 1}, program=program) as launched:
        assert (launched.card.form, launched.framework) == ("program", "torch")
        read_back = launched.read_back()
        assert read_back["env.OMP_NUM_THREADS"].evidence == "environment_only"
        assert read_back["launch.openmp"].observed == "libgomp"
        began = time.monotonic()
        found = launched.measured().slice
        elapsed_s = time.monotonic() - began
        assert 0.2 <= found.seconds < 10, "two lines of a tenth of a second each count"
        assert found.calls > 2
        # what the program itself used is not another's: by its own account, whatever it was given
        (*_, used_s) = re.findall(
            r"^CPU (\S+)$", (tmp_path / "worker.log").read_text(), re.MULTILINE
        )
        assert found.interference.own is not None
        own_s = found.interference.own * elapsed_s * len(os.sched_getaffinity(0))
        assert own_s > 0.9 * float(used_s)
        assert isinstance(launched.checked(), Checked)
    assert "OPENBLAS None" in (tmp_path / "worker.log").read_text()


@needs("jemalloc")
def test_a_preloaded_allocator_is_seen_in_the_program(tmp_path: Path, program: str) -> None:
    settings: dict[str, Value] = {"launch.allocator": "jemalloc", "env.OPENBLAS_NUM_THREADS": 1}
    with Launched(tmp_path, "", settings, program=program) as launched:
        seen = launched.read_back()["launch.allocator"]
        assert (seen.observed, seen.evidence) == ("jemalloc", "accepted")
    # what every worker has is kept from the program, unless it is a setting
    assert "OPENBLAS 1" in (tmp_path / "worker.log").read_text()


def test_what_is_known_of_a_program_with_nothing_set(program: str) -> None:
    ref, card, known = find_program(program)
    assert ref.name == "bench"
    facts = known[card.frameworks[0]]
    assert facts.effective_defaults["launch.allocator"] == "glibc"
    assert facts.call_s > 0.1
    ids = knob_ids(load_profile("auto", SEARCH_SPACES), card.frameworks, card.form)
    assert "env.OMP_NUM_THREADS" in ids
    assert all(describe(knob).applies is Applies.LAUNCH for knob in ids)
    assert not any(describe(knob).changes_numerics for knob in ids)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", "--command is empty"),
        ("python 'x", "cannot be read: No closing quotation"),
        ("no_such_program_here", "there is no program no_such_program_here"),
        (f"{PYTHON} -c 'print(1)'", "printed no line 'samples=N seconds=S'"),
        (f"{PYTHON} -c 'raise ValueError(3)'", "exit code 1 (its last line: ValueError: 3)"),
        (f"{PYTHON} -c 'import os; os.abort()'", "ended by SIGABRT"),
        (f"{PYTHON} -c 'print(\"samples=0 seconds=1\")'", "with positive numbers"),
        (f"{PYTHON} -c 'print(\"samples=1 seconds=1\")'", "neither PyTorch nor TensorFlow"),
    ],
)
def test_a_program_that_cannot_be_tuned_is_one_line(command: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_program(command)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reply, str]:
    """What a program that fails under a setting, and tells secrets, is answered; and its log."""
    folder = tmp_path_factory.mktemp("failed")
    told = "'not with that: no postgres://me:hunter22@db with ' + os.environ['DB_PASSWORD']"
    text = f"import os, sys\nif 'OMP_NUM_THREADS' in os.environ: sys.exit({told})\n"
    command = bench(folder, f"{text}{BENCH}print({told})\n")
    with pytest.MonkeyPatch.context() as shell:
        shell.setenv("DB_PASSWORD", "correct horse")
        with Launched(folder, "", {"env.OMP_NUM_THREADS": 1}, program=command) as launched:
            launched.begin()
            reply = launched.ask(Prepare(Load(OFFLINE, 1)))
    return reply, (folder / "worker.log").read_text()


def test_a_program_that_fails_under_a_setting_is_an_outcome(failed: tuple[Reply, str]) -> None:
    reply, _ = failed
    assert isinstance(reply, Failed)
    assert reply.outcome is Outcome.CRASHED
    assert "not with that" in reply.reason


def test_secrets_that_a_program_tells_are_not_kept(failed: tuple[Reply, str]) -> None:
    reply, log = failed
    assert isinstance(reply, Failed)
    for kept in (reply.reason, log):
        assert "no postgres://***@db with *** (DB_PASSWORD)" in kept
        assert "horse" not in kept
        assert "hunter22" not in kept
