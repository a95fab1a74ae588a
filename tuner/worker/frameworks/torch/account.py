"""How a device's libraries actually computed one call of a model."""

from __future__ import annotations

from typing import Protocol


class Account(Protocol):
    """A call, by what computed in it."""

    def layout(self) -> tuple[str, str] | None:
        """Return contiguous or channels_last, as most convolutions ran, and the evidence.

        None without any.
        """

    def low(self) -> tuple[str, str] | None:
        """Return the reduced precision (bf16, fp16) of most products, and the evidence.

        Empty if it is not reduced; None if no product with a known precision was seen.
        """
