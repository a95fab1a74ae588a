"""The one place where an exception becomes a message and an exit code."""

from __future__ import annotations

import errno
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from tuner import interrupts
from tuner.cli.printable import printable
from tuner.errors import Interrupted, TuneError, UsageError
from tuner.host.secrets import redacted
from tuner.version import __version__

KEPT = "everything measured is stored: the same command resumes where it stopped"
_LONGEST = 2000
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def in_one_line(text: str) -> str:
    """Return a message as one line for a terminal; it may repeat a value of any length."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def complain(text: str) -> None:
    """Print an error on one line of standard error."""
    print(f"error: {in_one_line(text)}", file=sys.stderr)


def complain_of_output(error: OSError) -> None:
    """Say that standard output cannot be written."""
    complain(f"standard output cannot be written ({error.strerror}): what is printed is lost")


@contextmanager
def handled(unforeseen: int = 1, if_stopped: str = "") -> Iterator[None]:
    """Turn errors into one line and an exit code; unexpected ones into a log to paste.

    if_stopped: a note for users who interrupted the command.
    """
    try:
        with interrupts.heeded():
            yield
    except typer.Exit:
        raise
    except TuneError as error:
        complain(str(error))
        raise typer.Exit(error.exit_code) from error
    except Interrupted as error:
        complain("; ".join(filter(None, (str(error), if_stopped))))
        raise typer.Exit(error.exit_code) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            name = max(Path(str(error.filename)).parts, key=len)
            complain(
                f"{name[:60]}... is too long for the name of a model or a file; "
                "list the built-in models with: tune-framework models"
            )
            raise typer.Exit(UsageError.exit_code if unforeseen == 1 else unforeseen) from error
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            complain(f"cannot write {error.filename or 'a file'}: {error.strerror}; make room")
            raise typer.Exit(unforeseen) from error
        complain(
            f"unexpected {type(error).__name__}: {error}; this is a fault of tune-framework: "
            f"please report it with {_write_log()}"
        )
        raise typer.Exit(unforeseen) from error


def _write_log() -> str:
    """Write the current exception to a file, and return its name."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="tune-framework-", suffix=".log", delete=False
        ) as log:
            text = f"{' '.join(sys.argv)}\n\n{traceback.format_exc()}"
            log.write(f"tune-framework {__version__}\n{redacted(text)}")
    except OSError:  # no room for it: then here
        traceback.print_exc()
        return "the lines above"
    return log.name
