"""Drive a real worker through one launch, as the bench does."""

import contextlib
import functools
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

import tuner.launchers.supervised
from tests.once import locked
from tests.virtual import STARTS, Forked
from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.launchers.describe import find_model, find_program, make_reference
from tuner.launchers.worker_process import WorkerProcess
from tuner.record.configuration import Configuration, Value
from tuner.record.launch import Checked, Compiled, Prepared, ReadBack
from tuner.record.load import INFERENCE, OFFLINE, TRAINING, Load
from tuner.record.numerics import Level
from tuner.record.output_check import MAX_DRIFT_TRAINING
from tuner.record.protocol import (
    Begin,
    Check,
    Command,
    Failed,
    Measured,
    Prepare,
    Reply,
    Stage,
    WarmUp,
)
from tuner.record.workload import CPU, ModelCard, ModelRef
from tuner.space.launching import gpu_of, plan_launch

TINY = str(Path(__file__).parent.parent / "models" / "tiny.py")


class WithTorch(Forked):
    """Forks workers that have imported PyTorch already."""

    imports = (
        "torch", "torch.export._trace", "torch.profiler", "torch.utils.flop_counter",
        "torch._inductor.compile_fx", "tuner.worker.frameworks.torch",
    )  # fmt: skip


@contextlib.contextmanager
def torch_imported() -> Iterator[None]:
    """Fork the workers that start here, where nothing that PyTorch reads as it is imported differs.

    Not for what random numbers decide, or the order of a set: forks have those in common.
    """
    with pytest.MonkeyPatch.context() as patch:
        if STARTS not in os.environ:
            forking = SimpleNamespace(Popen=WithTorch, DEVNULL=subprocess.DEVNULL)
            patch.setattr(tuner.launchers.supervised, "subprocess", forking)
        yield


@functools.cache
def _found(model: str, inputs: Path | None) -> tuple[ModelRef, ModelCard]:
    """Ask for a model once: each launch of it would hear the same."""
    return find_model(model, MODELS, inputs=inputs)


@functools.cache
def _found_program(program: str) -> tuple[ModelRef, ModelCard]:
    """Run a program once to see what it is, and not again for every launch."""
    return find_program(program)[:2]


class Launched:
    """One launch of a model (or a program) under settings; use as a context manager.

    framework: the first that the model is there for, if empty. Workers of torch are forked.
    references: where the model's reference is kept for all launches of it; in the folder if None.
    """

    def __init__(
        self,
        folder: Path,
        framework: str,
        settings: Mapping[str, Value],
        model: str = TINY,
        environment: Mapping[str, str] | None = None,
        inputs: Path | None = None,
        program: str | None = None,
        device: str = CPU,
        references: Path | None = None,
        mode: str = INFERENCE,
    ) -> None:
        self.mode = mode
        self.configuration, host = Configuration.of(settings), probe()
        with torch_imported() if framework == "torch" else contextlib.nullcontext():
            if program is not None:
                self.ref, self.card = _found_program(program)
            else:
                self.ref, self.card = _found(model, inputs)
        self.framework = framework = framework or self.card.frameworks[0]
        name = f"{self.ref.label()}-{framework}{'' if mode == INFERENCE else f'-{mode}'}"
        self.reference = (references or folder) / f"{name}.npz"
        (self.plan,) = plan_launch(self.configuration, host, device)
        self.device = device
        is_forked = framework == "torch" and device == CPU and program is None
        with torch_imported() if is_forked else contextlib.nullcontext():
            with locked(self.reference.with_suffix(".lock")):
                if not self.reference.exists():
                    n_inputs, gpu = self.card.n_reference_inputs(), gpu_of(device, host)
                    make_reference(
                        self.ref, framework, 0, self.reference, n_inputs, gpu=gpu, mode=mode
                    )
            self.worker = WorkerProcess(
                self.plan,
                folder / "worker.log",
                {"TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled"), **(environment or {})},
            )

    def __enter__(self) -> "Launched":
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.close()

    def ask(self, command: Command) -> Reply:
        self.worker.send(command)
        while isinstance(reply := self.worker.receive(300), Stage):
            pass
        return reply

    def begin(self) -> Reply:
        return self.ask(
            Begin(
                1,
                self.ref,
                self.framework,
                0,
                self.configuration.as_dict(),
                self.plan.memory_policy,
                str(self.reference),
                mode=self.mode,
                device=self.device,
            )
        )

    def prepare(self, batch: int | None = None, load: Load | None = None) -> Prepared:
        begun = self.begin()
        assert not isinstance(begun, Failed), begun
        scenario = TRAINING if self.mode == TRAINING else OFFLINE
        return self.offered(load or Load(scenario, batch or self.card.reference_batch))

    def offered(self, load: Load) -> Prepared:
        """Prepare a load in a launch that has begun."""
        compiled = self.ask(Prepare(load))
        assert isinstance(compiled, Compiled), compiled
        prepared = self.ask(WarmUp())
        assert isinstance(prepared, Prepared), prepared
        return prepared

    def read_back(self, batch: int | None = None) -> dict[str, ReadBack]:
        return {item.knob: item for item in self.prepare(batch).read_back}

    def measured(self) -> Measured:
        from tuner.record.protocol import Measure

        reply = self.ask(Measure(0, 0.2, 1))
        assert isinstance(reply, Measured), reply
        return reply

    def checked(self, *, reduced: bool = False, n_inputs: int = 0) -> Checked | Failed:
        n_inputs = n_inputs or self.card.n_check_inputs(changes_numerics=reduced)
        training = MAX_DRIFT_TRAINING if self.mode == TRAINING else None
        level = Level.REDUCED if reduced else Level.SAME
        reply = self.ask(Check(n_inputs, level, self.card.tolerance or training))
        assert isinstance(reply, Checked | Failed), reply
        return reply
