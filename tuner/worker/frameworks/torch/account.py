"""What a device's libraries tell of one call of a model: how it was really computed."""

from __future__ import annotations

from typing import Protocol


class Account(Protocol):
    """A call, by what computed in it."""

    def layout(self) -> tuple[str, str] | None:
        """Return contiguous or channels_last, as most convolutions ran, and by what this is known.

        None without any.
        """

    def low(self) -> tuple[str, str] | None:
        """Return the reduced precision (bf16, fp16) of most products, and by what this is known.

        Empty for none; None where no product was seen whose precision can be told.
        """
