"""Files of converted models: made once in a study, or anew where nothing is kept."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner.engines import ENGINES
from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.space.knobs_of.engines import ENGINE

PACKAGES = "TUNE_FRAMEWORK_PACKAGES"
"""Variable of a study's workers: the folder where compiled and converted models are kept."""
_SUMMARY = "Summary:"
"""The line after which OpenVINO's converter says what it could not convert."""
_LOGGERS = ("torch.onnx", "tf2onnx")
"""The loggers of converters, which report progress at every model."""


@contextmanager
def converted(
    settings: Mapping[str, Value],
    shapes: Iterable[Any],
    convert: Callable[[Path], None],
) -> Iterator[Path]:
    """Return the file of the converted model for some shapes and types of inputs.

    convert: writes it to a path, which ends as the engine's files do. A study has one model and one
    set of weights, so that its launches share the file; elsewhere it lies in a folder that is
    removed afterwards.

    Raises UsageError with the converter's reason for what cannot be converted.
    """
    engine = str(settings[ENGINE])
    kept = os.environ.get(PACKAGES)
    with tempfile.TemporaryDirectory(prefix="tune-framework-", dir=kept) as folder:
        made = Path(folder) / f"model{ENGINES[engine].suffix}"
        if not kept:
            _convert(convert, made, engine)
            yield made
            return
        key = repr((engine, list(shapes)))
        own = Path(kept) / f"engine-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        with own.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of the instances of a launch, one converts
            if not own.exists():
                _convert(convert, made, engine)
                Path(folder).rename(own)
                Path(folder).mkdir()  # what removes it finds it
        yield own / made.name


def _convert(convert: Callable[[Path], None], path: Path, engine: str) -> None:
    try:
        with _quiet():
            convert(path)
    except (MemoryError, OSError, UsageError):  # of this moment, or said already
        raise
    except Exception as error:  # a converter may raise anything at a user's model
        lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()] or [""]
        shown = lines[lines.index(_SUMMARY) + 1] if _SUMMARY in lines[:-1] else lines[0]
        reason = f"{type(error).__name__}: {shown}"[:200]
        raise UsageError(f"the model cannot be converted for {engine}: {reason}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what converters print at every model: progress, and warnings about themselves."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
