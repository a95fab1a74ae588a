"""Engines other than a model's own framework that can carry it out, without importing one.

Data only. An engine is a form of a study's model like a compiler: its knobs are in
space/knobs_of/engines.py, and what runs it in a worker in worker/engines/.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

FRAMEWORK = "framework"
"""The engine of the default: the framework itself."""
ONNX_RUNTIME, OPENVINO = "onnxruntime", "openvino"


class EngineEntry(msgspec.Struct, frozen=True):
    """What is known of an engine without importing it."""

    title: str
    """Its name in sentences."""
    packages: tuple[str, ...]
    """What can be imported where it is installed."""
    suffix: str
    """How the file of a converted model ends."""
    converters: Mapping[str, tuple[str, ...]]
    """What converts models for it, by framework."""
    distributions: tuple[str, ...]
    """Distributions whose versions change its results."""

    quantizers: tuple[str, ...] = ()
    """What can be imported where the package that quantises models for it is installed; empty if
    it does so itself."""

    @property
    def install(self) -> str:
        """Return the command that installs it."""
        return f"pip install 'tune-framework[{self.packages[0]}]'"

    @property
    def install_quantizers(self) -> str:
        """Return the command that installs what quantises models for it."""
        return f"pip install 'tune-framework[{','.join(self.quantizers)}]'"


ENGINES: Mapping[str, EngineEntry] = MappingProxyType(
    {
        ONNX_RUNTIME: EngineEntry(
            title="ONNX Runtime",
            packages=("onnxruntime", "onnx"),
            suffix=".onnx",
            converters={"torch": ("onnxscript",), "tensorflow": ("tf2onnx",)},
            distributions=("onnxruntime", "onnx", "onnxscript", "tf2onnx"),
        ),
        OPENVINO: EngineEntry(
            title="OpenVINO",
            packages=("openvino",),
            suffix=".xml",
            converters={},
            distributions=("openvino", "nncf"),
            quantizers=("nncf",),
        ),
    }
)
"""By the value of the knob that chooses one."""
ENGINE_DISTRIBUTIONS: tuple[str, ...] = tuple(
    name for entry in ENGINES.values() for name in entry.distributions
)
