"""TensorFlow on the CPU: the adapter, and what is in force.

adapter   the framework contract
evidence  what the thread pools and the executed graphs show of the settings
"""

from tuner.worker.frameworks.tensorflow.adapter import TensorFlow

__all__ = ["TensorFlow"]
