from types import SimpleNamespace

import numpy as np
import pytest

from tuner.errors import UsageError
from tuner.worker.gallery import Features, Image, Lookups, Mask, Tokens, Values
from tuner.worker.gallery.unstated import input_of, inputs_like
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


def test_a_mask_tells_which_tokens_are_the_samples_own() -> None:
    """Of several lengths, a sample fills more than the next shorter one would hold."""
    specs = (Tokens((4, 8), 100), Mask())
    for shape, (shorter, length) in enumerate([(0, 4), (4, 8)]):
        tokens, mask = generate(specs, 0, 64, seed=0, shape=shape)
        assert tokens.shape == mask.shape == (64, length)
        own = mask.sum(axis=1)
        assert own.min() > shorter
        assert len(set(own.tolist())) == length - shorter
        assert not tokens[mask == 0].any()
    full, mask = generate((Tokens((8,), 100), Mask()), 0, 4, seed=0)
    assert mask.all()
    assert full.max() < 100


def test_look_ups_stay_inside_their_tables_and_may_be_skewed() -> None:
    flat, skewed = generate((Lookups(1000, 50, 3), Lookups(1000, 50, skew=1.5)), 0, 32, seed=0)
    assert flat.shape == (32, 3, 50)
    assert skewed.shape == (32, 50)
    assert flat.max() < 1000
    assert skewed.max() < 1000
    assert (skewed == 0).mean() > 100 * (flat == 0).mean() > 0


def test_images_are_given_in_the_layout_of_the_framework() -> None:
    (last,) = generate((Image(8, 6, 3),), 0, 2, seed=0)
    (first,) = generate((Image(8, 6, 3),), 0, 2, seed=0, channels_first=True)
    np.testing.assert_array_equal(first.transpose(0, 2, 3, 1), last)
    assert first.flags.c_contiguous


def test_samples_lie_along_the_dimension_that_is_the_batch() -> None:
    specs = (Values((5, 2)), Values(()))
    first, last = generate(specs, 0, 3, seed=0), generate(specs, 0, 3, seed=0, batch_dim=1)
    np.testing.assert_array_equal(np.moveaxis(last[0], 1, 0), first[0])
    np.testing.assert_array_equal(last[1], first[1])  # of one dimension, which is the batch
    assert last[0].shape == (5, 3, 2)


def test_inputs_like_an_example_have_its_shape_without_its_batch() -> None:
    example = (np.zeros((50, 4, 32), np.float32), np.zeros(4, np.int64))
    like = inputs_like(example, 1)
    assert [array.shape for array in generate(like, 0, 3, seed=0, batch_dim=1)] == [
        (50, 3, 32),
        (3,),
    ]


def test_what_is_not_generated_is_refused_with_what_to_do() -> None:
    low = SimpleNamespace(dtype="torch.bfloat16")
    for example, expected in (
        (low, "give it in float32"),
        (np.array([["a text"]]), "--inputs FILE.npz"),
        (np.zeros((4, 2), np.complex64), "complex64; give float32"),
    ):
        with pytest.raises(UsageError, match=expected):
            inputs_like(example)
    for dtype, expected in (("string", "takes texts"), ("bfloat16", "give it in float32")):
        with pytest.raises(UsageError, match=expected):
            input_of("x", (4,), dtype)
