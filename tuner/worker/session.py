"""One launch, seen from inside: build, prepare, warm up, measure, then check the outputs."""

from __future__ import annotations

import gc
import math
import resource
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from tuner.errors import UsageError, WorkerFailed
from tuner.host.numa import apply_memory_policy
from tuner.record.launch import (
    REST,
    Built,
    Checked,
    Compiled,
    Operator,
    Prepared,
    Profiled,
    ReadBack,
)
from tuner.record.load import Batching
from tuner.record.numerics import Level
from tuner.record.output_check import Bounds, OutputCheck, bounds_of
from tuner.record.protocol import (
    ASKED,
    Answered,
    Begin,
    Check,
    CountWork,
    Describe,
    Idle,
    MakeReference,
    Measure,
    Measured,
    Prepare,
    Profile,
    Serve,
    draft_of,
    weights_beside,
)
from tuner.record.why import ModelWork
from tuner.record.workload import CPU, ModelFacts, StepMemory
from tuner.space.knobs_of.launch import MAX_WAIT
from tuner.space.overrides import overridden
from tuner.worker import check, facts, reference
from tuner.worker.accuracy import loss_of_accuracy
from tuner.worker.evidence import variables
from tuner.worker.evidence.allocator import of_allocator
from tuner.worker.evidence.process import of_process, private_bytes, shared_bytes
from tuner.worker.gallery.recorded import TEXTS
from tuner.worker.gallery.unstated import without_batch
from tuner.worker.instance_barrier import InstanceBarrier, Orders
from tuner.worker.kept import Kept
from tuner.worker.loaded import LoadedModel, Tell
from tuner.worker.reference import OwnError
from tuner.worker.scenarios import SCENARIOS, Scenario
from tuner.worker.scenarios.timing import Call, Calls, fastest, in_turn

MOST_PROFILED_CALLS = 300
"""A profiler keeps every operator of every call: to sum up 17,000 calls took PyTorch's 20 s."""
_MOST_OPERATORS = 60
_SLOW_BUILD_S = 1.0
"""Build times from which keeping weights for later launches pays."""
_WORTH_KEEPING = 0.7
"""Share of the seconds of a build that the next one may take for that."""


class WrongOutput(WorkerFailed):
    """The outputs are not the model's any more."""


