"""The fake framework, for tests and demonstrations.

surface  the truth: how fast each configuration is, and which one fails how
parts    build, calls, evidence and profile
"""

from tuner.worker.frameworks.fake.parts import Fake
from tuner.worker.frameworks.fake.surface import Surface

__all__ = ["Fake", "Surface"]
