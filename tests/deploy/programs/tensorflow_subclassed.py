"""A subclassed Keras model with arguments and outputs of its own."""

# mypy: allow-untyped-defs, allow-untyped-calls
# settings: {"tensorflow.frozen": true, "tensorflow.jit_compile": true}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402


class Scorer(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = tf.keras.layers.Dense(16, "relu")
        self.scores = tf.keras.layers.Dense(3)

    def call(self, inputs, scale=None, doubled=False):
        x, y = inputs
        h = self.hidden(x) + self.hidden(y)
        h = h if scale is None else h * scale
        found = self.scores(h) * (2.0 if doubled else 1.0)
        return {"scores": found, "parts": [h, (found + 1.0,)]}


tf.keras.utils.set_random_seed(0)
model = Scorer()
random = np.random.default_rng(0)
x, y = (random.standard_normal((6, 8)).astype("float32") for _ in range(2))
scale = tf.constant(random.standard_normal((6, 16)), tf.float32)
expected = model((x, y)), model((x, y), scale=scale, doubled=True)
predicted = model.predict((x, y), batch_size=4, verbose=0)

fast = tuned.prepare(model)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        found = fast((x, y)), fast((x, y), scale=scale, doubled=True)
        for one, other in zip(found, expected, strict=True):
            assert list(one) == list(other)
            np.testing.assert_allclose(one["scores"], other["scores"], atol=1e-5)
            np.testing.assert_allclose(one["parts"][1][0], other["parts"][1][0], atol=1e-5)
    again = fast.predict((x, y), batch_size=4, verbose=0)
np.testing.assert_allclose(again["scores"], predicted["scores"], atol=1e-5)
assert not [w for w in caught if "in the model as it was given" in str(w.message)], caught
assert isinstance(fast, Scorer)
assert fast.hidden is model.hidden
