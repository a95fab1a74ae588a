"""Benches of the fake model for the tests of launchers."""

from tests.launchers.benches import bench_of, fake, forked, seed, started

__all__ = ["bench_of", "fake", "forked", "seed", "started"]
