"""A functional Keras model: called, predicting, evaluated."""

# mypy: allow-untyped-defs, allow-untyped-calls
# settings: {"tensorflow.frozen": true}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf.keras.utils.set_random_seed(0)
layers = tf.keras.layers
given = layers.Input((16,))
model = tf.keras.Model(given, layers.Dense(4)(layers.Dropout(0.5)(layers.Dense(32, "relu")(given))))
model.compile(loss="mse", metrics=["mae"])
x = np.random.default_rng(0).standard_normal((70, 16)).astype("float32")
y = np.zeros((70, 4), "float32")
expected = model.predict(x, verbose=0)
score = model.evaluate(x, y, verbose=0)

fast = tuned.prepare(model)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    np.testing.assert_allclose(fast.predict(x, verbose=0), expected, atol=1e-5)
    np.testing.assert_allclose(fast(x), expected, atol=1e-5)
    np.testing.assert_allclose(fast(tf.constant(x), training=False), expected, atol=1e-5)
    np.testing.assert_allclose(fast.predict_on_batch(x[:8]), expected[:8], atol=1e-5)
    np.testing.assert_allclose(fast.evaluate(x, y, verbose=0), score, atol=1e-5)
    data = tf.data.Dataset.from_tensor_slices(x).batch(32)
    np.testing.assert_allclose(fast.predict(data, verbose=0), expected, atol=1e-5)
    found = np.concatenate([fast(batch).numpy() for batch in data])
    np.testing.assert_allclose(found, expected, atol=1e-5)
assert not [w for w in caught if "in the model as it was given" in str(w.message)], caught
assert isinstance(fast, tf.keras.Model)
assert fast.count_params() == model.count_params()
assert fast.input_shape == (None, 16)
assert [layer.name for layer in fast.layers] == [layer.name for layer in model.layers]
np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-6)

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    fast.set_weights([2 * weight for weight in model.get_weights()])
    np.testing.assert_allclose(fast(x), model(x), atol=1e-5)
    assert not np.allclose(fast(x), expected)

    class Around(tf.keras.layers.Layer):
        """A frozen part of what is trained."""

        def call(self, x, training=None):
            return fast(x, training=False) + 0.0

    served = tf.function(lambda x: Around()(x, training=True))
    np.testing.assert_allclose(served(x), model(x), atol=1e-5)
said = [str(w.message) for w in caught if "in the model as it was given" in str(w.message)]
assert len(said) == 2, said
