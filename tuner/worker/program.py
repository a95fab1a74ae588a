"""A user's whole program instead of a model: one run of it from start to end is one slice.

    tune-framework --command "python bench.py"

The program prints how much it did in which time, timed by itself, in one line or several:

    samples=512 seconds=3.25

It is tuned by launch settings alone, which change no result; its outputs are not compared. The
worker only starts it, under the environment, CPUs and memory policy that it was itself started
under.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import IO

import msgspec

from tuner.errors import UsageError, WorkerFailed
from tuner.frameworks import OFFERED_TITLES
from tuner.host.environment import for_workers
from tuner.host.interference import Watch
from tuner.host.numa import apply_memory_policy
from tuner.host.secrets import redacted
from tuner.record.configuration import Value
from tuner.record.launch import Built, Checked, Compiled, Prepared, Profiled, ReadBack, Slice
from tuner.record.output_check import OutputCheck
from tuner.record.protocol import (
    Answered,
    Begin,
    Check,
    MakeReference,
    Measure,
    Measured,
    Prepare,
    Profile,
    Seen,
    Serve,
)
from tuner.record.workload import PROGRAM, SERVICE, ModelCard, ModelFacts, ModelRef
from tuner.worker import reference
from tuner.worker.evidence import variables
from tuner.worker.evidence.program import Sighting

_LINE = re.compile(
    r"\bsamples\s*[=:]?\s*(?P<samples>\d+)\b.*?\bseconds\s*[=:]?\s*(?P<seconds>\d+(?:\.\d+)?(?:e-?\d+)?)",
    re.IGNORECASE,
)
_LOOK_EVERY_S = 0.02


class Run(msgspec.Struct, frozen=True):
    """One run of the program."""

    samples: int
    seconds: float
    """As the program says."""
    wall_s: float


class ProgramSession:
    """The state of one launch of a program; answers the same commands as a model's session."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._watch = Watch(with_children=True)
        self._settings: dict[str, Value] = {}
        self._framework = ""
        self._seen = Sighting()
        self._prepared_s = 0.0

    def begin(self, order: Begin) -> Built:
        """Take the settings; every run inherits the memory policy."""
        apply_memory_policy(order.memory_policy)
        self._settings = order.settings
        self._framework = order.framework
        self._ref = order.model
        return Built(0.0, 0.0, {})

    def prepare(self, order: Prepare) -> Compiled:
        """Run once without counting it, to fill the caches, and look at the running program."""
        self._tell("warming up")
        self._seen = Sighting()
        self._prepared_s = _run(self._ref, self._seen, self._settings).wall_s
        return Compiled(self._prepared_s)

    def warm_up(self) -> Prepared:
        """Report what was seen: the run that is not counted has already filled the caches."""
        return Prepared(
            first_call_s=self._prepared_s,
            steady_call_s=self._prepared_s,
            warm_up_s=self._prepared_s,
            is_steady=True,
            memory_peak_bytes=_children_peak_bytes(),
            memory_private_bytes=0,  # between its runs a program holds nothing
            read_back=tuple(_read_back(self._seen, self._settings, self._framework)),
            cpus=tuple(sorted(self._seen.cpus)),
        )

    def measure(self, order: Measure) -> Measured:
        """Run once."""
        before = self._watch.read()
        made = _run(self._ref, settings=self._settings)
        after = self._watch.read()
        return Measured(
            Slice(
                index=order.index,
                batch=1,
                calls=made.samples,
                seconds=made.seconds,
                at=(before.at + after.at) / 2,
                interference=self._watch.between(before, after),
            )
        )

    def serve(self, order: Serve) -> Answered:
        """Answer nothing: a program times itself."""
        raise UsageError("a program (--command) cannot be sent requests")

    def profile(self, order: Profile) -> Profiled:
        """Report nothing: a program's inside is its own."""
        return Profiled((), 0.0, 0, "a program is not looked into", 0.0)

    def check(self, order: Check) -> Checked:
        """Compare nothing: launch settings change no result, and a program shows none."""
        return Checked(OutputCheck(drift=0.0, n_inputs=0), 0.0)

    def make_reference(self, order: MakeReference) -> None:
        """Write an empty reference."""
        reference.write(Path(order.path), {}, [])

    def keep_weights(self) -> None:
        """A program's are its own."""

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]:
        """Name the errors of exhausted memory here."""
        return (MemoryError,)


