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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tuner.engines import ENGINES
from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.space.knobs_of.engines import ENGINE, NO_QUANTIZATION, QUANTIZATION
from tuner.worker.engines.quantization import quantized
from tuner.worker.frameworks import Array, Calibration, no_inputs

PACKAGES = "TUNE_FRAMEWORK_PACKAGES"
"""Variable of a study's workers: the folder where compiled and converted models are kept."""
_SUMMARY = "Summary:"
"""The line after which OpenVINO's converter says what it could not convert."""
_LOGGERS = ("", "torch.onnx", "tf2onnx", "nncf")
"""The loggers of converters, which report progress at every model; some use the root's."""


@contextmanager
def converted(
    settings: Mapping[str, Value],
    convert: Callable[[Path], None],
    example: Sequence[Array],
    calibration: Calibration = no_inputs,
) -> Iterator[Path]:
    """Return the file of the converted model for inputs of the shapes and types of an example.

    convert: writes it to a path, which ends as the engine's files do. A quantised model is made
    from that file; calibration: further inputs that show the ranges of activations.

    Raises UsageError with the converter's reason for what cannot be converted.
    """
    engine, quantization = str(settings[ENGINE]), str(settings.get(QUANTIZATION, NO_QUANTIZATION))
    shapes = [(each.shape, str(each.dtype)) for each in example]
    with _file(engine, (engine, shapes), convert) as path:
        if quantization == NO_QUANTIZATION:
            yield path
            return

        def quantize(made: Path) -> None:
            quantized(engine, quantization, path, made, [example, *calibration(example)])

        with _file(engine, (engine, shapes, quantization), quantize) as made:
            yield made


@contextmanager
def _file(engine: str, key: object, write: Callable[[Path], None]) -> Iterator[Path]:
    """Return a file that `write` makes.

    A study has one model and one set of weights, so that its launches share the file of a key;
    elsewhere it lies in a folder that is removed afterwards.
    """
    kept = os.environ.get(PACKAGES)
    with tempfile.TemporaryDirectory(prefix="tune-framework-", dir=kept) as folder:
        made = Path(folder) / f"model{ENGINES[engine].suffix}"
        if not kept:
            _write(write, made, engine)
            yield made
            return
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        own = Path(kept) / f"engine-{digest}"
        with own.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of the instances of a launch, one converts
            if not own.exists():
                _write(write, made, engine)
                Path(folder).rename(own)
                Path(folder).mkdir()  # what removes it finds it
        yield own / made.name


def _write(write: Callable[[Path], None], path: Path, engine: str) -> None:
    try:
        with _quiet():
            write(path)
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
