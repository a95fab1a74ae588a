"""The fake: a model whose speed is a known function of its settings, for tests and demonstrations.

tune-framework --model fake --hw fake --budget 1m
tune-framework --model fake@seed=3,faults=fake.compile=frozen:crash --hw fake --budget 1m
"""

from tuner.worker.frameworks.fake import Surface
from tuner.worker.gallery import Features, Model

MODEL = Model(
    title="Fake with a known speed surface",
    task="none",
    kind="other",
    inputs=(Features(16),),
    reference_batch=4,
    batches=(4, 16),
    n_classes=32,
)


def fake(
    seed: int = 0,
    noise: float = 0.02,
    drift: float = 0.05,
    flat: bool = False,
    faults: str = "",
    start_s: float = 0.0,
    neutral: str = "",
    doubling: float = 0.0,
) -> Surface:
    """Return the surface; its optimum lies where `seed` puts it."""
    return Surface(seed, noise, drift, flat, faults, start_s, neutral, doubling)
