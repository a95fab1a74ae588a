"""Which environment variables tune, so that a measured process starts without any of them."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.frameworks import FRAMEWORKS
from tuner.record.workload import CPU

# How every variable begins that frameworks, math libraries and allocators read at start.
_PREFIXES = tuple(
    dict.fromkeys(
        (
            *(prefix for entry in FRAMEWORKS.values() for prefix in entry.variables),
            "OPENBLAS_",
            "BLIS_",
            "VECLIB_",
            "NUMEXPR_",
            "DNNL_",
            "MKLDNN_",
            "ONEDNN_",
            "ZENDNN_",
            "ZENDNNL_",
            "CUDA_",
            "NVIDIA_TF32",
            "JEMALLOC",
            "TCMALLOC_",
            "MALLOC_",
            "MIMALLOC_",
        )
    )
)
_NAMES = ("LD_PRELOAD", "GLIBC_TUNABLES", "PYTHONMALLOC")
_OF_TERRAFORM = (
    "TF_VAR_",
    "TF_CLI_",
    "TF_TOKEN_",
    "TF_CLOUD_",
    "TF_REGISTRY_",
    "TF_STATE_",
    "TF_DATA_DIR",
    "TF_IN_AUTOMATION",
    "TF_INPUT",
    "TF_LOG",
    "TF_PLUGIN_CACHE_DIR",
    "TF_WORKSPACE",
)
"""Named like TensorFlow's, and not read by it; their values may be anything, secrets too."""
_OF_TOOLKITS = (
    "CUDA_ARCH_LIST",
    "CUDA_BIN_PATH",
    "CUDA_COMPONENT_LIST",
    "CUDA_DIR",
    "CUDA_DRIVER_VERSION",
    "CUDA_HOME",
    "CUDA_INC_PATH",
    "CUDA_LIB_PATH",
    "CUDA_PATH",
    "CUDA_PKG_VERSION",
    "CUDA_ROOT",
    "CUDA_TOOLKIT",
    "CUDA_VERSION",
    "TF_CUDA_COMPUTE_CAPABILITIES",
    "TF_CUDA_PATHS",
    "TF_CUDA_VERSION",
    "TORCH_CUDA_ARCH_LIST",
)
"""Where compilers for a card are, and their targets, as NVIDIA's images set it. Measured processes
keep these, because run-time compilers may look there."""
_OF_NO_FRAMEWORK = (*_OF_TERRAFORM, *_OF_TOOLKITS)
_OF_GPUS = (
    "CUDA_",
    "NVIDIA_TF32",
    "PYTORCH_CUDA_",
    "PYTORCH_NVML_",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_CUDA_",
    "TORCH_CUDNN_",
    "TORCH_NCCL_",
    "TF_CUDA_",
    "TF_CUDNN_",
    "TF_FORCE_GPU_",
    "TF_GPU_",
    "XLA_PYTHON_CLIENT_",
)
_OF_NO_SPEED = (
    "TF_CPP_",
    "TORCH_CPP_LOG_LEVEL",
    "TORCH_LOGS",
    "TORCH_SHOW_CPP_STACKTRACES",
    "TORCH_EXTENSIONS_DIR",
    "TORCH_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "PYTORCH_BUILD_",
    "PYTORCH_HOME",
    "KERAS_BACKEND",
    "KERAS_HOME",
)
_CARDS = "CUDA_VISIBLE_DEVICES"
_FOR_WORKERS = {"TF_CPP_MIN_LOG_LEVEL": "2", "OPENBLAS_NUM_THREADS": "1"}
"""Quiet logs; numpy's own thread pool serves neither framework, but starting it takes longer than
the rest of the import."""
_WITH_A_CARD = {"TEARDOWN_CUPTI": "1"}
"""Has PyTorch's profiler let go of the card when a trace ends. Without it, every launch of a kernel
after a trace took 6 to 12 us longer (H100, PyTorch 2.11: 100 small layers 2.0 to 3.0 ms in the
place of 1.4), and settings are read back off a trace."""
LINE_PATTERN = "|".join((*_PREFIXES, *(f"{name}=" for name in _NAMES)))
"""An extended regular expression: how the lines of `env` begin that hold tuning variables."""
OTHERS_PATTERN = "|".join(_OF_NO_FRAMEWORK)
"""The same: prefixes of variables that only look like tuning variables."""


def for_workers(gpu: str) -> dict[str, str]:
    """Return the variables for every worker, the default's too: quiet logs, and visible cards.

    gpu: the UUID of the card that is measured; empty in a measurement of the CPU, which sees none.
    """
    return {**_FOR_WORKERS, _CARDS: gpu or "-1", **(_WITH_A_CARD if gpu else {})}


def is_tuning_variable(name: str) -> bool:
    """Tell whether a variable may change a framework's speed."""
    is_named = name.startswith(_PREFIXES) or name in _NAMES
    return is_named and not name.startswith(_OF_NO_FRAMEWORK)


def tuning_variables(environment: Mapping[str, str]) -> list[str]:
    """Name the tuning variables of an environment, sorted."""
    return sorted(name for name in environment if is_tuning_variable(name))


def untuned(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without any tuning variable."""
    return {name: value for name, value in environment.items() if not is_tuning_variable(name)}


def is_of_no_speed(name: str) -> bool:
    """Tell whether a variable says where to compute, what to log or where files are, not how."""
    return name == _CARDS or name.startswith(_OF_NO_SPEED) or name.endswith("_VERSION")


def without_effect(name: str, framework: str, device: str) -> str:
    """Say why a tuning variable cannot change a framework's speed on a device; empty if it may."""
    if name == _CARDS:
        return "it says which GPUs may be used, and the tool keeps to it"
    if device == CPU and name.startswith(_OF_GPUS):
        return "a setting of GPUs, which the CPU's speed does not depend on"
    if is_of_no_speed(name):
        return "it says what is logged, where files are or what was built, not how fast to compute"
    readers = [each for each, entry in FRAMEWORKS.items() if name.startswith(entry.variables)]
    if readers and framework not in readers:
        return "not read by this framework"
    return ""
