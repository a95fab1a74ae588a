import pytest

from tuner.host.environment import tuning_variables, untuned


@pytest.mark.parametrize(
    "name",
    ["OMP_NUM_THREADS", "KMP_AFFINITY", "MKL_NUM_THREADS", "TF_NUM_INTEROP_THREADS", "LD_PRELOAD",
     "DNNL_MAX_CPU_ISA", "ONEDNN_VERBOSE", "MALLOC_CONF", "MALLOC_ARENA_MAX",
     "CUDA_VISIBLE_DEVICES", "CUDA_MODULE_LOADING", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE",
     "TORCHINDUCTOR_FREEZING", "GOMP_CPU_AFFINITY"],
)  # fmt: skip
def test_what_tunes_is_removed(name: str) -> None:
    assert tuning_variables({name: "1", "HOME": "/"}) == [name]
    assert untuned({name: "1", "HOME": "/"}) == {"HOME": "/"}


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "VIRTUAL_ENV", "CXX", "LANG", "PYTHONPATH", "TF_VAR_pw",
     "CUDA_HOME", "CUDA_VERSION", "TORCH_CUDA_ARCH_LIST"],
)  # fmt: skip
def test_what_does_not_tune_is_kept(name: str) -> None:
    assert untuned({name: "x"}) == {name: "x"}
