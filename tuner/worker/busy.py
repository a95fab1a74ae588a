"""A synthetic busy neighbour: N processes that compute and copy memory until they are killed.

Each says "busy" once, when it has begun.

python -P -m tuner.worker.busy N
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

_BLOCK_BYTES = 32 << 20
"""More than most last-level caches of a core: copying it takes memory bandwidth from others."""


def main(n_processes: int) -> NoReturn:
    """Be busy in `n_processes` processes, one thread each."""
    for _ in range(n_processes - 1):
        if os.fork() == 0:
            break
    block = bytearray(_BLOCK_BYTES)
    os.write(1, b"busy\n")
    while True:
        sum(i * i for i in range(50_000))
        bytes(block)


if __name__ == "__main__":
    main(int(sys.argv[1]))
