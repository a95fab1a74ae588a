"""Width of a model's graph: how many heavy operators could run side by side, on average.

The published algorithm (tftuner.py of Emma926/mcbench, for arXiv:1908.04705): heavy operators are
convolutions and matrix products; in a model with embeddings, look-ups and convolutions instead.
Layers are the longest chain of heavy operators, and the average width is their number divided by
the layers. Published as a recursion that takes exponential time on branching graphs; here one pass
in topological order. The authors warn that which operators are heavy depends on model and machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

# aten.conv2d.default, Conv2D, DepthwiseConv2dNative; not convert_element_type
_CONVOLUTION = re.compile(r"conv(olution|_transpose)?(\d|\b)", re.IGNORECASE)
# aten.addmm.default, BatchMatMulV2; not upsample_bilinear2d
_PRODUCT = re.compile(
    r"matmul|\blinear\b|\b(add|b|addb|baddb)?mm\b|einsum|attention|lstm|gru", re.IGNORECASE
)
_LOOK_UP = re.compile(r"embedding|gather|SparseSegment", re.IGNORECASE)


class Node(msgspec.Struct, frozen=True):
    """One operator: its name, its kind, and the operators whose results it takes."""

    name: str
    kind: str
    inputs: tuple[str, ...]


def _is_look_up(node: Node) -> bool:
    """Tell whether a node is an embedding look-up: by its kind, or as a gather of such a layer."""
    return bool(_LOOK_UP.search(node.kind)) and "embedding" in f"{node.kind} {node.name}".lower()


def average_width(nodes: Iterable[Node]) -> float:
    """Return heavy operators per layer, 0.0 if there are none.

    nodes: in topological order; inputs that are not among them are ignored.
    """
    everything = list(nodes)
    look_ups = {node.name for node in everything if _is_look_up(node)}
    depth: dict[str, int] = {}
    n_heavy = 0
    for node in everything:
        is_heavy = bool(_CONVOLUTION.search(node.kind)) or (
            node.name in look_ups if look_ups else bool(_PRODUCT.search(node.kind))
        )
        n_heavy += is_heavy
        depth[node.name] = max((depth.get(i, 0) for i in node.inputs), default=0) + is_heavy
    layers = max(depth.values(), default=0)
    return n_heavy / layers if layers else 0.0
