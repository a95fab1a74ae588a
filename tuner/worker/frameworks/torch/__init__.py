"""PyTorch, on the CPU or on a card.

build: from nothing to a placed model. inference: its calls. training: its steps. evidence: the
model's properties, and the settings in force. profile: where the time of calls goes.
microbenchmarks: operators that show what the host can do. devices: the device that it computes on.
knobs: how each setting is applied and read back, by device. account: how a device's libraries
computed a call (onednn, kernels). forms: eager, compiled, TorchScript, ahead of time: from a model
to a function.
"""

from tuner.record.load import INFERENCE, TRAINING
from tuner.record.workload import CPU
from tuner.worker.frameworks.torch.build import TorchBuild
from tuner.worker.frameworks.torch.devices import DEVICES
from tuner.worker.frameworks.torch.evidence import TorchEvidence
from tuner.worker.frameworks.torch.inference import TorchInference
from tuner.worker.frameworks.torch.microbenchmarks import TorchMicrobenchmarks
from tuner.worker.frameworks.torch.profile import TorchProfile
from tuner.worker.frameworks.torch.training import TorchTraining

WORK = {INFERENCE: TorchInference, TRAINING: TorchTraining}
"""The timed work, by mode."""


class Torch:
    """PyTorch's side of the framework contract."""

    def __init__(self, mode: str = INFERENCE, device: str = CPU) -> None:
        self.build = TorchBuild(DEVICES[device]())
        self.work = WORK[mode](self.build)
        self.evidence = TorchEvidence(self.build, self.work)
        self.profile = TorchProfile(self.build.device)
        self.microbenchmarks = TorchMicrobenchmarks(self.build)


__all__ = ["Torch"]
