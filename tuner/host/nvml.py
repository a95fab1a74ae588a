"""NVIDIA's management library (NVML), one query at a time: of a driver, or of a recording.

Nothing here changes a card: only functions that read are called. A query is the name of a function
of NVML's C interface with its arguments. The answer is what nvidia-ml-py (module pynvml) returns,
with structures as mappings.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

RECORDING = "nvml.json"
"""In a fixture tree: what NVML answered on a real machine."""
STANDS_IN = "TUNE_FRAMEWORK_NVML"
"""A variable: the path of a recording to take in the place of this machine's driver, for tests and
demonstrations with the fake framework."""


class Nvml(Protocol):
    """The queries; None is the answer if a card or a driver does not report it."""

    def n_cards(self) -> int:
        """Return how many cards there are."""

    def of_driver(self, question: str) -> Any:
        """Ask the driver."""

    def of_card(self, card: int, question: str, *arguments: int) -> Any:
        """Ask a card, by its number."""


class Driver:
    """The driver of this machine."""

    def __init__(self, library: Any) -> None:
        """library: the module pynvml, initialised."""
        self._library = library

    def n_cards(self) -> int:
        """Return how many cards there are."""
        return int(self.of_driver("nvmlDeviceGetCount") or 0)

    def of_driver(self, question: str) -> Any:
        """Ask the driver."""
        try:
            return _plain(getattr(self._library, question)())
        except self._library.NVMLError:
            return None

    def of_card(self, card: int, question: str, *arguments: int) -> Any:
        """Ask a card, by its number."""
        try:
            handle = self._library.nvmlDeviceGetHandleByIndex(card)
            return _plain(getattr(self._library, question)(handle, *arguments))
        except (self._library.NVMLError, AttributeError):  # an older driver, or an older module
            return None


class Recording:
    """The recorded answers of a machine with cards: {"driver": {query: answer}, "cards": [...]}.

    Queries with arguments are written NAME(1,2).
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = answers

    def n_cards(self) -> int:
        """Return how many cards there were."""
        return len(self._answers["cards"])

    def of_driver(self, question: str) -> Any:
        """Return the driver's answer."""
        return self._answers["driver"].get(question)

    def of_card(self, card: int, question: str, *arguments: int) -> Any:
        """Return a card's answer."""
        written = f"{question}({','.join(map(str, arguments))})" if arguments else question
        return self._answers["cards"][card].get(written)


def _plain(answer: Any) -> Any:
    """Return an answer without ctypes: structures become mappings, bytes text."""
    if isinstance(answer, bytes):
        return answer.decode()
    if isinstance(answer, list | tuple):
        return [_plain(each) for each in answer]
    if fields := getattr(answer, "_fields_", None):
        return {name: _plain(getattr(answer, name)) for name, *_ in fields}
    return vars(answer) if hasattr(answer, "__dict__") else answer


@functools.cache
def _of_this_machine() -> Nvml | None:
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, or one that this process may not speak to
        return None
    return Driver(pynvml)


def nvml(root: Path = Path("/")) -> Nvml | None:
    """Return the NVML of this machine, or the recording in a fixture tree; None without either."""
    stands_in = os.environ.get(STANDS_IN)
    if root == Path("/") and not stands_in:
        return _of_this_machine()
    recording = Path(stands_in) if root == Path("/") and stands_in else root / RECORDING
    return Recording(json.loads(recording.read_text())) if recording.is_file() else None
