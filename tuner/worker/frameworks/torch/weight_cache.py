"""Random weights that are drawn once per study: hundreds of millions of them take many seconds.

They are stored in a file, parameters and buffers in the order of the state dict. Later builds skip
the draws and read the file into their own memory, so that everything lies where it would have been
drawn. NaN replaces what was not drawn: it ends loops that draw until something fits, and anything
that the file does not restore shows in the outputs.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOM = 4
"""The free space needed on the disk, in multiples of this file."""
_DRAWS = ("normal_", "uniform_", "trunc_normal_", "kaiming_normal_", "kaiming_uniform_",
          "xavier_normal_", "xavier_uniform_")  # fmt: skip
"""Methods of tensors, and functions of torch.nn.init, which a mode meets whole: within its own call
it is off."""


def save(torch: Any, model: Any, path: Path) -> bool:
    """Write the weights; False if the disk has no room for them.

    Raises RuntimeError for tensors whose bytes are not contiguous.
    """
    state = model.state_dict()
    size = sum(tensor.nbytes for tensor in state.values())
    if _ROOM * size > shutil.disk_usage(path.parent).free:
        return False
    with open(path, "wb") as file:
        for tensor in state.values():
            file.write(_bytes_of(torch, tensor.cpu()))
    return True


def rebuilt(torch: Any, make: Callable[[], Any], path: Path) -> Any:
    """Return the model that `make` builds, with the weights of a file in place of drawn ones.

    Raises EOFError if the file ends before the weights do, or goes on after them.
    """
    from torch.overrides import TorchFunctionMode

    class Undrawn(TorchFunctionMode):
        """Fills a tensor that is to be drawn with what cannot be mistaken for a weight."""

        def __torch_function__(
            self, function: Any, types: Any, arguments: Any = (), named: Any = None
        ) -> Any:
            named = named or {}
            if getattr(function, "__name__", "") not in _DRAWS:
                return function(*arguments, **named)
            tensor = arguments[0] if arguments else named["tensor"]
            tensor.detach().fill_(math.nan)
            return tensor

    with Undrawn():
        model = make()
    with open(path, "rb") as file:
        for name, tensor in model.state_dict().items():
            target = _bytes_of(torch, tensor)
            if file.readinto(target) != len(target):
                raise EOFError(f"{path} ends before {name}")
        if file.read(1):
            raise EOFError(f"{path} goes on after the last weight")
    return model


def _bytes_of(torch: Any, tensor: Any) -> memoryview:
    """Return a tensor's own memory."""
    return memoryview(tensor.detach().view(-1).view(torch.uint8).numpy())
