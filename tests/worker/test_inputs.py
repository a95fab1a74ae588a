import numpy as np

from tuner.worker.gallery import Features, Image
from tuner.worker.inputs import generate

SPECS = (Image(16, 24, 3), Features(5))


def test_a_sample_depends_on_its_number_and_the_seed_alone() -> None:
    many = generate(SPECS, 0, 6, seed=1)
    few = generate(SPECS, 2, 2, seed=1)
    for a, b in zip(many, few, strict=True):
        np.testing.assert_array_equal(a[2:4], b)
    assert not np.array_equal(many[0], generate(SPECS, 0, 6, seed=2)[0])


def test_shapes_and_types() -> None:
    image, features = generate(SPECS, 0, 4, seed=0)
    assert image.shape == (4, 16, 24, 3)
    assert features.shape == (4, 5)
    assert image.dtype == features.dtype == np.float32


def test_images_differ_in_their_low_frequencies() -> None:
    """Averages over large areas differ between samples: pooling does not erase the input."""
    (image,) = generate((Image(64, 64, 3),), 0, 32, seed=0)
    corners = image[:, :32, :32].mean(axis=(1, 2))
    assert corners.std(axis=0).min() > 0.5
    assert np.abs(np.diff(image, axis=1)).max() < 0.5
