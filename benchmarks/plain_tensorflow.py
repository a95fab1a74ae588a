"""What a user would write to time a Keras model: MODEL.py HEIGHT WIDTH BATCH SECONDS.

Measures once for each line that it reads, so that something else may measure in between.
"""

import runpy
import sys
import time

import tensorflow as tf

path, height, width, batch, seconds = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5])
model = runpy.run_path(path)["tensorflow"]()
x = tf.image.resize(2 * tf.random.normal((batch, 2, 2, 3)), (height, width))  # smooth images
serve = tf.function(lambda x: model(x, training=False)).get_concrete_function(
    tf.TensorSpec(x.shape, x.dtype)
)
for _ in sys.stdin:
    serve(x).numpy()
    calls, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        serve(x).numpy()
        calls += 1
    print(calls * batch / elapsed, flush=True)
