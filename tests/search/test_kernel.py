"""The covariance, against its definition and against scipy."""

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from tuner.search.features import Encoded
from tuner.search.kernel import JITTER, PARTS, Kernel, squares

N = 15
PLACED = [(), (0, 2), (1,), (0, 1, 2, 3)]
"""Features that are placement; of four, the first two are axes."""


def encoded(n: int, seed: int) -> Encoded:
    draw = np.random.default_rng(seed)
    return Encoded(draw.random((n, 2)), draw.integers(0, 3, (n, 2)) + np.array([0, 3]))


def kernel_of(placed: tuple[int, ...]) -> Kernel:
    return Kernel(np.isin(np.arange(4), placed))


def theta_of(kernel: Kernel) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.3, kernel.n_lengths + PARTS)


@pytest.mark.parametrize("placed", PLACED)
def test_the_covariance_is_as_defined(placed: tuple[int, ...]) -> None:
    a, b, kernel = encoded(5, 0), encoded(7, 1), kernel_of(placed)
    theta = theta_of(kernel)
    lengths, parts = np.exp(theta[kernel.length_of]), np.exp(2 * theta[-PARTS:])
    additive, together, whole, _ = parts
    found = kernel.covariance(theta, a, b)
    single = [k for k in range(4) if k not in placed]
    for i in range(5):
        for j in range(7):
            squared = [(a.axes[i, k] - b.axes[j, k]) ** 2 for k in range(2)]
            squared += [float(a.marks[i, k] != b.marks[j, k]) for k in range(2)]
            scaled = [s / length**2 for s, length in zip(squared, lengths, strict=True)]
            wanted = sum(additive / len(single) * math.exp(-2 * scaled[k]) for k in single)
            if placed:
                near = sum(scaled[k] for k in placed) * 4 / len(placed)
                wanted += together * math.exp(-near / 2)
            r = math.sqrt(5 * sum(scaled))
            wanted += whole * (1 + r + r**2 / 3) * math.exp(-r)
            assert found[i, j] == pytest.approx(wanted)


@pytest.mark.parametrize("placed", PLACED)
def test_the_likelihood_is_that_of_the_covariance(placed: tuple[int, ...]) -> None:
    kernel, x = kernel_of(placed), encoded(N, 0)
    theta = theta_of(kernel)
    y, known = np.random.default_rng(1).normal(size=N), 0.01 * np.eye(N)
    covariance = kernel.covariance(theta, x, x) + known
    covariance += (math.exp(2 * theta[-1]) + JITTER) * np.eye(N)
    assert covariance[0, 0] == pytest.approx(kernel.variance(theta) + 0.01, abs=1e-5)
    density = multivariate_normal(np.zeros(N), covariance).logpdf(y)
    value, _ = kernel.likelihood(theta, kernel.apart(x), y, known)
    assert value == pytest.approx(-density - N / 2 * math.log(2 * math.pi))


@pytest.mark.parametrize("placed", PLACED)
def test_the_gradient_of_the_likelihood_is_its_slope(placed: tuple[int, ...]) -> None:
    kernel = kernel_of(placed)
    theta = theta_of(kernel)
    apart = kernel.apart(encoded(N, 0))
    y, known = np.random.default_rng(1).normal(size=N), 0.01 * np.eye(N)
    _, gradient = kernel.likelihood(theta, apart, y, known)
    for k, step in enumerate(1e-5 * np.eye(len(theta))):
        above, below = (
            kernel.likelihood(theta + sign * step, apart, y, known)[0] for sign in (1, -1)
        )
        assert gradient[k] == pytest.approx((above - below) / 2e-5, abs=1e-5)


def test_placement_has_one_length() -> None:
    kernel = kernel_of((0, 2))
    assert kernel.n_lengths == 3
    assert list(kernel.length_of) == [2, 0, 2, 1]


def test_nothing_is_apart_from_itself() -> None:
    x = encoded(N, 3)
    found = squares(np.full(4, 100.0), x, x)
    assert np.diag(found) == pytest.approx(0.0, abs=1e-10)
    assert (found >= 0).all()
