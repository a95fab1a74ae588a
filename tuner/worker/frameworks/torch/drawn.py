"""Random weights that are drawn once a study: hundreds of millions of them take many seconds.

They are kept in a file, parameters and buffers one after another in the order of the state dict.
Later builds leave in-place draws out and read the file into their own memory, so that everything
lies where it would have been drawn.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOM = 4
"""What must be free on the disk, in files as large as this one."""


def save(torch: Any, model: Any, path: Path) -> bool:
    """Write the weights; False where the disk has no room for them.

    Raises RuntimeError or TypeError for tensors that have no bytes of their own, one after another.
    """
    every = [_bytes_of(torch, tensor.cpu()) for tensor in model.state_dict().values()]
    if _ROOM * sum(map(len, every)) > shutil.disk_usage(path.parent).free:
        return False
    with open(path, "wb") as file:
        for each in every:
            file.write(each)
    return True


def rebuilt(torch: Any, make: Callable[[], Any], path: Path) -> Any:
    """Return the model that `make` builds, with the weights of a file in place of drawn ones.

    Raises EOFError if the file ends before the weights do.
    """
    from torch.overrides import TorchFunctionMode

    draws = (torch.Tensor.normal_, torch.Tensor.uniform_)

    class Undrawn(TorchFunctionMode):
        """Leaves a tensor that is to be drawn as it was allocated."""

        def __torch_function__(
            self, function: Any, types: Any, arguments: Any = (), named: Any = None
        ) -> Any:
            return arguments[0] if function in draws else function(*arguments, **(named or {}))

    with Undrawn():
        model = make()
    with open(path, "rb") as file:
        for name, tensor in model.state_dict().items():
            target = _bytes_of(torch, tensor)
            if file.readinto(target) != len(target):
                raise EOFError(f"{path} ends before {name}")
    return model


def _bytes_of(torch: Any, tensor: Any) -> memoryview:
    """Return a tensor's own memory."""
    return memoryview(tensor.detach().view(-1).view(torch.uint8).numpy())
