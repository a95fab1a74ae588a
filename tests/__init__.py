"""Tests mirror tuner/. A package, because py-libnuma installs a top-level `tests` of its own."""
