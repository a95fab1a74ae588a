"""What a user would write to train a Keras classifier: MODEL.py HEIGHT WIDTH BATCH SECONDS.

Measures once for each line that it reads, so that something else may measure in between.
"""

import runpy
import sys
import time

import tensorflow as tf

path, height, width, batch, seconds = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5])
model = runpy.run_path(path)["tensorflow"]()
x = tf.image.resize(2 * tf.random.normal((batch, 2, 2, 3)), (height, width))  # smooth images
y = tf.random.uniform((batch,), maxval=1000, dtype=tf.int32)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=tf.keras.optimizers.AdamW(), loss=loss)
for _ in sys.stdin:
    model.train_on_batch(x, y)
    steps, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        model.train_on_batch(x, y)
        steps += 1
    print(steps * batch / elapsed, flush=True)
