"""TensorFlow on the CPU.

build: from nothing to a model and its thread pools. inference: its calls, concrete functions.
training: its steps. evidence: the model's properties, and the settings in force. profile: where the
time of calls goes. microbenchmarks: operators that show what the host can do. knobs: how each
setting is applied and read back. executed: the graphs that were executed.
"""

from tuner.record.load import INFERENCE, TRAINING
from tuner.record.workload import CPU
from tuner.worker.frameworks.tensorflow.build import TensorFlowBuild
from tuner.worker.frameworks.tensorflow.evidence import TensorFlowEvidence
from tuner.worker.frameworks.tensorflow.inference import TensorFlowInference
from tuner.worker.frameworks.tensorflow.microbenchmarks import TensorFlowMicrobenchmarks
from tuner.worker.frameworks.tensorflow.profile import TensorFlowProfile
from tuner.worker.frameworks.tensorflow.training import TensorFlowTraining

WORK = {INFERENCE: TensorFlowInference, TRAINING: TensorFlowTraining}
"""The timed work, by mode."""


class TensorFlow:
    """TensorFlow's side of the framework contract."""

    def __init__(self, mode: str = INFERENCE, device: str = CPU) -> None:
        self.build = TensorFlowBuild()
        self.work = WORK[mode](self.build)
        self.evidence = TensorFlowEvidence(self.build, self.work)
        self.profile = TensorFlowProfile(self.build)
        self.microbenchmarks = TensorFlowMicrobenchmarks(self.build)


__all__ = ["TensorFlow"]
