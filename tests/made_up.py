"""The fake without processes: its launches are made up from its own surface, on a virtual clock.

    python tests/made_up.py --model fake --hw fake --budget 10s ...

A study of it takes no more than its own code does. What is seen in a process needs the fake's
processes (tests/virtual.py): how it dies, what it truly reads back, profiles, memory, servers,
several callers.
"""

import functools
import io
import math
import runpy
import unittest.mock as mock
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from tuner.cli.main import command, main
from tuner.errors import NothingMeasured
from tuner.galleries import MODELS
from tuner.launchers.asking import NOTHING_SET, Deadline
from tuner.launchers.clock import VirtualClock
from tuner.launchers.describe import describe_model, find_model
from tuner.launchers.made_up import MadeUp
from tuner.launchers.protocol import LauncherSpec
from tuner.launchers.recorded import RecordedLauncher, RecordedTestbed
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.output import report
from tuner.output.figures.drawing import NotDrawn
from tuner.record.configuration import Configuration, Value
from tuner.record.launch import Interference, ReadBack
from tuner.record.load import INFERENCE, SCENARIOS
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import Command, Describe, LearnToTarget, MakeReference, Reply
from tuner.record.workload import ModelCard, ModelFacts, ModelRef
from tuner.space.knobs_of.launch import BATCH
from tuner.space.launching import LaunchPlan
from tuner.worker.frameworks.fake.surface import CHOICES, Surface
from tuner.worker.instance_barrier import Orders
from tuner.worker.time_to_target import TimeToTargetSession

Begins = Callable[[], None]
START_S, SLICE_S = 0.13, 0.01
"""What the start of the fake's process and its slices take on a quick, quiet host."""
TRAINED_S = 1.0
"""What a training run to a target takes on the virtual clock."""
N_CALLS = 10
"""Of a slice, where their latency counts."""
AT_START = {
    "crash": Ending(Outcome.CRASHED, "killed by SIGSEGV"),
    "exit": Ending(Outcome.CRASHED, "ended with exit code 3"),
    "exception": Ending(Outcome.CRASHED, "RuntimeError: the fake framework was told to fail"),
    "memory": Ending(Outcome.OUT_OF_MEMORY, "MemoryError"),
    "ignored": Ending(Outcome.NOT_APPLICABLE, "not in force"),
}
"""How faults of the fake end a launch before its first slice."""
IN_CHECK = {
    "wrong_output": Ending(Outcome.WRONG_OUTPUT, "the outputs drift by 1"),
    "nan": Ending(Outcome.WRONG_OUTPUT, "the outputs are not finite"),
}
"""How faults of the fake end it when its outputs are checked."""


def made_up(
    surface: Surface,
    batch: int,
    *,
    n_calls: int = 0,
    session: int = 1,
    begins: Begins = lambda: None,
    clock: VirtualClock | None = None,
) -> MadeUp:
    """Return launches of the fake: its own speed, and slices that drift with the machine.

    batch: the one that no setting names. begins: is called when a launch begins.
    """

    def settings(configuration: Configuration) -> dict[str, Value]:
        return {BATCH: batch, **configuration.as_dict()}

    def fault(configuration: Configuration) -> str:
        found = surface.fault_of(settings(configuration))
        assert not found or found in AT_START or found in IN_CHECK, f"{found} needs a process"
        return found

    def at_start(configuration: Configuration) -> Ending | None:
        begins()
        return AT_START.get(fault(configuration))

    return MadeUp(
        lambda c: surface.log_rate(settings(c)),
        seed=surface.seed + 1000 * (session - 1),
        launch_sd=surface.noise,
        slice_sd=surface.noise / 2,
        drift=lambda now_s: surface.drift * math.sin(now_s / 7 + surface.seed),
        fault=at_start,
        wrong=lambda c: IN_CHECK.get(fault(c)),
        n_calls=n_calls,
        start_s=START_S,
        slice_s=SLICE_S,
        check_s=SLICE_S,
        clock=clock,
    )


@functools.cache
def described(mode: str = INFERENCE) -> tuple[ModelCard, ModelFacts]:
    """Return what the fake's worker tells: no parameter of the fake changes it."""
    ref, card = find_model("fake", MODELS)
    facts = describe_model(ref, "fake", 0, mode=mode)
    # on this clock a launch costs the same on every host
    return card, msgspec.structs.replace(facts, import_s=START_S, build_s=0.0, call_s=SLICE_S)


def read_back(configuration: Configuration) -> tuple[ReadBack, ...]:
    """Return that all is in force, as the fake's worker tells it."""
    settings = configuration.as_dict()
    return tuple(
        ReadBack(knob, settings.get(knob), settings.get(knob, values[0]), "effective", "made up")
        for knob, values in CHOICES.items()
        if knob != BATCH
    )


def _testbed(source: MadeUp, card: ModelCard, facts: ModelFacts) -> RecordedTestbed:
    """Return a testbed of one surface."""
    return RecordedTestbed(source, card, facts, read_back=read_back)


class MadeUpFake:
    """A testbed of the fake with any parameters, and of files that return its surface."""

    def __init__(self, begins: Begins = lambda: None) -> None:
        """begins: is called when a launch begins; what it raises ends the tool there."""
        self.clock = VirtualClock()
        self._begins = begins

    def ask(
        self,
        command: Command,
        models: Sequence[ModelRef],
        waiting: Deadline,
        gpu: str = "",
        then: Command | None = None,
        plan: LaunchPlan | None = None,
        environment: Mapping[str, str] = NOTHING_SET,
    ) -> Reply:
        """Have a worker read the cards of other files, and train to a target."""
        if isinstance(command, LearnToTarget):
            return self._trained(command, waiting)
        is_fake = all(Path(ref.path) == MODELS / "fake.py" for ref in models)
        if not is_fake and not isinstance(command, Describe | MakeReference):
            return THIS_HOST.ask(command, models, waiting, gpu, then, plan, environment)
        any_source = MadeUp(lambda _: 0.0, clock=self.clock)
        card, facts = described(getattr(command, "mode", INFERENCE))
        card = msgspec.structs.replace(card, name=models[0].name)  # of a file that is the fake's
        return _testbed(any_source, card, facts).ask(command, models, waiting, gpu, then)

    def _trained(self, command: LearnToTarget, waiting: Deadline) -> Reply:
        """Train the fake in this process; a run takes TRAINED_S on every host."""
        limit_s = waiting.limit_s()
        self.clock.advance(min(limit_s, TRAINED_S))
        if limit_s < TRAINED_S:
            raise NothingMeasured("the run was ended at its time limit")
        session = TimeToTargetSession(lambda _: None, Orders(io.BytesIO()))
        return session.learn_to_target(command)

    def watch_idle(self, seconds: float) -> Interference:
        self.clock.advance(seconds)
        return Interference()

    def launcher(self, spec: LauncherSpec) -> RecordedLauncher:
        """Return what launches the surface that the model's parameters describe."""
        workload = spec.workload
        source = made_up(
            msgspec.convert(dict(workload.model.parameters), Surface),
            workload.card.reference_batch,
            n_calls=N_CALLS if SCENARIOS[workload.scenario].one_process else 0,
            session=spec.session,
            begins=self._begins,
            clock=self.clock,
        )
        return _testbed(source, workload.card, spec.facts).launcher(spec)


def tuned_here(arguments: Sequence[str], testbed: Testbed) -> int:
    """Run a command line in this process, without drawing, and return its exit code."""
    with mock.patch.object(report, "drawings", side_effect=NotDrawn("not in this test")):
        return command(arguments, testbed)


if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("virtual.py")))["spare"]()
    main(MadeUpFake())
