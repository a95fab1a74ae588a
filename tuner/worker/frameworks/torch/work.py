"""The operations and bytes of a call, by torch's counter; unknown where it would miss some.

`torch.utils.flop_counter` (2.13) counts an operator that it neither knows nor can decompose as no
work at all. The dispatched operators are therefore checked as well.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from tuner.record.why import OperatorWork

_COUNTED_IN = frozenset({"aten", "prim", "prims"})
"""Namespaces of operators whose products are counted; those of `quantized` and others are not."""
_WHOLE_LAYERS = frozenset(
    {
        "aten::_cudnn_rnn",
        "aten::_native_multi_head_attention",
        "aten::_transformer_encoder_layer_fwd",
    }
)
"""Layers that are one operator, with products inside."""
_MULTIPLYING = re.compile(r"::(_?addmv|mv|dot|vdot|inner|_int_mm|_addmm_activation|_?\w*conv\w*|"
                          r"\w*matmul\w*|\w*_?mm|\w*linear)$")  # fmt: skip
"""Names of operators that multiply, whether the counter knows them or not."""
_LOOK_UPS = ("aten::embedding", "aten::_embedding_bag", "aten::index_select", "aten::gather")
"""Operators that read of a table what they return, and no more."""


def count(torch: Any, call: Callable[[], Any]) -> int | None:
    """Return a call's multiply-accumulates (two operations are one); None if not all are seen."""
    flops = [each.flops for each in operators(torch, call, (), 1)]
    known = [each for each in flops if each is not None]
    return int(sum(known)) // 2 if len(known) == len(flops) else None


def operators(
    torch: Any, call: Callable[[], Any], parameters: Iterable[Any], batch: int
) -> list[OperatorWork]:
    """Return the work of a call of `batch` items, by the names of the dispatched operators.

    parameters: tensors that do not belong to an item.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import FlopCounterMode

    kept = {tensor.untyped_storage().data_ptr() for tensor in parameters}
    of_items: dict[str, int] = defaultdict(int)
    of_parameters: dict[str, int] = defaultdict(int)

    class Moving(TorchDispatchMode):
        """Notes the bytes that each operator takes and returns, and carries it out."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Note one; a view moves nothing."""
            found = func(*args, **(kwargs or {}))
            name = func.name().partition(".")[0]
            of_items[name] += 0
            for tensor in _moved(func, name, (args, kwargs), found):
                if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                    by = of_parameters if tensor.untyped_storage().data_ptr() in kept else of_items
                    by[name] += tensor.numel() * tensor.element_size()
            return found

    def _moved(func: Any, name: str, given: Any, found: Any) -> list[Any]:
        if func.is_view:
            return []
        if name.startswith(_LOOK_UPS):
            return [*tree_leaves((found, found))]
        return [*tree_leaves((given, found))]

    with (
        torch.no_grad(),
        Moving(),
        FlopCounterMode(display=False, custom_mapping=_formulas(torch)) as counter,
    ):
        call()
    counted = counter.get_flop_counts().get("Global", {})
    flops = {packet._qualified_op_name: int(value) for packet, value in counted.items()}
    # some are no operators, and have no such name
    known = {getattr(each, "_qualified_op_name", "") for each in counter.flop_registry}
    return [
        OperatorWork(
            name,
            flops.get(name, 0) / batch if _is_counted(name, known) else None,
            n_bytes / batch,
            float(of_parameters[name]),
        )
        for name, n_bytes in of_items.items()
    ]


def _is_counted(name: str, known: Container[str]) -> bool:
    """Tell whether all operations of an operator are counted; known: those with a formula."""
    if name in _WHOLE_LAYERS or name.partition("::")[0] not in _COUNTED_IN:
        return False
    return name in known or _MULTIPLYING.search(name) is None


def _formulas(torch: Any) -> dict[Any, Callable[..., Any]]:
    """Return the work of operators that the counter knows on other devices only, by shapes."""
    from torch.utils.flop_counter import sdpa_flop_count

    def attention(
        query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any
    ) -> Any:
        return sdpa_flop_count(query, key, value)

    def recurrent(
        steps: Sequence[int], of_input: Sequence[int], of_state: Sequence[int], *_: Any, **__: Any
    ) -> int:
        """Each step of each sequence is multiplied with both matrices of weights."""
        weights = of_input[0] * of_input[1] + of_state[0] * of_state[1]
        return 2 * steps[0] * steps[1] * weights

    return {
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention,
        torch.ops.aten.mkldnn_rnn_layer: recurrent,
    }
