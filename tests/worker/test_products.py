"""The precision of products is told by how they round."""

import numpy as np
import pytest

from tuner.worker.frameworks import Array
from tuner.worker.frameworks.products import precision_of


def rounded(x: Array, n_bits: int) -> Array:
    """Keep so many bits of the mantissa, as bf16 (7) and tf32 (10) do."""
    bits = x.view(np.uint32) + np.uint32(1 << (22 - n_bits))
    return (bits & np.uint32(0xFFFFFFFF << (23 - n_bits) & 0xFFFFFFFF)).view(np.float32)


@pytest.mark.parametrize(("n_bits", "name"), [(23, "strict"), (10, "tf32"), (7, "bf16")])
def test_precision_is_told_by_rounding(n_bits: int, name: str) -> None:
    def multiply(a: Array, b: Array) -> Array:
        if n_bits == 23:
            return a @ b
        return rounded(a, n_bits) @ rounded(b, n_bits)

    assert precision_of([multiply])[0] == name
