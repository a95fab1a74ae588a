"""tune-framework hardware: the machine, and what it allows."""

from __future__ import annotations

import sys

import msgspec
from rich.table import Table
from rich.text import Text

from tuner.cli.tables import text_console
from tuner.host.gpus import Gpu, GpuObservation
from tuner.host.identity import probe


def main(*, as_json: bool) -> None:
    """Print the host."""
    host = probe()
    if as_json:
        data = {
            "fingerprint": host.fingerprint(),
            "identity": host.identity(),
            "observations": msgspec.to_builtins(host.observations),
            "topology": msgspec.to_builtins(host.topology),
            "facts": host.facts(),
        }
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n")
        return
    console = text_console()
    console.print(Text(host.summary(), style="bold"))
    table = Table.grid(padding=(0, 2))
    for name, value in host.facts().items():
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
        shown = f"{shown:.1f}" if isinstance(shown, float) else shown
        table.add_row(name, Text(str(shown)))
    for node in host.topology.nodes:
        cpus = f"CPUs {len(node.cpus)}" if node.cpus else "memory alone"
        outside = "" if node.id in host.limits.allowed_nodes else ", not allowed by the cpuset"
        table.add_row(
            f"node {node.id}",
            f"{cpus}, {node.memory_bytes / 2**30:.1f} GiB{outside}, distances "
            f"{' '.join(map(str, node.distances)) or '-'}",
        )
    for gpu, seen in zip(host.gpus, host.observations.gpus, strict=True):
        table.add_row(f"GPU {gpu.index}", Text(_card(gpu, seen)))
    for name, path in host.libraries.items():
        package = f" ({host.packages[name]})" if name in host.packages else ""
        table.add_row(name, Text(f"{path}{package}"))
    for name, why in host.unusable.items():
        table.add_row(name, Text(why))
    table.add_row("C++ compiler", Text(host.cxx or "none"))
    for name, version in host.versions.items():
        table.add_row(name, version)
    table.add_row("fingerprint", host.fingerprint()[:16])
    console.print(table)


def _card(gpu: Gpu, seen: GpuObservation) -> str:
    """Write a card on one line, without what it does not report."""
    used = None if seen.memory_used_bytes is None else f"{seen.memory_used_bytes / 2**30:.1f} used"
    parts = [
        f"{gpu.name}, compute capability {gpu.compute_capability}",
        f"{gpu.memory_bytes / 2**30:.1f} GiB{f' ({used})' if used else ''}",
        f"limit {gpu.power_limit_w:.0f} W" if gpu.power_limit_w else "",
        f"{seen.sm_mhz} of {gpu.max_sm_mhz} MHz" if seen.sm_mhz and gpu.max_sm_mhz else "",
        f"{seen.temperature_c} C" if seen.temperature_c is not None else "",
        f"held back by: {', '.join(seen.held_back_by)}" if seen.held_back_by else "",
        f"{seen.n_processes} process(es)" if seen.n_processes else "",
        f"PCIe {gpu.pcie}" if gpu.pcie else "",
        "partitioned (MIG)" if gpu.is_partitioned else "",
        f"driver {gpu.driver}",
    ]
    return ", ".join(part for part in parts if part)
