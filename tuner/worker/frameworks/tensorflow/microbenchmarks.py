"""TensorFlow's own kernels, by which it is measured what a host can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tuner.worker.frameworks import Microbenchmark
from tuner.worker.frameworks.tensorflow.build import TensorFlowBuild

_SIDES = (1024, 2048)
"""Of square products."""
_IMAGES, _SIZE, _CHANNELS = 8, 28, 256
"""Of convolutions."""


class TensorFlowMicrobenchmarks:
    """Products and convolutions on the CPU."""

    def __init__(self, build: TensorFlowBuild) -> None:
        self._build = build

    def products(self, dtype: str) -> Iterator[Microbenchmark]:
        """Yield square products and convolutions."""
        tf = self._build.tf
        kind = {"fp32": tf.float32, "bf16": tf.bfloat16}[dtype]
        for side in _SIDES:
            a = tf.ones((side, side), kind)
            yield Microbenchmark(f"matmul {side}", 2 * side**3, _square(tf, a))
        x = tf.ones((_IMAGES, _SIZE, _SIZE, _CHANNELS), kind)
        for kernel in (1, 3):
            weights = tf.ones((kernel, kernel, _CHANNELS, _CHANNELS), kind)
            flops = 2 * _IMAGES * _SIZE**2 * _CHANNELS**2 * kernel**2
            name = f"convolution {kernel}x{kernel}"
            yield Microbenchmark(name, flops, _convolution(tf, x, weights))

    def streams(self, n_bytes: int) -> Iterator[Microbenchmark]:
        """Yield a sum into an array, and a sum over one.

        Operators with large results would measure how fast pages are given to them.
        """
        tf = self._build.tf
        a = tf.ones(n_bytes // 4)
        total = tf.Variable(a)
        yield Microbenchmark("assign_add", 3 * n_bytes, lambda: total.assign_add(a))
        yield Microbenchmark("reduce_sum", n_bytes, lambda: tf.reduce_sum(a))


def _square(tf: Any, a: Any) -> Callable[[], Any]:
    # an eager operator on the CPU has ended when it returns
    return lambda: tf.linalg.matmul(a, a)


def _convolution(tf: Any, x: Any, weights: Any) -> Callable[[], Any]:
    return lambda: tf.nn.conv2d(x, weights, strides=1, padding="SAME")
