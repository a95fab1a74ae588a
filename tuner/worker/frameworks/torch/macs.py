"""The multiply-accumulates of a call, by torch's counter; unknown if it would miss some.

`torch.utils.flop_counter` (2.13) counts an operator that it neither knows nor can decompose as no
work at all. The dispatched operators are therefore checked as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

_COUNTED_IN = frozenset({"aten", "prim", "prims"})
"""Namespaces of operators whose products are counted; those of `quantized` and others are not."""
_WHOLE_LAYERS = frozenset(
    {
        "aten::mkldnn_rnn_layer",
        "aten::_cudnn_rnn",
        "aten::_native_multi_head_attention",
        "aten::_transformer_encoder_layer_fwd",
    }
)
"""Layers that are one operator on CPUs, with products inside."""


def count(torch: Any, call: Callable[[], Any]) -> int | None:
    """Return a call's multiply-accumulates (two operations are one); None if not all are seen."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

    seen: set[str] = set()

    class Seen(TorchDispatchMode):
        """Notes each operator, and carries it out."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Note one."""
            seen.add(func.name().partition(".")[0])
            return func(*args, **(kwargs or {}))

    def attention(
        query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any
    ) -> Any:
        return sdpa_flop_count(query, key, value)

    # the counter knows only the operators that other devices have for it
    own = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention}
    with (
        torch.no_grad(),
        Seen(),
        FlopCounterMode(display=False, custom_mapping=own) as counter,
    ):
        call()
    if seen & _WHOLE_LAYERS or {name.partition("::")[0] for name in seen} - _COUNTED_IN:
        return None
    return int(counter.get_total_flops()) // 2
