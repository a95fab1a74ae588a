"""A Keras model of named inputs, with batches of varying sizes."""

# settings: {"tensorflow.frozen": false, "tensorflow.jit_compile": true}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf.keras.utils.set_random_seed(0)
layers = tf.keras.layers
named = {"b": layers.Input((4,), name="b"), "a": layers.Input((8,), name="a")}
joined = layers.Concatenate()([layers.Dense(4)(named["a"]), named["b"]])
model = tf.keras.Model(named, {"z": layers.Dense(2)(joined), "y": joined})
random = np.random.default_rng(0)
sample = {
    name: random.standard_normal((12, n)).astype("float32") for name, n in (("a", 8), ("b", 4))
}
expected = model.predict(sample, verbose=0)

fast = tuned.prepare(model)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found = fast(sample)
    assert sorted(found) == ["y", "z"]
    np.testing.assert_allclose(found["z"], expected["z"], atol=1e-5)
    np.testing.assert_allclose(fast.predict(sample, verbose=0)["y"], expected["y"], atol=1e-5)
    assert not [w for w in caught if "in the model as it was given" in str(w.message)], caught
    for n in range(1, 13):
        part = fast({name: array[:n] for name, array in sample.items()})
        np.testing.assert_allclose(part["z"], expected["z"][:n], atol=1e-5)
    fast(sample, training=True)
said = [str(w.message) for w in caught if "in the model as it was given" in str(w.message)]
assert len(said) == 2, said
assert "8 kinds of inputs" in said[0]
assert "training mode" in said[1]
