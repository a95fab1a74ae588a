"""The process on a host that describes the host.

    python -P -m tuner.fleet.probe_host FILE...

It prints a Seen (fleet/orders.py). It is a separate process because a process that Ray starts sees
a host's cards only if it was given one, and has Ray's variables.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from tuner.errors import TuneError
from tuner.fleet.orders import Seen, encode
from tuner.galleries import MODELS
from tuner.host.identity import kind_of, probe
from tuner.version import __version__


def seen(files: list[str]) -> Seen:
    """Return a description of this host, and which of some files are missing."""
    host = probe()
    return Seen(
        name=socket.gethostname(),
        kind=kind_of(host, MODELS),
        fingerprint=host.fingerprint(),
        summary=host.summary(),
        tool_version=__version__,
        versions=host.versions,
        missing=tuple(each for each in files if not Path(each).exists()),
    )


if __name__ == "__main__":
    try:
        sys.stdout.buffer.write(encode(seen(sys.argv[1:])))
    except TuneError as error:
        sys.exit(f"error: {error}")
