"""How exact a framework's fp32 products are: the proof of a precision setting is its rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tuner.record.configuration import Value
from tuner.record.launch import Evidence, ReadBack
from tuner.worker.frameworks import Array

_SIZE = 64
"""Small: a large block, once freed, would change how glibc serves later ones."""
# Relative error of products of random matrices, measured: fp32 2e-7 to 3e-7; a mantissa of 11 bits
# (tf32) gives about 3e-4, one of 8 bits (bf16) about 2e-3.
_STRICT_BELOW = 1e-5
_TF32_BELOW = 1e-3

Multiply = Callable[[Array, Array], Array]


def precision_of(products: list[Multiply]) -> tuple[str, float]:
    """Return strict, tf32 or bf16 by the worst of several ways to multiply, and its error."""
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, _SIZE, _SIZE)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = max(
        float(np.linalg.norm(multiply(a, b) - exact) / np.linalg.norm(exact))
        for multiply in products
    )
    if error < _STRICT_BELOW:
        return "strict", error
    return ("tf32" if error < _TF32_BELOW else "bf16"), error


def read_back(knob: str, requested: Value, products: list[Multiply]) -> ReadBack:
    """Read a precision setting back; ANY is in force if products are not exact.

    At most `accepted` then: the evidence is the library's products, not the model's.
    """
    name, error = precision_of(products)
    wanted = str(requested).lower()
    is_met = name == wanted or (wanted == "any" and name != "strict")
    how = f"products of {_SIZE} x {_SIZE} matrices have a relative error of {error:.1g}"
    evidence: Evidence = "accepted" if is_met else "effective"
    return ReadBack(knob, requested, requested if is_met else name, evidence, how)
