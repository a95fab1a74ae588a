"""The properties of a PyTorch model, and the settings in force after a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.record.why import ModelWork
from tuner.record.workload import Parameter
from tuner.worker import engines
from tuner.worker.evidence.openmp import of_openmp
from tuner.worker.frameworks import Array
from tuner.worker.frameworks.torch import knobs
from tuner.worker.frameworks.torch.build import TorchBuild
from tuner.worker.frameworks.torch.inference import TorchInference
from tuner.worker.frameworks.torch.work import count, operators
from tuner.worker.graph import Node


class TorchEvidence:
    """Looks into the library, the compiled modules and oneDNN's own account of one call."""

    def __init__(self, build: TorchBuild, work: TorchInference) -> None:
        self._build = build
        self._work = work

    def read_back(self, settings: Mapping[str, Value], *, traces: bool = True) -> list[ReadBack]:
        """Report what is in force, for every knob of PyTorch."""
        build = self._build
        with self._work.running():
            autocast = (
                build.autocast if build.torch.is_autocast_enabled(build.device.name) else None
            )
        seen = knobs.Seen(
            build.torch,
            build.model,
            dict(settings),
            build.device.account(build.torch, self._traced_call(), traces=traces),
            {i.knob: i for i in (*engines.unused(settings), *build.form.read_back())},
            autocast=autocast,
            traces=traces,
            updates=self._work.updates(),
            n_passes=self._work.n_passes,
            loading={item.knob: item for item in self._work.loading()},
        )
        found = [
            item
            for way in knobs.ADAPTERS[build.device.name].values()
            if (item := way.read(seen)) is not None
        ]
        return [*found, *of_openmp(seen.requested, build.cpus, self._parallel_work)]

    def _traced_call(self) -> Callable[[], Any] | None:
        call = self._work.last_call
        if call is None:
            return None

        def traced() -> None:
            with self._work.running():
                call()

        return traced

    def _parallel_work(self) -> None:
        """Run a parallel region: from 32768 elements on PyTorch divides them among threads.

        In 64 KiB, because a larger block, once freed, would change how glibc serves later ones.
        """
        torch = self._build.torch
        x = torch.ones(1 << 16, dtype=torch.uint8)
        for _ in range(3):
            x += x

    def parameters(self) -> list[Parameter]:
        """Name the parameters of the module, each once."""
        return [
            Parameter(name, tuple(p.shape), p.numel() * p.element_size())
            for name, p in self._build.model.named_parameters()
        ]

    def macs(self, call: Callable[[], Any], batch: int) -> tuple[int, str] | None:
        """Count products and convolutions as they are dispatched."""
        counted = count(self._build.torch, call)
        return None if counted is None else (counted // batch, "torch.utils.flop_counter")

    def work(self, call: Callable[[], Any], arrays: Sequence[Array], batch: int) -> ModelWork:
        """Count what the default dispatches in a call."""
        model = self._build.model
        kept = [*model.parameters(), *model.buffers()]
        counted = operators(self._build.torch, call, kept, batch)
        return ModelWork(tuple(counted), "torch.utils.flop_counter, and the tensors dispatched")

    def graph(self, arrays: Sequence[Array]) -> list[Node]:
        """Export the default model and list its operators."""
        torch = self._build.torch
        tensors = tuple(self._work.given(torch.from_numpy(array)) for array in arrays)
        exported = torch.export.export(self._build.model, tensors)
        return [
            Node(
                node.name,
                str(node.target) if node.op == "call_function" else "",
                tuple(parent.name for parent in node.all_input_nodes),
            )
            for node in exported.graph.nodes
        ]
