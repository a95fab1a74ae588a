"""Tuned settings in a model's own code: seen while it is built and first called.

Many repositories call torch.set_num_threads(1) where their model is made. That overrides what a
launch sets, in every process that builds the model.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tuner.record.workload import OwnSetting
from tuner.space.catalogue import KNOBS
from tuner.worker.frameworks import Setter


class OwnSettings:
    """The settings that a model's code made, the last one of each knob."""

    def __init__(self, setters: Sequence[Setter]) -> None:
        self._setters = setters
        self._found: dict[tuple[str, bool], OwnSetting] = {}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Return a context in which settings are noted."""
        with contextlib.ExitStack() as stack:
            for setter in self._setters:
                original = getattr(setter.module, setter.name)
                noting = functools.partial(self._set, setter, original)
                setattr(setter.module, setter.name, noting)
                stack.callback(setattr, setter.module, setter.name, original)
            stack.enter_context(self._watched_variables())
            yield

    def _set(
        self, setter: Setter, original: Callable[..., None], /, *args: Any, **kwargs: Any
    ) -> None:
        value = next(iter((*args, *kwargs.values())), "")
        earlier = self._found.get((setter.knob, True))
        instead = setter.current() if setter.current else None
        found = OwnSetting(
            setter.knob,
            _caller(),
            f"{setter.shown}({value})",
            instead=earlier.instead if earlier else instead,
        )
        try:
            original(*args, **kwargs)
        except RuntimeError:
            if setter.current is not None:
                raise
            # such pools are made once, here before the model: in a program of its own it works
            found = msgspec.structs.replace(found, in_force=False)
        self._found[setter.knob, True] = found

    @contextlib.contextmanager
    def _watched_variables(self) -> Iterator[None]:
        kind: Any = type(os.environ)
        original = kind.__setitem__

        def noting(environ: Any, name: str, value: str) -> None:
            is_other = environ.get(name) != value
            original(environ, name, value)
            if environ is os.environ and is_other and f"env.{name}" in KNOBS:
                what = f"{name}={value} in os.environ"
                found = OwnSetting(f"env.{name}", _caller(), what, holds=False)
                self._found[found.knob, False] = found

        kind.__setitem__ = noting
        try:
            yield
        finally:
            kind.__setitem__ = original

    def tried(self, call_s: Callable[[], float]) -> tuple[OwnSetting, ...]:
        """Return what was found, with the time of a call as it is and without the setting.

        call_s: times the model's call.
        """
        return tuple(self._tried(each, call_s) for each in self._found.values())

    def _tried(self, found: OwnSetting, call_s: Callable[[], float]) -> OwnSetting:
        setter = next((s for s in self._setters if s.knob == found.knob and s.current), None)
        if setter is None or setter.current is None or found.instead is None or not found.holds:
            return found
        own, change = setter.current(), getattr(setter.module, setter.name)
        taken: dict[int, list[float]] = {own: [], found.instead: []}
        for _ in range(2):
            for value, seconds in taken.items():
                change(value)
                call_s()  # threads start, and weights are packed anew
                seconds.append(call_s())
        change(own)
        return msgspec.structs.replace(
            found, call_s=min(taken[own]), call_without_s=min(taken[found.instead])
        )


def _caller() -> str:
    """Return FILE:LINE of the code that sets something, standard library and this module apart."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename == __file__ or frame.f_code.co_filename.startswith("<frozen")
    ):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
