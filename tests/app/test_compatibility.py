"""Whether host, device, frameworks and model suit each other, said before anything is built."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.command import Here, run
from tests.host.machine import build
from tests.host.test_gpus import RECORDINGS, tree_with
from tests.space.spaces import workload
from tests.wants import require
from tuner.app.compatibility import (
    check_device,
    check_memory,
    choose_profile,
    frameworks_for,
    frameworks_meant,
    left_out,
    on_device,
)
from tuner.app.request import Request
from tuner.errors import UsageError
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import Host, probe
from tuner.host.libraries import installed_devices
from tuner.host.nvml import STANDS_IN
from tuner.record.workload import CPU, CUDA, ModelCard
from tuner.space.profile_file import load_profile

CARD = workload("torch").card
BOTH = msgspec.structs.replace(CARD, frameworks=("torch", "tensorflow"))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return probe(tree_with(build(tmp_path)), allowed=(0, 1))


@pytest.fixture
def without(host: Host) -> Host:
    return msgspec.structs.replace(host, gpus=())


def test_auto_takes_the_card_where_something_can_be_measured_on_it(
    host: Host, without: Host
) -> None:
    on_cards = ("tensorflow", "fake")  # the fake is measured on any
    assert choose_profile("auto", host, None, on_cards).device == CUDA
    assert choose_profile("auto", host, None, ("tensorflow",)).device == CPU
    assert choose_profile("auto", without, None, on_cards).device == CPU
    # what is proved again is proved where it was measured
    assert choose_profile("auto", host, CPU, on_cards).device == CPU
    assert choose_profile("auto", without, CUDA).device == CUDA
    assert choose_profile("xeon", host).device == CPU


def test_auto_says_why_a_card_is_left_out(host: Host, without: Host) -> None:
    cpu, card = (load_profile(name, SEARCH_SPACES) for name in ("xeon", "cuda"))
    told = left_out(cpu, host, ("torch", "tensorflow"))
    assert (
        "NVIDIA H100 80GB HBM3 left alone: torch is a build without CUDA here, tensorflow" in told
    )
    assert not left_out(card, host, ("torch",))
    assert not left_out(cpu, without, ("torch",))


@pytest.mark.parametrize(("written", "found"), [("None", [CPU]), ("'13.0'", [CPU, CUDA])])
def test_a_build_tells_of_cuda_without_being_imported(
    tmp_path: Path, written: str, found: list[str]
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise ImportError\n")
    (tmp_path / "torch/version.py").write_text(f"cuda: Optional[str] = {written}\n")
    asked = "from tuner.host.libraries import installed_devices; print(installed_devices('torch'))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", asked],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert list(ast.literal_eval(done.stdout)) == found
    assert installed_devices("tensorflow") in ((CPU,), ())


def test_a_card_that_is_not_there_or_is_a_part_of_one_is_refused(host: Host, without: Host) -> None:
    profile = load_profile("cuda", SEARCH_SPACES)
    check_device(profile, host)
    with pytest.raises(UsageError, match="this process sees none"):
        check_device(profile, without)
    part = msgspec.structs.replace(host.gpus[0], is_partitioned=True)
    with pytest.raises(UsageError, match="partitioned"):
        check_device(profile, msgspec.structs.replace(host, gpus=(part,)))
    check_device(load_profile("xeon", SEARCH_SPACES), without)


@pytest.mark.parametrize(
    ("batches", "on_card"),
    [((4, 16), (4, 16, 64, 256)), ((1, 4), (1, 4, 16, 64)), ((64, 256), (64, 256, 1024, 4096)),
     ((8, 12), (8, 12, 24, 48)), ((1,), (1,))],
)  # fmt: skip
def test_a_card_is_tried_with_larger_batches(
    batches: tuple[int, ...], on_card: tuple[int, ...]
) -> None:
    card = msgspec.structs.replace(CARD, batches=batches)
    assert on_device(card, CUDA).batches == on_card
    assert on_device(card, CPU) == card


def test_frameworks_that_are_not_measured_on_cards_are_left_out_or_refused() -> None:
    assert frameworks_for(Request(model="m"), BOTH, CUDA) == ("torch",)
    assert frameworks_for(Request(model="m"), BOTH, CPU) == ("torch", "tensorflow")
    with pytest.raises(UsageError, match="tensorflow is not tuned on GPUs by this version"):
        frameworks_for(Request(model="m", frameworks=("tensorflow",)), BOTH, CUDA)
    alone = msgspec.structs.replace(CARD, frameworks=("tensorflow",))
    with pytest.raises(UsageError, match="tensorflow is not tuned on GPUs by this version"):
        frameworks_for(Request(model="m"), alone, CUDA)


def test_weights_beyond_the_cards_memory_are_refused(host: Host) -> None:
    def with_weights(gib: int) -> ModelCard:
        return msgspec.structs.replace(CARD, n_parameters=(gib << 30) // 4)

    large = msgspec.structs.replace(
        host, limits=msgspec.structs.replace(host.limits, memory_bytes=1 << 40)
    )
    check_memory(with_weights(70), large, CUDA)
    with pytest.raises(UsageError, match=r"H100 80GB HBM3 has 79\.6 GiB of memory"):
        check_memory(with_weights(90), large, CUDA)
    check_memory(with_weights(90), large)


@pytest.mark.parametrize(
    ("recording", "framework", "said"),
    [
        (None, "torch", "--hw cuda measures on an NVIDIA GPU, and this process sees none"),
        ("h100_idle.json", "torch", "is built without CUDA: install PyTorch's CUDA build"),
        ("h100_idle.json", "tensorflow", "tensorflow is not tuned on GPUs by this version"),
    ],
)
def test_what_cannot_be_measured_on_a_card_is_one_line(
    here: Here,
    monkeypatch: pytest.MonkeyPatch,
    recording: str | None,
    framework: str,
    said: str,
) -> None:
    require(framework)
    if "built without" in said:
        require("PyTorch without CUDA")
    if recording is None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    else:
        monkeypatch.setenv(STANDS_IN, str(RECORDINGS / recording))
    done = here("--model", "fc", "--hw", "cuda", "--framework", framework, "--budget", "40s")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if "error:" in line]) == 1
    assert not list(Path.cwd().rglob("result.json"))


@pytest.mark.slow
def test_a_study_of_a_card_keeps_what_it_told(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the fake, and on a card that was recorded: everything but the computing is real."""
    space = tmp_path / "card.toml"
    space.write_text('schema_version = 1\ntitle = "a card"\nextends = "fake"\ndevice = "cuda"\n')
    environment = {STANDS_IN: str(RECORDINGS / "h100_busy.json")}
    model = "fake@seed=2,noise=0.003"
    done = run("--model", model, "--hw", str(space), "--budget", "8s", "--out", "out",
               cwd=tmp_path, environment=environment, is_virtual=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "out/report.md").read_text()
    assert "| GPU | NVIDIA H100 80GB HBM3, 79.6 GiB, compute capability 9.0" in report
    assert "GPU memory 400 MiB (default 400 MiB)" in report
    assert '<th scope="row">GPU</th><td>NVIDIA H100' in (tmp_path / "out/report.html").read_text()
    assert 'device = "cuda"' in (tmp_path / "out/recommended.toml").read_text()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    again = here("verify", "out")
    assert again.returncode == 2
    assert "--hw cuda measures on an NVIDIA GPU, and this process sees none" in again.stderr


def test_a_study_that_goes_on_may_keep_what_restricts_the_others_of_its_run() -> None:
    torch = ("torch",)
    assert frameworks_meant(Request(model="m"), BOTH, torch) == torch
    assert set(frameworks_meant(Request(model="m", extends=True), BOTH, torch)) == {
        "torch",
        "tensorflow",
    }
