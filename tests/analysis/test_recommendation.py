"""What a recommendation holds of the host that it was measured on."""

from pathlib import Path

import msgspec
import pytest

from tests.space.spaces import machine
from tuner.analysis.recommendation import portable
from tuner.record.configuration import Configuration, Value
from tuner.space.launching import plan_launch

VENV = "/home/someone/.venv/lib"


def test_a_library_that_pip_installed_is_named_by_file_and_package_never_by_its_path(
    tmp_path: Path,
) -> None:
    host = msgspec.structs.replace(
        machine(tmp_path),
        libraries={"tcmalloc": "/l/libtcmalloc.so.4", "libiomp5": f"{VENV}/libiomp5.so"},
        packages={"libiomp5": "intel-openmp==2026.2.0"},
    )
    asked: dict[str, Value] = {
        "launch.allocator": "tcmalloc",
        "launch.openmp": "libiomp5",
        "env.OMP_NUM_THREADS": 2,
    }
    (plan,) = plan_launch(Configuration.of(asked), host)
    assert f"{VENV}/libiomp5.so" in plan.environment["LD_PRELOAD"].split(":")
    environment, packages = portable(plan.environment, host)
    assert sorted(environment.pop("LD_PRELOAD").split(":")) == [
        "/l/libtcmalloc.so.4", "libiomp5.so",
    ]  # fmt: skip
    assert environment == {"OMP_NUM_THREADS": "2"}
    assert packages == {"libiomp5.so": "intel-openmp==2026.2.0"}
    assert portable({"OMP_NUM_THREADS": "2"}, host) == ({"OMP_NUM_THREADS": "2"}, {})
    assert VENV not in str(host.identity())


def test_a_library_of_an_environment_is_named_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conda brings allocators as well, which no record of pip tells of."""
    monkeypatch.setenv("CONDA_PREFIX", "/opt/conda/envs/mine")
    host = machine(tmp_path)
    paths = "/opt/conda/envs/mine/lib/libjemalloc.so.2:/usr/lib/libiomp5.so"
    environment, packages = portable({"LD_PRELOAD": paths}, host)
    assert environment == {"LD_PRELOAD": "libjemalloc.so.2:/usr/lib/libiomp5.so"}
    assert packages == {}
