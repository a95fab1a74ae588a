"""The pacer: a launch of the default that stays in memory and is measured between the others.

What slows it slows them. Search scores are relative to it, so that the machine's slow drift cancels
(measurement/estimates.py).
"""

from __future__ import annotations

from collections.abc import Callable

from tuner.errors import NothingMeasured
from tuner.launchers.protocol import Launch, Launcher
from tuner.record.configuration import Configuration
from tuner.record.launch import Purpose
from tuner.record.store import Store


class Pacer:
    """Started when it is first needed, replaced if it dies, given up if it may not stay."""

    def __init__(
        self,
        store: Store,
        launcher: Launcher,
        take_slice: Callable[[Launch], None],
        configuration: Configuration,
    ) -> None:
        """Prepare a pacer.

        take_slice: makes a launch take a slice and wait. configuration: the default, or the
        stand-in of a default that does not answer.
        """
        self._store = store
        self._configuration = configuration
        self._launcher = launcher
        self._take_slice = take_slice
        self._launch: Launch | None = None
        self.why_none = ""
        """Why none may stay resident; empty if one may."""

    def block(self) -> int:
        """Return the launch id of the running pacer, starting one if need be; 0 if none may be.

        Raises NothingMeasured if the default itself cannot be launched.
        """
        if self.why_none:
            return 0
        if self._launch is None:
            self._launch = self._start()
        return self._launch.record.request.id if self._launch is not None else 0

    def _start(self) -> Launch | None:
        """Start the pacer and let it wait; None, with the reason noted, if it may not stay."""
        pacer = self._launcher.start(self._configuration, Purpose.PACER)
        pacer.pause()
        if (ending := pacer.record.ending) is not None:
            if not self._was_default_measured():
                raise NothingMeasured(
                    f"the default configuration cannot be measured: {ending.outcome}: "
                    f"{ending.reason}; see {self._store.log_of(pacer.record.request.id)}"
                )
            self.why_none = f"it could not be started again: {ending.reason}"
            return None
        if not self._launcher.fit([pacer.record, pacer.record]):
            self.why_none = "the default needs more than a third of the memory"
            pacer.finish()
            return None
        return pacer

    def _was_default_measured(self) -> bool:
        return any(
            record.slices and record.request.configuration == self._configuration
            for record in self._store.launches.values()
        )

    def do_without(self, why: str) -> None:
        """Start none any more."""
        self.why_none = why

    @property
    def is_running(self) -> bool:
        """Whether a pacer runs now."""
        return self._launch is not None

    @property
    def slice_s(self) -> float:
        """Mean seconds of its slices; 0 if none runs."""
        return 0.0 if self._launch is None else self._launch.slice_s

    def retire(self) -> None:
        """End the pacer; claims are made without it."""
        if self._launch is not None:
            self._launch.finish()
        self.forget()

    def forget(self) -> None:
        """Count with it no more: its processes have been killed."""
        self._launch = None

    def pace(self, launch: Launch) -> None:
        """Take a slice of the pacer next to a launch that continues.

        A pacer that dies is replaced with the next launch.
        """
        if self._launch is None or not launch.goes_on:
            return
        self._take_slice(self._launch)
        if not self._launch.goes_on:
            self.forget()
