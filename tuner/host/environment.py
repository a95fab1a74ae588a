"""Which environment variables tune, so that a measured process starts without any of them."""

from __future__ import annotations

from collections.abc import Mapping

# Every variable that the frameworks, OpenMP runtimes, math libraries and allocators read at start.
_PREFIXES = (
    "OMP_",
    "KMP_",
    "GOMP_",
    "MKL_",
    "OPENBLAS_",
    "BLIS_",
    "VECLIB_",
    "NUMEXPR_",
    "DNNL_",
    "ONEDNN_",
    "TF_",
    "XLA_",
    "TORCH_",
    "TORCHINDUCTOR_",
    "TORCHDYNAMO_",
    "PYTORCH_",
    "ATEN_",
    "ITEX_",
    "IPEX_",
    "ZENDNN_",
    "ZENDNNL_",
    "KERAS_",
    "CUDA_",
    "NVIDIA_TF32",
    "LRU_CACHE_CAPACITY",
    "THP_MEM_ALLOC_ENABLE",
    "JEMALLOC",
    "TCMALLOC_",
    "MALLOC_",
    "MIMALLOC_",
)
_NAMES = ("LD_PRELOAD", "GLIBC_TUNABLES", "PYTHONMALLOC")
FOR_WORKERS = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "-1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Set for every worker, default included: quiet logs, and no GPU in a CPU measurement. numpy's own
thread pool serves neither framework, but starting it takes longer than the rest of the import."""
LINE_PATTERN = "|".join((*_PREFIXES, *(f"{name}=" for name in _NAMES)))
"""An extended regular expression: how the lines of `env` begin that hold tuning variables."""


def is_tuning_variable(name: str) -> bool:
    """Tell whether a variable may change a framework's speed."""
    return name.startswith(_PREFIXES) or name in _NAMES


def tuning_variables(environment: Mapping[str, str]) -> list[str]:
    """Name the tuning variables of an environment, sorted."""
    return sorted(name for name in environment if is_tuning_variable(name))


def untuned(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without any tuning variable."""
    return {name: value for name, value in environment.items() if not is_tuning_variable(name)}
