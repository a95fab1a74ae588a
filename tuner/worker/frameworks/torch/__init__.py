"""PyTorch on the CPU: the adapter, the forms in which a model can run, and what is in force.

adapter   the framework contract
forms     eager, compiled, TorchScript, ahead of time: from a model to a call
evidence  what oneDNN, the compiler and the library show of the settings
"""

from tuner.worker.frameworks.torch.adapter import Torch

__all__ = ["Torch"]
