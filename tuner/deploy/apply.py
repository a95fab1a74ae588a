"""Apply a recommendation inside the user's own program: settings that only the program can make.

    import tuner

    tuned = tuner.apply("recommended.toml")   # before any work of the framework
    model = tuned.prepare(model)              # layout, precision, compiler: called as before
    outputs = model(images)

The same adapter (worker/frameworks/) prepared the measured process. Launch settings (environment,
preloads, pinning) cannot be changed from inside: `tune-framework run` starts a program under them,
and `missing` names those that are not in force.
"""

from __future__ import annotations

import os
import shlex
import warnings
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.record.load import INFERENCE, TRAINING
from tuner.record.recommendation import INSTANCES_VARIABLE, Recommendation
from tuner.space.catalogue import is_applied_inside
from tuner.space.chosen import chosen, is_index
from tuner.space.recommended import read_recommended
from tuner.worker.frameworks import Framework, prepared, prepared_to_learn
from tuner.worker.frameworks import framework as adapter_for

_LAUNCH = "launch"


class Applied:
    """A recommendation that is in force in this process, as far as a process can do it.

    settings: the settings by knob that were applied or will be by prepare(). missing: settings that
    neither puts into force, as lines for a person: launch settings that this process was not
    started under, and what the program does itself. batch: the batch size that was confirmed.
    """

    def __init__(self, recommendation: Recommendation, adapter: Framework) -> None:
        self.settings = {
            setting.knob: setting.value
            for setting in recommendation.settings
            if is_applied_inside(setting.knob)
        }
        self.batch = recommendation.workload.batch
        self.missing = tuple(_missing(recommendation))
        self._adapter = adapter
        self._mode = recommendation.workload.mode
        self._is_prepared = False

    def __repr__(self) -> str:
        return f"Applied(settings={self.settings}, batch={self.batch}, missing={self.missing})"

    def prepare(self, model: Any) -> Any:
        """Return the model in the layout, precision and form that were confirmed.

        model: a torch.nn.Module, or a keras.Model. It is changed in place if the settings require
        it, and moved to the GPU if that was measured, as its inputs are. The result is of the
        model's class, shares its state, takes and returns what the model does, and computes without
        gradients. The first call of each kind of inputs compiles, if a compiler was confirmed.
        Other calls run the model itself, with a warning.

        Raises UsageError at a second model: layouts and compilers are settings of the process; and
        for a recommendation for training.
        """
        self._begin(INFERENCE)
        self._adapter.build.adopt(model)
        self._adapter.build.place(self.settings)
        return prepared(self._adapter)

    def prepare_training(self, model: Any, optimizer: Any = None) -> Any:
        """Return the model to train in your own loop, in what was confirmed for training.

        model: a torch.nn.Module, or a compiled keras.Model, which is changed in place. optimizer:
        in PyTorch, the one of the model's parameters; its implementation is set. Settings of the
        loop itself, such as torch.accumulation, are named by `missing`.

        Raises UsageError at a second model, for a recommendation for inference, if an optimizer is
        needed, and for a Keras model that is not compiled.
        """
        self._begin(TRAINING)
        self._adapter.build.adopt(model)
        self._adapter.build.place(self.settings)
        return prepared_to_learn(self._adapter, optimizer)

    def _begin(self, mode: str) -> None:
        if self._mode != mode:
            name = "prepare_training" if self._mode == TRAINING else "prepare"
            raise UsageError(f"the recommendation is for {self._mode}: call {name}() instead")
        if self._is_prepared:
            raise UsageError("a model was prepared before: a process has one tuned model")
        self._is_prepared = True


def apply(path: str | os.PathLike[str], *, model: str = "", framework: str = "") -> Applied:
    """Apply the process's settings of a recommended.toml; prepare() then applies the model's.

    A study's folder stands for its recommended.toml, and an index of several studies for that of
    this kind of host; model, framework: select one if there are several. Warns of variables that
    this process was not started under: their gain is missing.

    Raises UsageError if the file is invalid, or not for this host, or if the framework has begun to
    work already, and MissingFramework if it is not installed.
    """
    place = Path(path)
    if is_index(place):
        from tuner.host.identity import probe

        place = chosen(place, probe(), model, framework)
    recommendation = read_recommended(place)
    name = recommendation.workload.framework
    adapter = adapter_for(name, recommendation.workload.mode, recommendation.workload.device)
    applied = Applied(recommendation, adapter)
    try:
        adapter.build.start(applied.settings)
    except RuntimeError as error:  # both frameworks refuse what must come before any work
        raise UsageError(
            f"{name} has begun to work before tuner.apply({str(path)!r}): call it first"
        ) from error
    if lack := _lack(place, recommendation, applied):
        warnings.warn(lack, stacklevel=2)
    return applied


def _lack(place: Path, recommendation: Recommendation, applied: Applied) -> str:
    """Warn of what the program lacks although its author may expect it; empty if nothing."""
    r = recommendation
    if not r.settings:
        return f"{place} sets nothing, so that apply does nothing: {r.nothing_set}"
    start = f"start the program by: tune-framework run {shlex.quote(str(place))} -- PROGRAM"
    nothing = f"{place} holds no setting that a program applies, so that apply does nothing; "
    if absent := _absent_variables(r):
        lacking = f"started without {', '.join(absent)}: what that gains is not here; {start}"
        return lacking if applied.settings else nothing + lacking
    if applied.settings:
        return ""
    if applied.missing:
        return f"{nothing}it holds {', '.join(applied.missing)}"
    is_launched = any(setting.applies == _LAUNCH for setting in r.settings)
    return "" if is_launched else f"{nothing}call the model with batches of {applied.batch}"


def _absent_variables(recommendation: Recommendation) -> list[str]:
    """Return the variables that this process was not started under, as NAME=VALUE."""
    lines = []
    for name, value in sorted(recommendation.environment.items()):
        found = os.environ.get(name, "")
        is_there = found == value
        if name == "LD_PRELOAD":
            paths = {*found.split(":"), *map(os.path.basename, found.split(":"))}
            is_there = set(value.split(":")) <= paths
        if not is_there:
            lines.append(f"{name}={value}")
    return lines


def _missing(recommendation: Recommendation) -> list[str]:
    """Name the settings that apply and prepare do not put into force, as far as that is known."""
    lines = _absent_variables(recommendation)
    in_environment = ("env.", "launch.allocator", "launch.openmp")
    is_launched = INSTANCES_VARIABLE in os.environ  # tune-framework run, or run.sh, started it
    for setting in recommendation.settings:
        is_placed = is_launched or setting.knob.startswith(in_environment)
        if setting.applies == _LAUNCH and not is_placed:
            lines.append(f"{setting.knob}={setting.value} (set by tune-framework run)")
        if setting.needs_code_change and not is_applied_inside(setting.knob):
            lines.append(f"{setting.knob}={setting.value} (the program itself must: {setting.how})")
    return lines
