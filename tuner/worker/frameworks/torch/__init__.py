"""PyTorch on the CPU.

build      from nothing to a placed model
inference  its calls
evidence   what the model is, and what of the settings is in force
profile    where the time of calls goes
knobs      how each setting is applied and read back
forms      eager, compiled, TorchScript, ahead of time: from a model to a function
"""

from tuner.record.workload import INFERENCE
from tuner.worker.frameworks.torch.build import TorchBuild
from tuner.worker.frameworks.torch.evidence import TorchEvidence
from tuner.worker.frameworks.torch.inference import TorchInference
from tuner.worker.frameworks.torch.profile import TorchProfile

WORK = {INFERENCE: TorchInference}
"""By mode, what is timed."""


class Torch:
    """PyTorch's side of the framework contract."""

    def __init__(self, mode: str = INFERENCE) -> None:
        self.build = TorchBuild()
        self.work = WORK[mode](self.build)
        self.evidence = TorchEvidence(self.build, self.work)
        self.profile = TorchProfile()


__all__ = ["Torch"]
