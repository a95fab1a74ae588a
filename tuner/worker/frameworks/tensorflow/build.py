"""From nothing to a TensorFlow model on the CPU.

The default, the denominator of every speedup: one concrete tf.function of model(x, training=False)
with a fixed signature, no XLA, variables not frozen, fp32.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import UsageError
from tuner.host.libraries import missing_framework
from tuner.record.configuration import Value
from tuner.worker import engines
from tuner.worker.evidence.process import threads_by_name
from tuner.worker.frameworks import (
    Array,
    Calibration,
    InBatches,
    NoWeightCache,
    OnTheCpu,
    Setter,
    Tensors,
    no_inputs,
)
from tuner.worker.frameworks.tensorflow import knobs

_DAMPED_SCALE = 0.2
_DRAWS = 2**20
"""Of one layer, at most, before it draws what another one drew."""
GENERATOR = "seed_generator_state"
"""Keras's name of such a variable."""


class TensorFlowBuild(NoWeightCache, OnTheCpu):
    """A TensorFlow model, and the thread pools that were made for it."""

    channels_first = False
    tf: Any
    setters: Sequence[Setter]
    context: Any
    """The module tensorflow.python.eager.context, which makes the eager context."""
    model: Any = None
    as_given: Any
    """The adopted model as its author calls it, with a dictionary of inputs if it takes one."""

    def __init__(self) -> None:
        self.calibration: Calibration = no_inputs
        self.settings: dict[str, Value] = {}
        self.pools: Counter[str] = Counter()
        """Threads that appeared with the pools, by their name."""
        self.n_placed = 0
        """How often a model was placed: functions of an earlier one do not serve the next."""

    @property
    def n_threads(self) -> int:
        """How many threads compute an operator in another engine.

        As many as the pool has if a setting says so; else the physical cores that are allowed: the
        pool has a thread for each of their hardware threads.
        """
        allowed = os.sched_getaffinity(0)
        cores = {_siblings_of(cpu) for cpu in allowed}
        is_set = "env.TF_NUM_INTRAOP_THREADS" in self.settings
        return (self.pools["intra"] if is_set else 0) or len(cores)

    def start(self, settings: Mapping[str, Value]) -> None:
        """Import TensorFlow and create its thread pools, counting the threads that appear."""
        engines.check(settings, "tensorflow")
        try:
            import tensorflow as tf
        except ImportError as error:
            raise missing_framework("tensorflow") from error
        from tensorflow.python.eager import context

        self.tf, self.setters = tf, knobs.setters(tf)
        self.context = context
        if settings and context.context()._initialized:
            raise RuntimeError("TensorFlow's thread pools and options are fixed already")
        self.settings = dict(settings)
        before = threads_by_name()
        for knob, way in knobs.ADAPTERS.items():
            if way.at_start is not None and knob in settings:
                way.at_start(tf, settings[knob])
        context.ensure_initialized()
        own = next(iter(before.values()))
        for thread, name in threads_by_name().items():
            if thread not in before:
                # the intra-op pool (Eigen) keeps the program's name, the inter-op pool has its own
                self.pools["intra" if name == own else name] += 1

    def seed(self, number: int) -> None:
        """Seed weights, and the generators that layers of a built model keep as variables.

        A generator holds a key and a counter, which each draw raises by 1. The counters begin far
        apart: layers with the same one would drop the same units.
        """
        self.tf.keras.utils.set_random_seed(number)
        of_layers = [
            v for v in getattr(self.model, "variables", ()) if getattr(v, "name", "") == GENERATOR
        ]
        for index, variable in enumerate(of_layers):
            variable.assign(np.array([number, index * _DRAWS % 2**32], dtype=np.uint32))

    def adopt(self, model: Any) -> None:
        """Take a Keras model, or a function of its inputs with trainable_variables.

        Raises UsageError for a model that was built before the Keras policy was set.
        """
        self.as_given = model
        policy = self.settings.get("tensorflow.keras_policy")
        if isinstance(model, self.tf.keras.Model):
            if policy and model.dtype_policy.name != policy:
                raise UsageError(
                    f"the model was built with Keras's policy {model.dtype_policy.name}, not "
                    f"{policy}: build it after the policy is set"
                )
            if isinstance(getattr(model, "_inputs_struct", None), Mapping):
                # its inputs in their order in the place of a dictionary
                model = self.tf.keras.Model(model.inputs, model.outputs)
        self.model = model

    def _batch_norms(self) -> dict[str, Any]:
        if not isinstance(self.model, self.tf.keras.Model):
            return {}
        kind = self.tf.keras.layers.BatchNormalization
        layers = self.model._flatten_layers(include_self=False)
        norms = [layer for layer in layers if isinstance(layer, kind)]
        return {f"{i}:{norm.name}": norm for i, norm in enumerate(norms)}  # names may repeat

    def condition(
        self, arrays: Sequence[Array], damped_norms: str, in_batches: InBatches | None = None
    ) -> Tensors:
        """Take batch-norm statistics from the arrays in one pass, with damped residual blocks.

        Of a model that takes fewer at a time: the mean of its batches'.
        """
        everything = self._batch_norms()
        norms = {name: norm for name, norm in everything.items() if _is_fresh(norm)}
        if not norms:
            return {}
        trained = [
            norm for name, norm in everything.items() if name not in norms and norm.trainable
        ]
        for norm in trained:
            norm.trainable = False  # Keras: then it keeps its statistics
        for name, norm in norms.items():
            if damped_norms and re.search(damped_norms, name) and norm.gamma is not None:
                norm.gamma.assign(self.tf.fill(norm.gamma.shape, _DAMPED_SCALE))
            norm.momentum = 0.0  # the moving statistics become this batch's
        try:
            self._train_once(arrays)
        except self.out_of_memory_errors():
            raise
        except Exception:  # a model may refuse this number of samples in any way
            if in_batches is None:
                raise
            for number, each in enumerate(in_batches()):
                for norm in norms.values():
                    norm.momentum = number / (number + 1)
                self._train_once(each)
        for norm in trained:
            norm.trainable = True
        return {
            f"{name}.{part}": getattr(norm, part).numpy()
            for name, norm in norms.items()
            for part in ("gamma", "moving_mean", "moving_variance")
            if getattr(norm, part) is not None  # some have no scale
        }

    def _train_once(self, arrays: Sequence[Array]) -> None:
        self.model(list(arrays) if len(arrays) > 1 else arrays[0], training=True)

    def restore(self, tensors: Tensors) -> None:
        """Assign conditioned tensors by name."""
        norms = self._batch_norms()
        for key, value in tensors.items():
            name, _, part = key.rpartition(".")
            getattr(norms[name], part).assign(value)

    def place(self, settings: Mapping[str, Value]) -> None:
        """Keep the settings; tracing and freezing need the batch size and happen per call."""
        self.settings = dict(settings)
        self.n_placed += 1

    def versions(self) -> dict[str, str]:
        """Return the versions that were really imported."""
        return {"tensorflow": self.tf.__version__, "keras": self.tf.keras.__version__}

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]:
        """Name the errors of exhausted memory."""
        return (MemoryError, self.tf.errors.ResourceExhaustedError)


def _is_fresh(norm: Any) -> bool:
    """Tell whether a batch norm has the statistics that it was made with: it saw no data yet."""
    mean, variance = norm.moving_mean.numpy(), norm.moving_variance.numpy()
    return not mean.any() and bool((variance == 1).all())


def _siblings_of(cpu: int) -> str:
    """Return the hardware threads of a CPU's core, as the kernel lists them; itself if unknown."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list").read_text()
    except OSError:
        return str(cpu)