class Session(LoadedModel):
    """The state of one launch inside the worker; `tell` reports the current activity."""

    _scenario: Scenario
    _calls: Sequence[Call]
    _by_size: Calls
    _batch: int
    _made: MakeReference
    _build_s: float

    def __init__(self, tell: Tell, orders: Orders) -> None:
        super().__init__(tell)
        self._company = InstanceBarrier(orders, tell)
        self._traces = True
        self._first_call_s = 0.0
        self._batching: Batching | None = None
        self._reference_path = Path()
        self._draws: bool | None = None
        """Whether a step of training draws random numbers; None until it is known."""
        self._step_memory: StepMemory | None = None
        """What a step of training keeps; None until it is known."""

    def begin(self, order: Begin) -> Built:
        """Import, build, restore the reference's tensors, apply the model-level settings."""
        apply_memory_policy(order.memory_policy)
        self._settings, self._traces = order.settings, order.traces
        self._reference_path = Path(order.reference)
        kept = weights_beside(self._reference_path)
        build_s = self._load(
            order.model, order.framework, order.seed, order.mode, order.device, kept
        )
        start = time.perf_counter()
        self.framework.build.restore(reference.read_tensors(self._reference_path))
        self.framework.build.place(order.settings)
        build_s += time.perf_counter() - start
        return Built(self._import_s, build_s, self.framework.build.versions())

    def make_reference(self, order: MakeReference) -> None:
        """Condition the default, then write its tensors and outputs; the process serves no more."""
        self._made, self._build_s = (
            order,
            self._load(order.model, order.framework, order.seed, order.mode, order.device),
        )
        self._tell("conditioning")
        n_taken = len(self._spec.inputs)  # in training, targets follow
        arrays = self._inputs(reference.FIRST_CONDITIONING_INPUT, reference.N_CONDITIONING_INPUTS)
        batch, first = self._spec.reference_batch, reference.FIRST_CONDITIONING_INPUT
        tensors = self.framework.build.condition(
            arrays[:n_taken],
            self._spec.damped_norms,
            lambda: (
                self._inputs(first + i, batch)[:n_taken]
                for i in range(0, reference.N_CONDITIONING_INPUTS, batch)
            ),
        )
        self.framework.build.place({})
        n, seed = order.n_inputs, order.sample_seed
        outputs, accuracy = self._outputs(batch, n, seed)
        outputs, own = self._exact(outputs, n, seed)
        if fault := self._blind_spot(outputs, bounds_of(Level.SAME, None, own.drift)):
            raise UsageError(fault)
        made = reference.Facts(accuracy, own, seed, self._output_dims or (), bool(self._draws))
        reference.write(Path(order.path), tensors, outputs, made)

    def _exact(self, outputs: list[Kept], n: int, seed: int) -> tuple[list[Kept], OwnError]:
        """Return the outputs to compare with, and how far the default's are from them."""
        batch = self._spec.reference_batch
        return reference.exact(
            self.framework.build,
            outputs,
            lambda batch: self._outputs(batch, n, seed)[0],
            (batch, n, 1) if len({batch, *self._spec.batches}) > 1 else (batch,),
            self._spec.n_shapes(),
        )

    def _blind_spot(self, outputs: list[Kept], bounds: Bounds) -> str:
        """Return why a comparison with these outputs could not fail; empty if it can."""
        return check.blind_spot(outputs, bounds.default_rounding)

    def _compared(self, outputs: list[Kept], expected: list[Kept], bounds: Bounds) -> OutputCheck:
        spec = self._spec
        return check.compare(outputs, expected, bounds, spec.n_classes is not None, spec.n_shapes())

    def _fault(self, result: OutputCheck, bounds: Bounds) -> str | None:
        return check.fault(result, bounds, self._spec.accuracy_loss)

    def keep_weights(self) -> None:
        """Keep the weights for later launches if that gives the same model, faster.

        What draws numbers that are no parameters, or draws them otherwise, is built anew each time.
        """
        order = self._made
        if self._build_s < _SLOW_BUILD_S:
            return
        path, batch = weights_beside(Path(order.path)), self._spec.reference_batch
        draft = draft_of(path)
        try:
            if not self.framework.build.save(draft):
                return
            before, _ = self._outputs(batch, batch, 0)
            del self.framework  # or both models are in memory
            gc.collect()
            again_s = self._load(
                order.model, order.framework, order.seed, device=order.device, weights=draft
            )
            self.framework.build.place({})
            after, _ = self._outputs(batch, batch, 0)
            is_same = len(after) == len(before) and all(
                np.array_equal(a.values, b.values) for a, b in zip(after, before, strict=True)
            )
            if is_same and again_s < _WORTH_KEEPING * self._build_s:
                draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    def prepare(self, order: Prepare) -> Compiled:
        """Compile, and make the first call."""
        fw = self.framework
        load = order.load
        self._batch, self._batching = load.batch, load.batching
        shapes = range(self._spec.n_shapes())
        arrays = {n: [self._inputs(0, n, shape) for shape in shapes] for n in load.sizes}
        self._tell("compiling")
        start = fw.work.clock()
        with fw.work.running():
            calls = {n: [fw.work.program(each) for each in arrays[n]] for n in load.sizes}
            for each in calls.values():
                in_turn(each)()
            self._first_call_s = fw.work.clock() - start
        self._calls, self._by_size = calls[load.batch], calls
        self._scenario = SCENARIOS[load.scenario](load, calls, fw.work)
        return Compiled(self._first_call_s)

    def warm_up(self) -> Prepared:
        """Make calls until they are steady, then read back what is in force."""
        self._tell("warming up")
        with self.framework.work.running():
            warm = self._scenario.warm_up()
        return Prepared(
            first_call_s=self._first_call_s,
            steady_call_s=warm.call_s / self._spec.n_shapes(),
            warm_up_s=warm.seconds,
            is_steady=warm.is_steady,
            memory_peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            memory_private_bytes=private_bytes(),
            read_back=tuple(self._read_back(traces=self._traces)),
            is_traced=self._traces,
            memory_shared_bytes=shared_bytes(),
            cpus=tuple(sorted(self._cpus)),
            device_memory=self.framework.build.device_memory(),
        )

    def _read_back(self, *, traces: bool) -> list[ReadBack]:
        found = [
            *of_process(self._settings, self._cpus),
            *of_allocator(self._settings),
            *self._of_the_line(),
            *self.framework.evidence.read_back(self._settings, traces=traces),
        ]
        known = {item.knob for item in found}
        return found + variables.of_environment(self._settings, known, self._framework_name)

    def _of_the_line(self) -> list[ReadBack]:
        """Tell how long a request waits for others, where any do."""
        if self._batching is None or MAX_WAIT not in self._settings:
            return []
        observed = round(1000 * self._batching.wait_s)
        how = "the line from which the requests are taken"
        return [ReadBack(MAX_WAIT, self._settings[MAX_WAIT], observed, "effective", how)]

    def measure(self, order: Measure) -> Measured | Idle:
        """Time one slice of the prepared load."""
        company = self._company if order.in_team else None
        with self.framework.work.running():
            taken = self._scenario.measure(order, self._watch, company)
        return Idle() if taken is None else Measured(taken)

    def serve(self, order: Serve) -> Answered:
        """Answer requests from a socket, a batch at a time, until it is closed."""
        n_batches = 0
        with socket.socket(socket.AF_UNIX) as connection, self.framework.work.running():
            connection.connect(order.address)
            while len(sent := connection.recv(ASKED.size, socket.MSG_WAITALL)) == ASKED.size:
                size, shape = ASKED.unpack(sent)
                self._by_size[size][shape]()
                connection.sendall(b".")
                n_batches += 1
        return Answered(n_batches)

    def profile(self, order: Profile) -> Profiled:
        """Profile calls with the framework's own profiler."""
        self._tell("profiling")
        clock, call = self.framework.work.clock, in_turn(self._calls)
        began = time.perf_counter()
        n_calls, taken_s = 0, 0.0

        def calls() -> None:
            nonlocal n_calls, taken_s
            first = clock()
            while not n_calls or (taken_s < order.seconds and n_calls < MOST_PROFILED_CALLS):
                call()
                n_calls += 1
                taken_s = clock() - first

        with self.framework.work.running():
            found = sorted(
                self.framework.profile.operators(calls), key=lambda o: o.seconds, reverse=True
            )
        n_batches = n_calls * self._spec.n_shapes()
        shown, rest = found[:_MOST_OPERATORS], found[_MOST_OPERATORS:]
        if rest:
            shown.append(Operator(REST, sum(o.seconds for o in rest), sum(o.calls for o in rest)))
        return Profiled(
            operators=tuple(
                Operator(o.name, o.seconds / n_batches, o.calls / n_batches) for o in shown
            ),
            call_s=taken_s / n_batches,
            n_calls=n_calls,
            how=self.framework.profile.title,
            seconds=time.perf_counter() - began,
        )

    def check(self, order: Check) -> Checked:
        """Compare the outputs with the default's; raises WrongOutput."""
        self._tell("checking outputs")
        start = time.perf_counter()
        known = reference.read_facts(self._reference_path)
        expected = reference.read_outputs(self._reference_path)
        n_outputs = len(expected) // self._spec.n_shapes()
        self._draws = known.draws
        self._output_dims = known.output_dims or (0,) * n_outputs
        outputs, accuracy = self._outputs(self._batch, order.n_inputs, known.sample_seed)
        own = known.own
        bounds = bounds_of(order.level, order.tolerance, own.drift, own.changed)
        result = self._compared(outputs, expected, bounds)
        result = msgspec.structs.replace(result, default_drift=own.drift)
        if order.level > Level.SAME and accuracy is not None and known.accuracy is not None:
            result = msgspec.structs.replace(
                result,
                accuracy=float(accuracy.mean()),
                default_accuracy=float(known.accuracy.mean()),
            )
            if (loss := loss_of_accuracy(accuracy, known.accuracy)) is not None:
                result = msgspec.structs.replace(
                    result,
                    most_accuracy_loss=loss.most,
                    accuracy_samples=loss.n_samples,
                    accuracy_samples_needed=loss.n_needed(self._spec.accuracy_loss),
                )
        fault = self._fault(result, bounds)
        if fault and not self._settings:
            fault += (
                "; nothing is set: the model is built differently in every process, though "
                "PyTorch's, TensorFlow's, NumPy's and Python's random numbers are seeded: weights "
                "or constants come from the time, the order of a set, or a generator of their own; "
                "load or seed them"
            )
        if fault:
            raise WrongOutput(fault)
        return Checked(result, time.perf_counter() - start)

    def describe(self, order: Describe) -> ModelFacts:
        """Build the default and tell what only the built model knows."""
        build_s = self._load(order.model, order.framework, order.seed, order.mode, order.device)
        fw = self.framework
        fw.build.place({})
        batch = self._spec.reference_batch
        arrays = self._inputs(0, batch)
        self._tell("calling")
        with fw.work.running():
            with self._own.watched():
                self._check_answers(arrays, batch)
            call = fw.work.program(arrays)  # bound last: evidence is taken from it
            call_s = fastest(self._as_timed(call), fw.work.clock)
            own_settings = self._own.tried(lambda: fastest(call, fw.work.clock))
        taken = arrays[: len(self._spec.inputs)]  # in training, targets follow
        width, width_fault = facts.width(fw, taken)
        parameters = fw.evidence.parameters()
        macs, macs_by = facts.macs(fw, self._stated_macs(), call, batch)
        return ModelFacts(
            n_parameters=sum(math.prod(p.shape) for p in parameters),
            input_shapes=tuple(without_batch(a.shape, self._spec.batch_dim) for a in taken),
            versions=fw.build.versions(),
            effective_defaults={
                item.knob: item.observed
                for item in self._read_back(traces=order.device == CPU)
                if item.observed is not None
            },
            unread={**variables.unread(order.framework), **overridden(own_settings)},
            graph_width=width,
            graph_fault=width_fault,
            import_s=self._import_s,
            build_s=build_s,
            call_s=call_s,
            input_types=tuple(TEXTS if a.dtype.kind in "US" else str(a.dtype) for a in taken),
            parameter_bytes=sum(p.n_bytes for p in parameters),
            parameters_sha256=facts.fingerprint(parameters),
            parameter_ranks=tuple(sorted({len(p.shape) for p in parameters})),
            macs=macs,
            macs_by=macs_by,
            own_settings=own_settings,
            learns=self._in_words(),
            step_memory=self._step_memory,
            has_loader=self._has_loader,
            has_target=self._spec.target is not None,
        )

    def count_work(self, order: CountWork) -> ModelWork:
        """Build the default, and count the operations and bytes of its operators."""
        self._load(order.model, order.framework, order.seed, device=order.device)
        fw = self.framework
        if self._spec.n_shapes() > 1:
            return ModelWork((), "inputs of several shapes are not counted")
        fw.build.place({})
        batch = self._spec.reference_batch
        arrays = self._inputs(0, batch)
        self._tell("counting")
        with fw.work.running():
            return fw.evidence.work(fw.work.program(arrays), arrays, batch)

    @property
    def _has_loader(self) -> bool:
        """Whether calls take their inputs from a loader of the user's."""
        return False

    def _as_timed(self, call: Call) -> Call:
        """Return a call of the model as it is timed; call: with its inputs there."""
        return call

    def _stated_macs(self) -> int:
        """Return the multiply-accumulates that the model's file states; 0 for none."""
        return self._spec.macs

    def _in_words(self) -> str:
        """Say what the model learns; empty if it answers."""
        return ""

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]:
        """Name the errors of exhausted memory, before and after the framework is loaded."""
        try:
            return self.framework.build.out_of_memory_errors()
        except AttributeError:  # not loaded yet, or half
            return (MemoryError,)
