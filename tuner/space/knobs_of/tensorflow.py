"""What TensorFlow alone has."""

from __future__ import annotations

from tuner.record.load import INFERENCE
from tuner.record.numerics import Level
from tuner.space.knob import (
    AT_LEAST_0,
    BOOLEAN,
    BYTES,
    SWITCH,
    list_of,
    model,
    one_of,
    variable,
    written,
)

KNOBS = (
    variable("TF_NUM_INTRAOP_THREADS", "intra-op threads of TensorFlow", domain=AT_LEAST_0),
    variable("TF_NUM_INTEROP_THREADS", "inter-op threads of TensorFlow", domain=AT_LEAST_0),
    variable(
        "TF_ENABLE_ONEDNN_OPTS",
        "oneDNN's kernels in TensorFlow",
        marker="TF_ENABLE_ONEDNN_OPTS",
        domain=SWITCH,
    ),
    variable(
        "TF_ENABLE_MKL_NATIVE_FORMAT",
        "TensorFlow's own layout in oneDNN's kernels",
        marker="TF_ENABLE_MKL_NATIVE_FORMAT",
        domain=SWITCH,
    ),
    variable(
        "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS",
        "keep reordered weights",
        marker="TF_ONEDNN_ASSUME_FROZEN_WEIGHTS",
        domain=SWITCH,
    ),
    variable(
        "TF_ONEDNN_USE_SYSTEM_ALLOCATOR",
        "malloc instead of TensorFlow's pool",
        marker="TF_ONEDNN_USE_SYSTEM_ALLOCATOR",
        domain=SWITCH,
    ),
    variable(
        "TF_MKL_ALLOC_MAX_BYTES",
        "size of TensorFlow's pool for oneDNN",
        marker="TF_MKL_ALLOC_MAX_BYTES",
        domain=BYTES,
    ),
    variable(
        "TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE",
        "false keeps oneDNN's kernels in a cache",
        marker="TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE",
        domain=SWITCH,
    ),
    variable(
        "TF_XLA_FLAGS",
        "XLA for whatever it can cluster",
        marker="TF_XLA_FLAGS",
        domain=written(list_of(r"--\w+(=\S+)?", " "), "flags such as --tf_xla_auto_jit=2"),
    ),
    model(
        "tensorflow.frozen",
        "variables folded into constants",
        "f = convert_variables_to_constants_v2(f) on the concrete function f",
        domain=BOOLEAN,
        modes=(INFERENCE,),
    ),
    model(
        "tensorflow.jit_compile",
        "XLA for the whole function",
        "tf.function(..., jit_compile=True); to train, model.compile(..., jit_compile=True)",
        domain=BOOLEAN,
        compiles=True,
    ),
    model(
        "tensorflow.data_format",
        "layout of image tensors",
        "build the model with data_format {value}",
        domain=one_of("NHWC", "NCHW"),
    ),
    model(
        "tensorflow.layout_optimizer",
        "grappler's layout pass",
        "tf.config.optimizer.set_experimental_options({{'layout_optimizer': {value}}}) "
        "before tracing",
        domain=BOOLEAN,
    ),
    model(
        "tensorflow.remapping",
        "grappler's fusing of operators",
        "tf.config.optimizer.set_experimental_options({{'remapping': {value}}}) before tracing",
        domain=BOOLEAN,
    ),
    model(
        "tensorflow.auto_mixed_precision",
        "bf16 by the graph optimiser",
        "tf.config.optimizer.set_experimental_options("
        "{{'auto_mixed_precision_onednn_bfloat16': True}}) before tracing",
        level=Level.REDUCED,
        domain=one_of("off", "bf16"),
    ),
    model(
        "tensorflow.keras_policy",
        "bf16 by Keras's policy",
        "tf.keras.mixed_precision.set_global_policy('{value}') before the model is built",
        level=Level.REDUCED,
        domain=one_of("float32", "mixed_bfloat16"),
    ),
)
