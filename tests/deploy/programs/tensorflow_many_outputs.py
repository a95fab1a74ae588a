"""A Keras model of two inputs and twelve outputs, each of its own."""

# mypy: allow-untyped-defs, allow-untyped-calls
# settings: {"tensorflow.jit_compile": true}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf.keras.utils.set_random_seed(0)
layers = tf.keras.layers
one, other = layers.Input((8,)), layers.Input((8,))
outputs = [layers.Dense(4)(one if i % 2 else other) for i in range(12)]
model = tf.keras.Model([one, other], outputs)
random = np.random.default_rng(0)
x, y = (random.standard_normal((3, 8)).astype("float32") for _ in range(2))
expected = model([x, y])

fast = tuned.prepare(model)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found = fast([x, y])
assert not [w for w in caught if "in the model as it was given" in str(w.message)], caught
for own, wanted in zip(found, expected, strict=True):
    np.testing.assert_allclose(own, wanted, atol=1e-5)
