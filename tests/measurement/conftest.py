"""Benches of the fake model for the tests of measuring."""

from tests.launchers.benches import bench_of, fake, forked, seed, started

__all__ = ["bench_of", "fake", "forked", "seed", "started"]
