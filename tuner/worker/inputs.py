"""Inputs that a random network tells apart: varied in their low frequencies.

White noise looks the same to a convolutional network after its first pooling, so outputs would
barely depend on the input and any check of them would pass. Images are therefore 2 x 2 random
colours, interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tuner.worker.gallery import Features, Image, Input

Array = npt.NDArray[np.float32]


def _interpolation(size: int) -> Array:
    """Return (size, 2) weights between the two ends."""
    position = np.linspace(0.0, 1.0, size, dtype=np.float32)
    return np.stack([1 - position, position], axis=1)


def generate(inputs: Sequence[Input], first: int, count: int, seed: int) -> list[Array]:
    """Return one float32 array per input for samples first .. first+count-1, batch first.

    Images are NHWC. A sample depends on the seed and its own number alone, so that every batch
    size and every launch sees the same ones.
    """
    arrays = []
    for slot, spec in enumerate(inputs):
        rows = []
        for sample in range(first, first + count):
            random = np.random.default_rng([seed, slot, sample])
            match spec:
                case Image(height=height, width=width, channels=channels):
                    grid = random.standard_normal((2, 2, channels), dtype=np.float32) * 2
                    rows.append(
                        np.einsum(
                            "hi,ijc,wj->hwc",
                            _interpolation(height),
                            grid,
                            _interpolation(width),
                            optimize=True,
                        ).astype(np.float32)
                    )
                case Features(size=size):
                    rows.append(random.standard_normal(size, dtype=np.float32))
        arrays.append(np.stack(rows))
    return arrays
