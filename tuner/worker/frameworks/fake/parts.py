"""A framework with a known speed surface, recorded noise, and faults on demand.

It runs in the same worker and under the same launcher as PyTorch and TensorFlow. Only its clock is
virtual: a call advances it instead of computing. Tests and demonstrations use it where the truth
must be known. Its noise is that of shared hosts: launches of one configuration differ (SD 2 %),
slices within a launch too (1 %), and everything drifts together by several percent.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import resource
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import UsageError
from tuner.host.limits import read_memory
from tuner.record.configuration import Value
from tuner.record.launch import DeviceMemory, Operator, ReadBack
from tuner.record.load import INFERENCE, TRAINING
from tuner.record.protocol import Begin
from tuner.record.why import ModelWork, OperatorWork
from tuner.record.workload import CPU, Parameter, StepMemory
from tuner.supervisor import descendants, parents
from tuner.worker.evidence.allocator import allocator
from tuner.worker.frameworks import (
    Array,
    Calibration,
    InBatches,
    Microbenchmark,
    NoWeightCache,
    Setter,
    Tensors,
    no_inputs,
)
from tuner.worker.frameworks.fake.surface import CHOICES, INSTANCES, Surface, draw, n_instances
from tuner.worker.frameworks.prepared import Arguments, CalledInstead, Caller
from tuner.worker.frameworks.training import Learned, Learner, Loading, Task
from tuner.worker.graph import Node

_SAFE_BYTES = 8 << 30
MOMENT = "TUNE_FRAMEWORK_FAKE_MOMENT"
"""The variable that fixes what a launch draws and when it runs: "SEED SECONDS". Without it, noise
is drawn anew for each process, and the drift follows the host's clock."""
_PACE, _SEEDS_SD, _SETTINGS_SD = 20.0, 0.1, 0.01
"""Steps in which the fake learns 63 %; by how much they differ between seeds, and between settings
with the same seed (SD of the logarithm)."""
FLOPS = {"fp32": 1e9, "bf16": 2e9}
BYTES_PER_S = 1e9
"""What the fake's host does."""
_ON_A_CARD = DeviceMemory(300 << 20, 400 << 20, 400 << 20, 80 << 30)


@functools.cache
def _weights(seed: int, width: int) -> Array:
    return draw("weights", seed).standard_normal((width, 32))


