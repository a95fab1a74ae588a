"""The process on a host that carries out an order: a study, or a verification.

    python -P -m tuner.fleet.run_study ORDER FOLDER

ORDER: a file with a Tune or a Verify (fleet/orders.py); FOLDER: of the study. It ends as the
command would, with its exit codes; its error is the last line that it prints.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from tuner.app.tune import tune
from tuner.app.verify import run_verify
from tuner.errors import Interrupted, StudyConflict, TuneError
from tuner.fleet.orders import UNFIT, Tune, Verify, decode, verify_request_of
from tuner.host.secrets import stated
from tuner.interrupts import heeded
from tuner.record.events import unheard

VERIFICATION = "verification.json"
"""A file next to the order."""


def main(order: Path, folder: Path) -> int:
    """Carry it out; return the exit code."""
    job = decode(order.read_bytes(), Tune | Verify)
    try:
        with heeded():
            if isinstance(job, Verify):
                found = run_verify(verify_request_of(job, folder), unheard)
                (order.parent / VERIFICATION).write_bytes(msgspec.json.encode(found))
                return 0
            here = msgspec.structs.replace(job.request, out=folder, environment=stated(os.environ))
            (finished,) = tune(here, unheard)
    except StudyConflict as error:  # the study is another kind of host's, or somebody works on it
        print(f"error: {error}", flush=True)
        return UNFIT
    except (TuneError, Interrupted) as error:
        print(f"error: {error}", flush=True)
        return error.exit_code
    if finished.error:
        print(f"error: {finished.error}", flush=True)
    return finished.exit_code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
