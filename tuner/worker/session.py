"""One launch, seen from inside: build, prepare a batch size, measure slices."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import WorkerFailed
from tuner.host.interference import Watch
from tuner.host.numa import bind_to_node
from tuner.record.configuration import Value
from tuner.record.launch import Built, OutputCheck, Prepared, ReadBack, Slice
from tuner.record.protocol import Begin, Describe, Measure, Prepare
from tuner.record.workload import ModelFacts
from tuner.worker import check, evidence, gallery, inputs, reference
from tuner.worker.frameworks import Array, Framework, framework
from tuner.worker.scenarios import offline

Tell = Callable[[str], None]


class WrongOutput(WorkerFailed):
    """The outputs are not the model's any more."""


class Session:
    """The state of one launch inside the worker; `tell` says what it is doing now."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._watch = Watch()
        self._calls: dict[int, Callable[[], Any]] = {}
        self.framework: Framework | None = None

    def begin(self, order: Begin) -> Built:
        """Import, build, restore or make the reference, apply the model-level settings."""
        policy, _, node = order.memory_policy.partition(":")
        if policy == "bind":
            bind_to_node(int(node))
        self._order = order
        fw = self._start(order.framework, order.settings)
        import_s = self._import_s
        start = time.perf_counter()
        self._tell("building")
        module = gallery.load(order.model.path)
        self._spec: gallery.Model = module.MODEL
        fw.build(module, order.model, order.seed)
        if order.makes_reference:
            self._make_reference(fw, Path(order.reference))
        tensors, self._reference = reference.read(Path(order.reference))
        fw.restore(tensors)
        fw.place(order.settings)
        return Built(import_s, time.perf_counter() - start, fw.versions())

    def _start(self, name: str, settings: dict[str, Value]) -> Framework:
        self._tell("importing")
        start = time.perf_counter()
        fw = framework(name)
        fw.start(settings)
        self._import_s = time.perf_counter() - start
        self.framework = fw
        return fw

    def _make_reference(self, fw: Framework, path: Path) -> None:
        """Condition the model, then write its tensors and the default's outputs."""
        self._tell("conditioning")
        arrays = inputs.generate(
            self._spec.inputs,
            reference.FIRST_CONDITIONING_INPUT,
            reference.N_CONDITIONING_INPUTS,
            self._order.seed,
        )
        tensors = fw.condition(arrays)
        batch = self._spec.reference_batch
        outputs = self._run(fw, batch, reference.N_CHECK_INPUTS)
        reference.write(path, tensors, outputs)

    def _run(self, fw: Framework, batch: int, n_inputs: int) -> list[Array]:
        """Return the outputs for the first `n_inputs` check inputs, in batches of `batch`."""
        pieces: list[list[Array]] = []
        with fw.running():
            for first in range(0, n_inputs, batch):
                arrays = inputs.generate(
                    self._spec.inputs, reference.FIRST_CHECK_INPUT + first, batch, self._order.seed
                )
                pieces.append(fw.outputs(fw.program(arrays)()))
        return [np.concatenate(parts)[:n_inputs] for parts in zip(*pieces, strict=True)]

    def prepare(self, order: Prepare) -> Prepared:
        """Compile, check and warm up one batch size; raises WrongOutput."""
        fw = self._require()
        arrays = inputs.generate(self._spec.inputs, 0, order.batch, self._order.seed)
        self._tell("compiling")
        start = fw.clock()
        with fw.running():
            call = fw.program(arrays)
            call()
            first_call_s = fw.clock() - start
            self._tell("warming up")
            warm = offline.warm_up(call, fw.clock)
        read_back = self._read_back(fw)
        began = time.perf_counter()
        checked = self._check(fw, order)
        self._calls[order.batch] = call
        return Prepared(
            batch=order.batch,
            first_call_s=first_call_s,
            steady_call_s=warm.call_s,
            warm_up_s=warm.seconds,
            is_steady=warm.is_steady,
            check_s=time.perf_counter() - began,
            memory_peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            read_back=tuple(read_back),
            check=checked,
        )

    def _read_back(self, fw: Framework) -> list[ReadBack]:
        settings = self._order.settings
        found = [*evidence.of_process(settings), *fw.read_back(settings)]
        return found + evidence.of_environment(settings, {item.knob for item in found})

    def _check(self, fw: Framework, order: Prepare) -> OutputCheck | None:
        if not order.n_check:
            return None
        self._tell("checking outputs")
        outputs = self._run(fw, order.batch, order.n_check)
        result = check.compare(outputs, self._reference, self._spec.n_classes is not None)
        fault = check.fault(result, order.changes_numerics)
        if fault:
            raise WrongOutput(fault)
        return result

    def measure(self, order: Measure) -> Slice:
        """Time one slice of a prepared batch size."""
        fw = self._require()
        call = self._calls[order.batch]
        with fw.running():
            for _ in range(order.discard):
                call()
            return offline.measure(
                call,
                fw.clock,
                self._watch,
                index=order.index,
                batch=order.batch,
                seconds=order.seconds,
            )

    def describe(self, order: Describe) -> ModelFacts:
        """Build the default and tell what only the built model knows."""
        fw = self._start(order.framework, {})
        start = time.perf_counter()
        module = gallery.load(order.model.path)
        spec: gallery.Model = module.MODEL
        fw.build(module, order.model, order.seed)
        fw.place({})
        build_s = time.perf_counter() - start
        arrays = inputs.generate(spec.inputs, 0, spec.reference_batch, order.seed)
        with fw.running():
            call = fw.program(arrays)
            call()
            start = fw.clock()
            call()
            call_s = fw.clock() - start
        found = [*evidence.of_process({}), *fw.read_back({})]
        return ModelFacts(
            n_parameters=fw.n_parameters(),
            input_shapes=tuple(a.shape[1:] for a in arrays),
            versions=fw.versions(),
            effective_defaults={
                item.knob: item.observed for item in found if item.observed is not None
            },
            import_s=self._import_s,
            build_s=build_s,
            call_s=call_s,
        )

    def _require(self) -> Framework:
        if self.framework is None:
            raise WorkerFailed("asked to work before begin")
        return self.framework

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]:
        """Name what an exhausted memory raises, before and after the framework is there."""
        try:
            return self._require().out_of_memory_errors()
        except (WorkerFailed, AttributeError):
            return (MemoryError,)
