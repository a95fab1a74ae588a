"""A large host that is described and not there, the same wherever a benchmark runs."""

from __future__ import annotations

from tuner.host.identity import Host, Observations, Processor
from tuner.host.limits import Limits
from tuner.host.topology import Cpu, Node, Topology

N_SOCKETS = 2
N_CORES = 56
"""Of each socket, with two hardware threads each."""


def described_host() -> Host:
    """Return a host of two sockets with 56 cores and two threads each, siblings 112 apart."""
    n_all = N_SOCKETS * N_CORES
    cpus = tuple(
        Cpu(id=t * n_all + core, core=core, socket=core // N_CORES, node=core // N_CORES,
            llc=core // N_CORES * N_CORES)
        for t in range(2) for core in range(n_all)
    )  # fmt: skip
    nodes = tuple(
        Node(node, tuple(cpu.id for cpu in cpus if cpu.node == node), 256 << 30,
             (10, 21) if node == 0 else (21, 10))
        for node in range(N_SOCKETS)
    )  # fmt: skip
    isa = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    here = {name: f"/lib/{name}.so" for name in ("tcmalloc", "jemalloc", "libomp", "libiomp5",
                                                 "libnuma")}  # fmt: skip
    return Host(
        processor=Processor("intel", "described: 2 x 56 cores", "x86_64", isa, virtualised=False),
        topology=Topology(cpus, nodes),
        limits=Limits(tuple(cpu.id for cpu in cpus), None, 512 << 30, (0, 1)),
        libraries=here,
        cxx=None,
        gpus=(),
        versions={},
        observations=Observations(400 << 30, 0, 0.0, None, None, None, "always"),
    )