def look_at_program(ref: ModelRef) -> Seen:
    """Run a program once to see which framework it uses, and how long it takes."""
    seen = Sighting()
    try:
        made = _run(ref, seen)
    except WorkerFailed as error:
        return Seen(card_of_started(ref, PROGRAM, seen, _digest(ref), str(error)), {})
    facts = {
        framework: ModelFacts(
            n_parameters=0,
            input_shapes=(),
            versions={},
            effective_defaults=observed(_read_back(seen, {}, framework)),
            unread=variables.unread(framework, libraries=seen.libraries),
            graph_width=0.0,
            graph_fault="a program shows no graph",
            import_s=0.0,
            build_s=0.0,
            call_s=made.wall_s,
        )
        for framework in seen.frameworks()
    }
    return Seen(card_of_started(ref, PROGRAM, seen, _digest(ref), ""), facts)


def _read_back(seen: Sighting, settings: Mapping[str, Value], framework: str) -> list[ReadBack]:
    found = seen.read_back(settings)
    known = {item.knob for item in found}
    return found + variables.of_environment(settings, known, framework, seen.libraries)


def observed(items: Iterable[ReadBack]) -> dict[str, Value]:
    """Return what is in force, as far as it can be observed."""
    return {item.knob: item.observed for item in items if item.observed is not None}


def card_of_started(ref: ModelRef, form: str, seen: Sighting, digest: str, fault: str) -> ModelCard:
    """Return the card of a program that was started and looked at, or why it cannot be tuned."""
    shown = redacted(shlex.join(ref.command))
    if not fault and not seen.frameworks():
        fault = f"{shown} loads neither {' nor '.join(OFFERED_TITLES)}: there is nothing to tune"
    return ModelCard(
        name=ref.name,
        title=shown,
        task="",
        kind="other",
        frameworks=seen.frameworks(),
        reference_batch=1,
        batches=(1,),
        n_classes=None,
        source_sha256=digest,
        form=form,
        item="request" if form == SERVICE else "sample",
        fault=fault,
    )


def _digest(ref: ModelRef) -> str:
    """Return the SHA-256 over the files that the command names."""
    digest = hashlib.sha256()
    for word in ref.command:
        path = Path(ref.path) / word
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _run(ref: ModelRef, seen: Sighting | None = None, settings: Collection[str] = ()) -> Run:
    """Run the program; its output goes to the log.

    settings: those of this launch; of the variables that every worker has, the program gets only
    these.

    Raises WorkerFailed if it cannot be started, fails, or prints no samples and seconds.
    """
    shown = shlex.join(ref.command)
    began = time.monotonic()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            program = subprocess.Popen(
                ref.command,
                cwd=ref.path,
                env=environment_of_program(settings),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerFailed(f"cannot run {shown}: {error.strerror}") from error
        if seen is not None:
            _observe(program, seen)
        code = program.wait()
        wall_s = time.monotonic() - began
        try:  # what it left behind would run beside the next slice
            os.killpg(program.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        text, complaints = _written(output), _written(errors)
    sys.stdout.write(text + complaints)
    sys.stdout.flush()
    if code:
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        raise WorkerFailed(f"{shown} ended {how}{_last_line(complaints or text)}")
    found = [(int(m["samples"]), float(m["seconds"])) for m in _LINE.finditer(text)]
    samples, seconds = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0.0)
    if samples <= 0 or seconds <= 0:
        raise WorkerFailed(
            f"{shown} printed no line 'samples=N seconds=S' with positive numbers{_last_line(text)}"
        )
    return Run(int(samples), float(seconds), wall_s)


def environment_of_program(settings: Collection[str]) -> dict[str, str]:
    """Return the environment of a user's program: without the worker's own variables.

    settings: those of this launch.
    """
    of_the_worker = for_workers("cpu")
    return {
        k: v for k, v in os.environ.items() if of_the_worker.get(k) != v or f"env.{k}" in settings
    }


def _written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _observe(program: subprocess.Popen[bytes], seen: Sighting) -> None:
    while True:
        seen.look(program.pid)
        try:
            program.wait(_LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            continue
        return


def _last_line(text: str) -> str:
    words = [line.strip() for line in text.splitlines() if line.strip()]
    return f" (its last line: {words[-1][:200]})" if words else ""


def _children_peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