def _exhaust_memory() -> None:
    """Take memory until none is left; only if a limit protects the machine."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    limit = read_memory() if soft == resource.RLIM_INFINITY else soft
    if limit > _SAFE_BYTES:
        raise RuntimeError(f"memory is not limited to {_SAFE_BYTES} bytes here")
    taken = []
    while True:
        taken.append(np.ones(1 << 23))


def _runs_beside(module: bytes) -> bool:
    """Tell whether the tool that measures this process runs a busy one next to it."""
    tool = parents().get(os.getppid(), 0)
    for pid in descendants(tool):
        with contextlib.suppress(OSError):
            is_it = module in Path(f"/proc/{pid}/cmdline").read_bytes()
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
            if is_it and pid != os.getpid() and state != b"T":
                return True
    return False


class FakeBuild(NoWeightCache):
    """A surface with the settings and faults that come before its first call."""

    channels_first = False
    setters: Sequence[Setter] = ()

    def __init__(self, device: str = CPU) -> None:
        self.calibration: Calibration = no_inputs
        self.fault = ""
        self.launch_effect = 0.0
        self._is_on_card = device != CPU

    def start(self, settings: Mapping[str, Value]) -> None:
        """Take the settings; "hang" never returns from here."""
        self.settings = {
            **{k: v for k, v in settings.items() if k in CHOICES},
            **({"env.FAKE_THREADS": int(os.environ["FAKE_THREADS"])}
               if "FAKE_THREADS" in os.environ else {}),
            "launch.allocator": allocator(),
            INSTANCES: n_instances(settings),
        }  # fmt: skip

    def seed(self, number: int) -> None:
        """Keep the seed of the weights of what is adopted next."""
        self._seed = number

    def adopt(self, model: Any) -> None:
        """Take the surface; faults of the building kind happen here."""
        self.surface: Surface = model
        self.weights_seed = self._seed
        seed, _, moment = os.environ.get(MOMENT, "").partition(" ")
        self.now_s = float(moment) if moment else None
        # a launch's own speed: drawn anew for every process, like address layout
        self.random = (
            draw("launch", seed, os.environ.get("TUNE_FRAMEWORK_RANK", "0"))
            if seed
            else np.random.default_rng()
        )
        self.launch_effect = float(self.random.normal(0, self.surface.noise))
        time.sleep(self.surface.start_s)

    def condition(
        self, arrays: Sequence[Array], damped_norms: str, in_batches: InBatches | None = None
    ) -> Tensors:
        """Nothing to condition: the outputs tell inputs apart by construction."""
        return {}

    def restore(self, tensors: Tensors) -> None:
        """Nothing to restore."""

    def place(self, settings: Mapping[str, Value]) -> None:
        """Provoke the fault that the settings ask for."""
        rank = int(os.environ.get("TUNE_FRAMEWORK_RANK", "0"))
        self.fault = self.surface.fault_of({**self.settings, **settings, "rank": rank})
        match self.fault:
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "exit":
                os._exit(3)
            case "exception":
                raise RuntimeError("the fake framework was told to fail")
            case "memory":
                raise MemoryError("the fake framework was told to run out of memory")
            case "hang":
                time.sleep(1e6)
            case "slow_start":
                time.sleep(3.0)
            case "crowded" if _runs_beside(b"tuner.worker.main"):
                os.kill(os.getpid(), signal.SIGKILL)
            case "garbage":
                os.write(1, b'\x00\xff{"type": "ready"}\n' * 100)
            case "daemon":
                self._fork_daemon()
            case "exhaust":
                _exhaust_memory()

    def _fork_daemon(self) -> None:
        """Leave a process behind that escaped its session, as a careless library would."""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1e6)
            os._exit(0)
        os.wait()

    def versions(self) -> dict[str, str]:
        """The fake has none."""
        return {}

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]:
        """Name the errors of exhausted memory."""
        return (MemoryError,)

    def exact(self) -> None:
        """The default is exact."""

    def device_memory(self) -> DeviceMemory | None:
        """Report a card that does not exist, if one is simulated."""
        return _ON_A_CARD if self._is_on_card else None


class FakeInference:
    """Calls that take virtual time."""

    def __init__(self, build: FakeBuild) -> None:
        self._build = build
        self.now = 0.0
        self.n_calls = 0

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Return them as they are."""
        return Arguments(args, kwargs)

    def function(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the model as a function of its input."""
        return self._forward

    @property
    def model(self) -> Callable[..., Any]:
        """The one function that there is."""
        return self._forward

    @property
    def folds_weights(self) -> bool:
        """There are none to change."""
        return False

    def prepared(self, call: Caller) -> Any:
        """Return a surface that can be called."""
        return CalledInstead(self._build.surface, call)

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Return a call that takes virtual time."""
        batch = len(arrays[0])
        of_all = self._build.surface.log_rate({**self._build.settings, "workload.batch": batch})
        truth = of_all - math.log(n_instances(self._build.settings))
        compiles = self._build.settings.get("fake.compile", "off") != "off"
        calls = 0

        def call() -> Array:
            nonlocal calls
            if self._build.fault == "hang_in_call" and calls > 3:
                time.sleep(1e6)
            if self._build.fault == "lonely" and _runs_beside(b"tuner.worker.busy"):
                os.kill(os.getpid(), signal.SIGKILL)
            now_s = time.monotonic() if self._build.now_s is None else self._build.now_s
            log_rate = (
                truth
                + self._build.launch_effect
                + float(self._build.random.normal(0, self._build.surface.noise / 2))
                + self._build.surface.drift * math.sin(now_s / 7 + self._build.surface.seed)
            )
            self.now += batch / math.exp(log_rate)
            if calls == 0 and compiles:
                self.now += 2.0
            calls += 1
            self.n_calls += 1
            return self._forward(arrays[0])

        return call

    def _forward(self, x: Array) -> Array:
        y = (x @ _weights(self._build.weights_seed, x.shape[1])).astype(np.float32)
        match self._build.fault:
            case "wrong_output":
                return np.ascontiguousarray(y[::-1])
            case "nan":
                return y * np.float32("nan")
            case "misshapen":
                return y[:, :-1]
            case "drifting":
                return y * np.float32(1.01)
        if self._build.settings.get("fake.precision") == "bf16":
            y *= 1 + np.float32(0.002) * np.sign(y)
        return y

    def outputs(self, result: Any) -> list[Array]:
        """Return the one output."""
        return [result]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Nothing to enter."""
        yield

    def clock(self) -> float:
        """Return virtual seconds."""
        return self.now

    def wait_until(self, moment: float) -> None:
        """Let virtual time pass."""
        self.now = max(self.now, moment)


class FakeTraining(FakeInference):
    """Steps that take virtual time, and teach what the outputs are."""

    task = Task()
    optimizer_name = "the fake's optimizer"
    loss_name = "the fake's loss"
    how_to_draw = "nothing"

    def learn(self, step: Callable[[], Any], n_steps: int) -> Learned:
        """Return a loss that falls, and the sum of the outputs as the gradient of the weights."""
        y = step().astype(np.float64)
        first = float(np.mean(y**2))
        return Learned(
            np.array([first * 0.9**n for n in range(n_steps)]),
            [y.sum(axis=0, dtype=np.float32)],
            [1e-3 * n_steps],
            ["weights"],
        )

    def start_others(self, order: Begin, cpus: Collection[int]) -> list[int]:
        """Start none: no setting asks for it."""
        return []

    def fed(self, batch: int) -> tuple[Callable[[], Any], Loading]:
        """Raise UsageError: the fake has no loader."""
        raise UsageError("the fake is not measured with a loader")

    def memory(self, step: Callable[[], Any], batch: int) -> StepMemory:
        """Return the bytes of the one tensor of weights, and of a batch of outputs."""
        n_bytes = 16 * 32 * 4
        return StepMemory(batch, n_bytes, n_bytes, 2 * n_bytes, batch * 32 * 4)

    def moves(self, step: Callable[[], Any]) -> bool:
        """The fake's weights stay where they are."""
        return False

    def learner(self, example: Sequence[Array]) -> Learner:
        """Return what learns by an exponential law: all seeds differ, and all settings a little."""
        call, build, n_steps = self.program(example), self._build, 0
        own = draw("own pace", build.weights_seed, sorted(build.settings.items()))
        pace = _PACE * math.exp(
            _SEEDS_SD * float(draw("pace", build.weights_seed).standard_normal())
            + _SETTINGS_SD * float(own.standard_normal())
        )
        if build.settings.get("fake.precision") == "bf16":
            pace *= build.surface.bf16_steps

        def step(arrays: Sequence[Array]) -> None:
            nonlocal n_steps
            call()
            n_steps += 1

        def evaluate(inputs: Sequence[Array]) -> list[Array]:
            return [np.full(len(inputs[0]), 1 - math.exp(-n_steps / pace))]

        return Learner(step, evaluate)

    def quiet(self) -> None:
        """Nothing is drawn."""

    def nudge(self, by: float, seed: int) -> None:
        """The fake's weights are moved by nothing: its sums have one order."""

    def prepared_to_learn(self, optimizer: Any) -> Any:
        """Return the surface."""
        return self._build.surface

    def unchanged(self, arrays: Sequence[Array]) -> bool:
        """No step changes anything."""
        return True


class FakeEvidence:
    """The facts that the fake reports."""

    def __init__(self, build: FakeBuild) -> None:
        self._build = build

    def read_back(self, settings: Mapping[str, Value], *, traces: bool = True) -> list[ReadBack]:
        """Report what is in force; an "ignored" setting stays at its default."""
        found = []
        for knob, values in CHOICES.items():
            if knob in ("launch.allocator", "workload.batch"):
                continue
            observed = (
                values[0]
                if self._build.fault == "ignored"
                else self._build.settings.get(knob, values[0])
            )
            found.append(
                ReadBack(knob, settings.get(knob), observed, "effective", "the fake's own state")
            )
        return found

    def parameters(self) -> list[Parameter]:
        """Name the one tensor of weights."""
        return [Parameter("weights", (16, 32), 16 * 32 * 4)]

    def macs(self, call: Callable[[], Any], batch: int) -> tuple[int, str] | None:
        """Count one product with the weights."""
        return 16 * 32, "the fake's own count"

    def work(self, call: Callable[[], Any], arrays: Sequence[Array], batch: int) -> ModelWork:
        """Count the product, and the smaller operator, which only moves data."""
        product = OperatorWork("matmul", 2.0 * 16 * 32, 4.0 * (16 + 32), 4.0 * 16 * 32)
        return ModelWork((product, OperatorWork("add", 0.0, 8.0 * 32, 0.0)), "the fake's own count")

    def graph(self, arrays: Sequence[Array]) -> list[Node]:
        """Two products side by side, then one that takes both: a width of 1.5."""
        return [
            Node("left", "matmul", ()),
            Node("right", "matmul", ()),
            Node("last", "matmul", ("left", "right")),
        ]


class FakeProfile:
    """The fake's own account of its time."""

    title = "the fake's own account"

    def __init__(self, build: FakeBuild, work: FakeInference) -> None:
        self._build = build
        self._work = work

    def operators(self, calls: Callable[[], None]) -> list[Operator]:
        """Two operators share the time: a compiler helps the smaller one."""
        if self._build.fault == "shy":
            os.kill(os.getpid(), signal.SIGKILL)
        began, calls_before = self._work.now, self._work.n_calls
        calls()
        taken, n = self._work.now - began, self._work.n_calls - calls_before
        fused = self._build.settings.get("fake.compile", "off") != "off"
        share = 0.1 if fused else 0.3
        name = "fused_add" if fused else "add"
        return [Operator("matmul", (1 - share) * taken, 3 * n), Operator(name, share * taken, n)]


class FakeMicrobenchmarks:
    """Operators that take virtual time."""

    def __init__(self, work: FakeInference) -> None:
        self._work = work

    def products(self, dtype: str) -> Iterator[Microbenchmark]:
        """Yield a product, and a slower one."""
        for name, speed in (("product", 1.0), ("small product", 0.5)):
            yield Microbenchmark(name, 1e6, self._takes(1e6 / (speed * FLOPS[dtype])))

    def streams(self, n_bytes: int) -> Iterator[Microbenchmark]:
        """Yield one operator."""
        yield Microbenchmark("sum", n_bytes, self._takes(n_bytes / BYTES_PER_S))

    def _takes(self, seconds: float) -> Callable[[], None]:
        def call() -> None:
            self._work.now += seconds

        return call


class Fake:
    """The fake's side of the framework contract."""

    def __init__(self, mode: str = INFERENCE, device: str = CPU) -> None:
        self.build = FakeBuild(device)
        self.work = {INFERENCE: FakeInference, TRAINING: FakeTraining}[mode](self.build)
        self.evidence = FakeEvidence(self.build)
        self.profile = FakeProfile(self.build, self.work)
        self.microbenchmarks = FakeMicrobenchmarks(self.work)
