"""Which environment variables tune, so that a measured process starts without any of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tuner.frameworks import FRAMEWORKS

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
_VISIBLE: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"cpu": MappingProxyType({"CUDA_VISIBLE_DEVICES": "-1"})}
)
"""By device, the variables that say what of the machine a measured process may see: in a
measurement of the CPU, no GPU."""
_FOR_WORKERS = {"TF_CPP_MIN_LOG_LEVEL": "2", "OPENBLAS_NUM_THREADS": "1"}
"""Quiet logs; numpy's own thread pool serves neither framework, but starting it takes longer than
the rest of the import."""
LINE_PATTERN = "|".join((*_PREFIXES, *(f"{name}=" for name in _NAMES)))
"""An extended regular expression: how the lines of `env` begin that hold tuning variables."""
OTHERS_PATTERN = "|".join(_OF_TERRAFORM)
"""Likewise: how those of them begin that only look like tuning variables."""


def for_workers(device: str) -> dict[str, str]:
    """Return what is set for every worker, the default's too: quiet logs, and what it may see."""
    return {**_FOR_WORKERS, **_VISIBLE[device]}


def is_tuning_variable(name: str) -> bool:
    """Tell whether a variable may change a framework's speed."""
    is_named = name.startswith(_PREFIXES) or name in _NAMES
    return is_named and not name.startswith(_OF_TERRAFORM)


def tuning_variables(environment: Mapping[str, str]) -> list[str]:
    """Name the tuning variables of an environment, sorted."""
    return sorted(name for name in environment if is_tuning_variable(name))


def untuned(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without any tuning variable."""
    return {name: value for name, value in environment.items() if not is_tuning_variable(name)}


def without_effect(name: str, framework: str) -> str:
    """Return why a tuning variable cannot change a framework's speed on a CPU; empty if it may."""
    if name.startswith(_OF_GPUS):
        return "a setting of GPUs, which the CPU's speed does not depend on"
    if name.startswith(_OF_NO_SPEED) or name.endswith("_VERSION"):
        return "it says what is logged, where files are or what was built, not how fast to compute"
    readers = [each for each, entry in FRAMEWORKS.items() if name.startswith(entry.variables)]
    if readers and framework not in readers:
        return "not read by this framework"
    return ""
