"""Run any program under the launch settings of a recommendation.

The same plan (space/launching.py) started the measured process. This process then becomes the
program (exec), so that its streams, descriptors, signals, exit code and lifetime are its own.
Several instances are different (deploy/team.py). Affinity is only narrowed: CPUs outside this
process's mask are never used. A short-lived observer looks at the running program and reports what
is in force.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from tuner.errors import TuneError, UsageError
from tuner.host.environment import tuning_variables
from tuner.host.identity import Host
from tuner.host.numa import NumaError, apply_memory_policy, policy_of
from tuner.host.topology import format_cpu_list, parse_cpu_list
from tuner.record.configuration import Configuration
from tuner.record.recommendation import Recommendation, Setting
from tuner.space.differences import differences
from tuner.space.knob import Applies
from tuner.space.launching import PRELOAD, LaunchPlan
from tuner.space.placing import is_placed_anew, plans_here

_LOADED_WITHIN_S = 1.0
_MOST_TOLD = 3
"""Differences between hosts that are named."""
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these, and ignored signals stay ignored through exec."""

Tell = Callable[[str], None]


class CannotRun(TuneError):
    """The program was not started; `exit_code` is that of env(1) and docker in this case."""

    def __init__(self, message: str, exit_code: int = 125) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Deployment(msgspec.Struct, frozen=True):
    """What will be applied on this host, and notes for the user."""

    settings: tuple[Setting, ...]
    """The launch settings; the others need a change in the program."""
    plans: tuple[LaunchPlan, ...]
    """One per instance, by rank."""
    notes: tuple[str, ...]


def prepare(
    recommendation: Recommendation, host: Host, environment: Mapping[str, str]
) -> Deployment:
    """Translate a recommendation for this host.

    Raises CannotRun if a library, NUMA node or CPU that it needs is not here.
    """
    notes = []
    ours: list[Setting] = []
    others: list[Setting] = []
    for setting in recommendation.settings:
        (ours if setting.applies == Applies.LAUNCH else others).append(setting)
    allowed = {cpu.id for cpu in host.cpus}
    for setting in list(ours):
        outside = _cpus_outside(setting, allowed)
        if outside:
            ours.remove(setting)
            notes.append(
                f"left out: {setting.knob}={setting.value} names CPUs that are not allowed"
            )
    try:
        settings = Configuration.of({s.knob: s.value for s in ours})
        plans = plans_here(recommendation, settings, host)
    except UsageError as error:
        raise CannotRun(f"{error}; fix that, or tune again on this host") from error
    if not recommendation.settings:
        notes.append("nothing was confirmed to be faster than the default: nothing is set")
    elif recommendation.is_expected:
        notes.append("recommended by guidelines, nothing of it was measured here: verify it")
    if serious := [d.in_words() for d in differences(recommendation, host) if d.matters]:
        more = f"; and {len(serious) - _MOST_TOLD} more" if len(serious) > _MOST_TOLD else ""
        notes.append("confirmed on another host, its gain here is unknown: "
                     f"{'; '.join(serious[:_MOST_TOLD])}{more}")  # fmt: skip
    if is_placed_anew(recommendation, host):
        notes.append("placed anew by its launch settings: its placements name another host's CPUs")
    for setting in others:
        if setting.needs_code_change:
            what = f"{setting.knob}={setting.value}"
            notes.append(f"not applied, the program itself must: {what}: {setting.how}")
        else:
            notes.append(f"confirmed with {setting.knob}={setting.value}: {setting.how}")
    overridden = [
        f"{name}={value} in place of {environment[name]}"
        for name, value in plans[0].environment.items()
        if name != PRELOAD and environment.get(name, value) != value
    ]
    if overridden:
        notes.append(f"set here otherwise: {', '.join(overridden)}")
    besides = [
        name
        for name in tuning_variables(environment)
        if name not in plans[0].environment or name == PRELOAD
    ]
    if besides:
        notes.append(f"set in addition, and not measured: {', '.join(besides)}")
    return Deployment(tuple(ours), plans, tuple(notes))


def _cpus_outside(setting: Setting, allowed: set[int]) -> bool:
    """Tell whether a CPU list in the environment would leave the mask that was given."""
    if setting.knob != "env.GOMP_CPU_AFFINITY":
        return False
    try:
        return not set(parse_cpu_list(str(setting.value).replace(" ", ","))) <= allowed
    except ValueError:  # a stride such as 0-15:2
        return True


def execute(plan: LaunchPlan, command: Sequence[str], tell: Tell) -> NoReturn:
    """Become the command, under the plan.

    tell: is called in the observer, with a line at a time. Raises CannotRun: 126 if the command
    cannot be executed, 127 if it is not there, 125 for anything else.
    """
    apply_placement(plan)
    failed = _start_observer(plan, tell)
    try:
        become(plan, command)
    except CannotRun:
        os.write(failed, b"x")
        raise


