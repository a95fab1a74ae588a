"""The engine that carries out a model, and what ONNX Runtime and OpenVINO alone have."""

from __future__ import annotations

from tuner.engines import ENGINES, FRAMEWORK, ONNX_RUNTIME, OPENVINO
from tuner.record.configuration import Value
from tuner.record.load import INFERENCE
from tuner.record.numerics import Level
from tuner.space.knob import AT_LEAST_1, BOOLEAN, Domain, Knob, model, one_of

ENGINE = "engine.name"
THREADS = "engine.threads"
QUANTIZATION = "engine.quantization"
NO_QUANTIZATION, DYNAMIC_INT8, STATIC_INT8 = "none", "int8_dynamic", "int8_static"
OPTIMIZATION = "onnxruntime.optimization"
EXECUTION, INTER_THREADS = "onnxruntime.execution_mode", "onnxruntime.inter_threads"
SPINNING, DENORMALS = "onnxruntime.spinning", "onnxruntime.denormal_as_zero"
PRECISION, HINT, PINNING = "openvino.precision", "openvino.hint", "openvino.pinning"


def _of(
    engine: str, id_: str, title: str, how: str, domain: Domain, level: Level = Level.SAME
) -> Knob:
    """Declare a knob of one engine."""
    return model(id_, title, how, domain=domain, modes=(INFERENCE,), engines=(engine,), level=level)


KNOBS = (
    model(
        ENGINE,
        "what carries out the model",
        "{value}: the model converted with torch.onnx.export, tf2onnx or openvino.convert_model; "
        "called in an onnxruntime.InferenceSession with intra_op_num_threads set, or in an "
        "openvino.CompiledModel with INFERENCE_NUM_THREADS, PERFORMANCE_HINT=LATENCY and "
        "INFERENCE_PRECISION_HINT=f32, if no other setting says otherwise",
        domain=one_of(FRAMEWORK, *ENGINES),
        compiles=True,
        modes=(INFERENCE,),
    ),
    model(
        THREADS,
        "threads of the engine; without it, as many as the framework would have",
        "SessionOptions.intra_op_num_threads = {value}, or the property INFERENCE_NUM_THREADS",
        domain=AT_LEAST_1,
        modes=(INFERENCE,),
        engines=tuple(ENGINES),
    ),
    model(
        QUANTIZATION,
        "weights and products in eight bits",
        "{value}: the converted model by onnxruntime.quantization.quantize_dynamic, or with "
        "typical inputs by its quantize_static or nncf.quantize",
        domain=one_of(NO_QUANTIZATION, DYNAMIC_INT8, STATIC_INT8),
        level=Level.INT8,
        modes=(INFERENCE,),
        engines=tuple(ENGINES),
    ),
    _of(
        ONNX_RUNTIME,
        OPTIMIZATION,
        "how far ONNX Runtime rewrites the graph",
        "SessionOptions.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_... (here: "
        "{value})",
        one_of("basic", "extended", "all"),
    ),
    _of(
        ONNX_RUNTIME,
        EXECUTION,
        "operators one after the other, or independent ones side by side",
        "SessionOptions.execution_mode = ExecutionMode.ORT_... (here: {value})",
        one_of("sequential", "parallel"),
    ),
    _of(
        ONNX_RUNTIME,
        INTER_THREADS,
        "independent operators side by side",
        "SessionOptions.inter_op_num_threads = {value}",
        AT_LEAST_1,
    ),
    _of(
        ONNX_RUNTIME,
        SPINNING,
        "whether threads spin while they wait for work",
        "SessionOptions.add_session_config_entry('session.intra_op.allow_spinning', '1' or '0') "
        "(here: {value})",
        BOOLEAN,
    ),
    _of(
        ONNX_RUNTIME,
        DENORMALS,
        "numbers below 1e-38 count as zero",
        "SessionOptions.add_session_config_entry('session.set_denormal_as_zero', '1') (here: "
        "{value})",
        BOOLEAN,
    ),
    _of(
        OPENVINO,
        PRECISION,
        "in which type OpenVINO computes; by itself bf16 where the processor has it",
        "core.compile_model(model, 'CPU', {{'INFERENCE_PRECISION_HINT': '{value}'}})",
        one_of("f32", "bf16"),
        level=Level.REDUCED,
    ),
    _of(
        OPENVINO,
        HINT,
        "what OpenVINO arranges its threads for",
        "core.compile_model(model, 'CPU', {{'PERFORMANCE_HINT': '{value}'}})",
        one_of("LATENCY", "THROUGHPUT"),
    ),
    _of(
        OPENVINO,
        PINNING,
        "whether OpenVINO binds its threads to cores",
        "core.compile_model(model, 'CPU', {{'ENABLE_CPU_PINNING': {value}}})",
        BOOLEAN,
    ),
)
DEFAULTS: dict[str, Value] = {
    ENGINE: FRAMEWORK,
    QUANTIZATION: NO_QUANTIZATION,
    OPTIMIZATION: "all",
    EXECUTION: "sequential",
    SPINNING: True,
    DENORMALS: False,
    PRECISION: "f32",
    HINT: "LATENCY",
    PINNING: True,
}
"""What holds in an engine if nothing else is set (worker/engines/)."""
