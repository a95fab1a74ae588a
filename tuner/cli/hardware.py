"""tune-framework hardware: what this machine is and allows."""

from __future__ import annotations

import sys

import msgspec
from rich.table import Table
from rich.text import Text

from tuner.cli.tables import text_console
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