def apply_placement(plan: LaunchPlan) -> None:
    """Give this process the plan's CPUs and memory policy; raises CannotRun."""
    try:
        apply_memory_policy(plan.memory_policy)
    except NumaError as error:
        raise CannotRun(str(error)) from error
    if plan.cpus is not None:
        try:
            os.sched_setaffinity(0, plan.cpus)
        except OSError as error:
            cpus = format_cpu_list(plan.cpus)
            raise CannotRun(f"cannot use the CPUs {cpus}: {error.strerror}") from error


def become(plan: LaunchPlan, command: Sequence[str]) -> NoReturn:
    """Execute the command in this process, with the plan's variables; raises CannotRun."""
    ours = {number: signal.signal(number, signal.SIG_DFL) for number in _IGNORED_BY_PYTHON}
    try:
        _become(plan, command)
    finally:  # it did not; what is written to a closed pipe must not end this process
        for number, handler in ours.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _become(plan: LaunchPlan, command: Sequence[str]) -> NoReturn:
    name = shlex.quote(command[0])
    try:
        os.execvpe(command[0], list(command), _environment(plan))
    except FileNotFoundError as error:
        if found := shutil.which(command[0]):  # execve(2) misses what is to interpret it
            raise CannotRun(f"cannot execute {name}: {_interpreter(found)}", 126) from error
        raise CannotRun(f"there is no program {name}", 127) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the command or a variable
        why = error.strerror if isinstance(error, OSError) else error
        raise CannotRun(f"cannot execute {name}: {why}", 126) from error


def _interpreter(path: str) -> str:
    """Say which interpreter of a program is not here: the one that its first line names."""
    try:
        with open(path, "rb") as file:
            first = file.read(256).partition(b"\n")[0]
    except OSError:  # may be executed and not read
        first = b""
    if not first.startswith(b"#!"):
        return "the loader that it was linked for is not here (another C library or processor?)"
    words = first[2:].decode(errors="backslashreplace").split()
    named = shlex.quote(words[0]) if words else "nothing"
    return f"its first line names the interpreter {named}, which is not here"


def _environment(plan: LaunchPlan) -> dict[str, str]:
    """Return this process's environment with the plan's variables; preloads come first."""
    environment = {**os.environ, **plan.variables()}
    own, given = plan.environment.get(PRELOAD), os.environ.get(PRELOAD)
    if own and given:
        environment[PRELOAD] = f"{own}:{given}"
    return environment


def _start_observer(plan: LaunchPlan, tell: Tell) -> int:
    """Fork the observer; return where to write that there will be nothing to observe.

    Forked twice, so that the program has no child that it did not start. The pipe closes when the
    program begins.
    """
    begun, failed = os.pipe()
    program = os.getpid()
    child = os.fork()
    if child:
        os.close(begun)
        os.waitpid(child, 0)
        return failed
    try:
        if os.fork() == 0:
            os.setsid()  # the terminal's signals are the program's
            _close_all_but(begun, 2)
            if not os.read(begun, 1):
                for line in observe(plan, program):
                    tell(line)
    finally:
        os._exit(0)


def _close_all_but(*kept: int) -> None:
    """Close what belongs to the program: readers of its output must not wait for this process."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # the listing's own
                continue


def observe(plan: LaunchPlan, pid: int) -> list[str]:
    """Report on the running program: in force, set, or not observable."""
    good, bad, unknown = [], [], []
    preloads = [path for path in plan.environment.get(PRELOAD, "").split(":") if path]
    mapped = _mapped(preloads, pid)
    for path in preloads:
        name = Path(path).name
        if mapped is None:
            unknown.append(f"{name} (the program ended too soon, or may not be looked at)")
        elif os.path.realpath(path) in mapped:
            good.append(f"{name} loaded")
        else:
            bad.append(f"{name} is not loaded (a static program, or one that drops LD_PRELOAD)")
    if plan.cpus is not None:
        try:
            cpus = tuple(sorted(os.sched_getaffinity(pid)))
            (good if cpus == tuple(sorted(plan.cpus)) else bad).append(
                f"CPUs {format_cpu_list(cpus)}"
            )
        except OSError:
            unknown.append("CPUs (the program ended too soon)")
    if plan.memory_policy != "none":
        policy = policy_of(pid)
        shown = f"memory {policy or plan.memory_policy}"
        (unknown if not policy else good if policy == plan.memory_policy else bad).append(shown)
    variables = {k: v for k, v in plan.environment.items() if k != PRELOAD}
    lines = [
        ("in force", good),
        ("set", [f"{name}={value}" for name, value in sorted(variables.items())]),
        ("not in force", bad),
        ("not known", unknown),
    ]
    return [f"{what}: {', '.join(found)}" for what, found in lines if found]


def _mapped(paths: list[str], pid: int) -> str | None:
    """Return the program's mappings, once the libraries are among them or a second has passed.

    None if nothing can be seen: it has ended, or belongs to another user.
    """
    deadline = time.monotonic() + _LOADED_WITHIN_S
    while True:
        try:
            mapped = Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            return None
        if not mapped:
            return None
        if all(os.path.realpath(p) in mapped for p in paths) or time.monotonic() > deadline:
            return mapped
        time.sleep(0.005)
