"""Every framework that models can be tuned for: the one registry from which every list derives.

Data only: a framework is imported by its adapter, in the measured process. What else a framework
needs are files of its own: the adapter (worker/frameworks/), its knobs (space/knobs_of/) and their
values (search_spaces/).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec


class FrameworkEntry(msgspec.Struct, frozen=True):
    """What is known of a framework without importing it."""

    title: str
    """Its name in sentences."""
    adapter: tuple[str, str]
    """The module and the class that serve it in a worker."""
    knobs: str
    """The module that declares what it alone has."""
    package: str
    """What can be imported where it is installed."""
    variables: tuple[str, ...]
    """How environment variables begin that no other framework's build reads."""
    distributions: tuple[str, ...] = ()
    """Distributions whose versions change its results."""
    model_packages: tuple[str, ...] = ()
    """Where the classes of its models come from."""
    library: str = ""
    """How the name of a file begins that every program with this framework has mapped."""
    install: str = ""
    """The command that installs it; empty of one that comes with the tool, which does not offer
    it."""
    devices: tuple[str, ...] = ("cpu",)
    """What this tool can measure it on."""
    least_budget_s: float = 0.0
    """The smallest budget of a study with it: importing it may take 20 s on a slow host, and the
    default is launched after that."""
    is_virtual: bool = False
    """Whether its clock is its own: seconds that it tells have not passed."""


FRAMEWORKS: Mapping[str, FrameworkEntry] = MappingProxyType(
    {
        "torch": FrameworkEntry(
            title="PyTorch",
            adapter=("tuner.worker.frameworks.torch", "Torch"),
            knobs="tuner.space.knobs_of.torch",
            package="torch",
            variables=(
                "OMP_",
                "KMP_",
                "GOMP_",
                "MKL_",
                "TORCH_",
                "TORCHINDUCTOR_",
                "TORCHDYNAMO_",
                "PYTORCH_",
                "ATEN_",
                "IPEX_",
                "LRU_CACHE_CAPACITY",
                "THP_MEM_ALLOC_ENABLE",
            ),
            distributions=("torch",),
            model_packages=("torch",),
            library="libtorch_cpu.so",
            install="pip install 'tune-framework[torch]'",
            devices=("cpu", "cuda"),
            least_budget_s=30.0,
        ),
        "tensorflow": FrameworkEntry(
            title="TensorFlow",
            adapter=("tuner.worker.frameworks.tensorflow", "TensorFlow"),
            knobs="tuner.space.knobs_of.tensorflow",
            package="tensorflow",
            # its wheels have neither OpenMP nor MKL
            variables=("TF_", "XLA_", "ITEX_", "KERAS_"),
            distributions=("tensorflow", "keras"),
            model_packages=("keras", "tensorflow"),
            library="libtensorflow_",
            install="pip install 'tune-framework[tensorflow]'",
            least_budget_s=30.0,
        ),
        "fake": FrameworkEntry(
            title="the fake framework",
            adapter=("tuner.worker.frameworks.fake", "Fake"),
            knobs="tuner.space.knobs_of.fake",
            package="tuner",
            variables=("FAKE_",),
            devices=("cpu", "cuda"),
            is_virtual=True,
        ),
    }
)
"""By the name that the command line, files and model functions have for it."""
OFFERED: tuple[str, ...] = tuple(name for name, entry in FRAMEWORKS.items() if entry.install)
"""The frameworks that the tool speaks of where the user names none."""
OFFERED_TITLES: tuple[str, ...] = tuple(FRAMEWORKS[name].title for name in OFFERED)
"""Their names in sentences."""
DISTRIBUTIONS: tuple[str, ...] = tuple(
    dict.fromkeys(name for entry in FRAMEWORKS.values() for name in entry.distributions)
)
"""The distributions of all frameworks."""
