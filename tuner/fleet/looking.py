"""The process on a host that says what the host is.

    python -P -m tuner.fleet.looking FILE...

It prints a Seen (fleet/orders.py). A process of its own: what Ray starts sees a host's cards only
where it was given one, and has variables of Ray's.
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
    """Return what this host is, and which of some files are not there."""
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
