"""The launch of a process, checked against the host or target that it is for.

Variables are judged by the same rules as the environment in which a study is started
(space/as_run.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from tuner.deploy.launched import CPU_LIST, Assignment, Gap, Launched, Scope
from tuner.deploy.lint_finding import Kind, LintFinding, Why, with_lists
from tuner.host.environment import is_of_no_speed, is_tuning_variable
from tuner.host.identity import Host
from tuner.host.libraries import library_folders, library_named, searched_folders
from tuner.host.limits import Limits
from tuner.host.secrets import stated
from tuner.host.topology import Cpu, Node, Topology, parse_cpu_list
from tuner.record.workload import ModelFacts, Workload
from tuner.space.as_run import Cause, Remark, effects
from tuner.space.catalogue import KNOBS
from tuner.space.knobs_of.launch import PRELOADED
from tuner.space.launching import PRELOAD
from tuner.space.profile import Profile
from tuner.space.resolve import resolve_space
from tuner.space.restrictions import Restrictions, slip_of
from tuner.space.space import Space
from tuner.space.variables import misspelt

_ENOUGH_CPUS = 64
"""Of a target of which nothing is known: no rule about a single core holds there."""
_THREADS = re.compile(r"(OMP|MKL|OPENBLAS)_NUM_THREADS|TF_NUM_(INTRA|INTER)OP_THREADS")
_RIVALS = (("GOMP_CPU_AFFINITY", "KMP_AFFINITY"), ("GOMP_CPU_AFFINITY", "OMP_PLACES"))
"""Both bind threads, and one of them wins."""
_BYTES = {
    "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": 1,
    "TF_MKL_ALLOC_MAX_BYTES": 1,
    "MIMALLOC_RESERVE_OS_MEMORY": 1024,
}
"""Variables that are amounts of memory, with their unit in bytes."""

_KINDS: dict[Cause, Kind] = {
    Cause.NOT_WRITTEN_DOWN: Kind.UNKNOWN,
    Cause.EMPTY: Kind.DEAD,
    Cause.BAD_NAME: Kind.UNKNOWN,
    Cause.MISSPELT: Kind.MISSPELT,
    Cause.UNREAD: Kind.DEAD,
    Cause.IRRELEVANT: Kind.DEAD,
    Cause.NUMPY: Kind.ASIDE,
    Cause.NEEDS_OPENMP: Kind.DEAD,
    Cause.NO_FILE: Kind.UNUSABLE,
    Cause.UNKNOWN_LIBRARY: Kind.UNKNOWN,
    Cause.LOADED_BEFORE: Kind.DEAD,
    Cause.NOT_FOUND: Kind.UNUSABLE,
    Cause.NOT_ALLOWED: Kind.UNKNOWN,
    Cause.NOT_HERE: Kind.DEAD,
    Cause.INEFFECTIVE: Kind.DEAD,
    Cause.OVERRIDDEN: Kind.CONTRADICTION,
    Cause.DEFAULT: Kind.REDUNDANT,
}


class Target(msgspec.Struct, frozen=True):
    """The target of the file, as far as it is not this host."""

    is_image: bool = False
    """It runs elsewhere: nothing of this host counts."""
    cpus: float | None = None
    memory_bytes: float | None = None


def described(host: Host, cpus: float, memory_bytes: float | None = None) -> Host:
    """Return a host with n CPUs, each a core of one NUMA node, and otherwise unchanged."""
    ids = tuple(range(max(1, math.ceil(cpus))))
    memory = int(memory_bytes or host.limits.memory_bytes)
    topology = Topology(tuple(Cpu(i, i, 0, 0, 0) for i in ids), (Node(0, ids, memory, (10,)),))
    limits = Limits(ids, cpus if cpus < len(ids) else None, memory, (0,))
    return msgspec.structs.replace(host, topology=topology, limits=limits)


def misspelt_in(launched: Launched) -> list[tuple[Assignment, str]]:
    """Return variables of no known family that seem slips of known ones: OPM_NUM_THREADS."""
    return [
        (each, meant)
        for each in launched.assignments
        if each.is_exported and not is_tuning_variable(each.name)
        if (meant := misspelt(each.name)) is not None
    ]


class Subject(NamedTuple):
    """A model that may be started, and the settings for it."""

    profile: Profile
    workload: Workload
    facts: ModelFacts
    space: Space
    wide_space: Space
    """Where every library could be preloaded."""


def _space(profile: Profile, workload: Workload, facts: ModelFacts, host: Host) -> Space:
    return resolve_space(profile, host, workload, facts, Restrictions())


class LaunchJudge:
    """Judges the launch of one process."""

    def __init__(
        self,
        launched: Launched,
        host: Host,
        target: Target,
        subjects: Iterable[tuple[Profile, Workload, ModelFacts]],
    ) -> None:
        """subjects: what may be started, one for each framework."""
        self._launched = launched
        self._target = target
        self._is_elsewhere = launched.scope is Scope.IMAGE
        self.knows_cpus = target.cpus is not None or not self._is_elsewhere
        """Whether it is known which CPUs the program may use."""
        self._preload = _Preload(launched, is_here=launched.scope is Scope.HOST)
        self.may_preload = bool(self._preload.possible)
        """Whether a library may be preloaded that is not known, or is not here."""
        if target.cpus is not None:
            host = described(host, target.cpus, target.memory_bytes)
        elif self._is_elsewhere:
            host = described(host, _ENOUGH_CPUS, target.memory_bytes)
        self.host = msgspec.structs.replace(
            host, libraries=host.libraries | self._preload.libraries
        )
        """As the program would see it."""
        every = {name: name for names in PRELOADED.values() for name in names}
        wide = msgspec.structs.replace(self.host, libraries=every | self.host.libraries)
        self.subjects = [
            Subject(*each, _space(*each, self.host), _space(*each, wide)) for each in subjects
        ]

    def findings(self) -> list[LintFinding]:
        """Return its faults and notes, without those from guidelines."""
        effects = self._in_all([self._effects(each) for each in self.subjects])
        ineffective = {each.name for each in effects if each.kind is Kind.DEAD}
        own = [*self._contradictions(), *self._beyond()]
        return [
            *(each for each in own if each.name not in ineffective),
            *self._preload.findings,
            *effects,
            *self._not_exported(),
            *(self.of(each, Kind.MISSPELT, Cause.MISSPELT, meant)
              for each, meant in misspelt_in(self._launched)),
        ]  # fmt: skip

    def environments(self) -> list[dict[str, Assignment]]:
        """Return the tuning variables of each command after its last assignments.

        Commands without own ones come first.
        """
        tuning = [each for each in self._launched.assignments if is_tuning_variable(each.name)]
        lasting = {each.name: each for each in tuning if not each.command and each.is_exported}
        of_command: dict[int, dict[str, Assignment]] = {}
        for each in tuning:
            if each.command:
                of_command.setdefault(each.command, {})[each.name] = each
        return [lasting, *(lasting | own for own in of_command.values())]

    def known(self, environment: Mapping[str, Assignment]) -> dict[str, str]:
        """Return the values that are known and may be written down."""
        known = {n: a.value for n, a in environment.items() if a.gap is None and n != PRELOAD}
        preload = self._preload.known(environment.get(PRELOAD))
        return stated(known | ({PRELOAD: preload} if preload else {}))

    def of(
        self,
        assignment: Assignment,
        kind: Kind,
        why: Cause | Why,
        detail: str = "",
        value: str | None = None,
    ) -> LintFinding:
        written = stated({assignment.name: assignment.value}).get(assignment.name, "")
        return LintFinding(
            kind,
            why,
            assignment.name,
            written if value is None else value,
            assignment.line,
            assignment.file,
            unless=assignment.unless,
            detail=detail,
        )

    # ------------------------------------------------------------------ variables by themselves

    def _effects(self, subject: Subject) -> list[LintFinding]:
        """Return what has no effect in a framework, or cannot be, by the rules of its space.

        A variable that is effective in one command counts as effective, whatever the others do.
        """
        shared, *of_commands = self.environments()
        others = [self._judged(each, subject) for each in of_commands]
        found = [each for each in self._judged(shared, subject)
                 if all(each in other for other in others)]  # fmt: skip
        found += [each for other in others for each in other if each.name not in shared]
        return list(dict.fromkeys(found))

    def _judged(self, environment: Mapping[str, Assignment], subject: Subject) -> list[LintFinding]:
        known = self.known(environment)
        remarks = effects(known, self.host, subject.workload, subject.space)
        possible = [
            (source, effects(known, self.host, subject.workload, subject.wide_space, {knob: name}))
            for (knob, name), source in self._preload.possible.items()
            if PRELOAD in environment
        ]
        found = []
        for remark in remarks:
            name = remark.knob.removeprefix("env.")
            if is_of_no_speed(name) and remark.cause is not Cause.MISSPELT:
                continue
            depends_on = next(
                (source for source, others in possible
                 if not any(_is_same(remark, other) for other in others)), ""
            )  # fmt: skip
            assignment = environment[name if name in environment else PRELOAD]
            found.append(self._finding(remark, assignment, depends_on))
        return found

    def _finding(self, remark: Remark, assignment: Assignment, depends_on: str) -> LintFinding:
        kind, detail = _KINDS.get(remark.cause, Kind.UNUSABLE), remark.detail
        value = None if remark.value is None else str(remark.value)
        if assignment.name == PRELOAD:
            value = next((path for path in _parts(assignment.value)
                          if value in (Path(path).name, library_named(path))), value)  # fmt: skip
        if remark.cause is Cause.NO_NUMBER and not _THREADS.fullmatch(assignment.name):
            kind = Kind.UNKNOWN
        other_line = None
        if remark.cause in (Cause.MISSPELT, Cause.OVERRIDDEN):
            detail = detail.removeprefix("env.")
        if remark.cause is Cause.OVERRIDDEN:
            winner = next((each for environment in self.environments()
                           if (each := environment.get(detail)) is not None), None)  # fmt: skip
            other_line = winner.line if winner else None
            detail = f"{detail}={winner.value}" if winner else detail
        if remark.cause is Cause.NOT_HERE and self._is_elsewhere:
            kind = Kind.UNKNOWN
        if depends_on and kind is Kind.DEAD:
            return self.of(assignment, Kind.DEPENDS, Why.PRELOAD, depends_on, value)
        found = self.of(assignment, kind, remark.cause, detail, value)
        return msgspec.structs.replace(found, other_line=other_line)

    def _in_all(self, found: Sequence[list[LintFinding]]) -> list[LintFinding]:
        """Keep what holds for every framework: which one the file starts is not known."""
        first, *others = found
        return [each for each in first
                if all(any((o.kind, o.name, o.value) == (each.kind, each.name, each.value)
                           for o in other) for other in others)]  # fmt: skip

    # ------------------------------------------------------------------ variables together

    def _contradictions(self) -> list[LintFinding]:
        found = []
        lasting = [each for each in self._launched.assignments
                   if not each.command and each.is_certain and each.is_exported
                   and each.gap is None and is_tuning_variable(each.name)]  # fmt: skip
        for i, each in enumerate(lasting):
            before = next((e for e in reversed(lasting[:i]) if e.name == each.name), None)
            is_same_file = before is not None and before.file == each.file
            if before is None or not is_same_file or each.extends or before.value == each.value:
                continue
            finding = self.of(each, Kind.CONTRADICTION, Why.SET_TWICE)
            found.append(msgspec.structs.replace(finding, other_line=before.line))
        for environment in self.environments():
            for one, other in _RIVALS:
                if one in environment and other in environment and environment[one].value:
                    found.append(self.of(environment[other], Kind.CONTRADICTION, Why.RIVALS, one))
        return found

    def _not_exported(self) -> Iterable[LintFinding]:
        """Yield variables that a shell does not export; a misspelt name is reported elsewhere."""
        last = {each.name: each for each in self._launched.assignments
                if not each.is_exported and is_tuning_variable(each.name)}  # fmt: skip
        for each in last.values():
            if meant := slip_of(f"env.{each.name}", KNOBS):
                yield self.of(each, Kind.MISSPELT, Cause.MISSPELT, meant.removeprefix("env."))
            else:
                yield self.of(each, Kind.DEAD, Why.NOT_EXPORTED)

    # ------------------------------------------------------------------ what is granted

    def _beyond(self) -> list[LintFinding]:
        """Return threads, workers, CPUs, nodes and memory that the target, or the file, lacks."""
        return [*self._threads(), *self._places(), *self._memory()]

    def _granted(self) -> tuple[float, str]:
        """Return how many CPUs the process has, and what says so; nothing of it may be known."""
        grants: list[tuple[float, str]] = []
        if self.knows_cpus:
            own = self._target.cpus
            grants.append((float(self.host.usable_cpus), "") if own is None else (own, "--cpus"))
        grants += [(each.amount, each.by) for each in self._launched.cpu_limits]
        widest: dict[str, int] = {}
        for place in self._launched.placements:
            if not place.is_nodes:
                n = len(parse_cpu_list(place.text))
                widest[place.by] = max(n, widest.get(place.by, 0))
        return min([*grants, *((float(n), by) for by, n in widest.items())], default=(math.inf, ""))

    def _threads(self) -> Iterable[LintFinding]:
        granted, by = self._granted()
        found = []
        for environment in self.environments():
            for name, each in environment.items():
                count = each.value.partition(",")[0]
                is_number = each.gap is None and count.isdecimal()
                if _THREADS.fullmatch(name) and is_number and float(count) > granted:
                    found.append(self.of(each, Kind.BEYOND, Why.THREADS, by))
        for limit in self._launched.workers:
            if limit.amount > granted:
                found.append(LintFinding(Kind.BEYOND, Why.WORKERS, limit.by, "", limit.line,
                                         detail=by))  # fmt: skip
        return (msgspec.structs.replace(each, granted=granted) for each in found)

    def _places(self) -> Iterable[LintFinding]:
        if not self.knows_cpus:
            return
        allowed = {cpu.id for cpu in self.host.cpus}
        nodes = {*self.host.nodes, *self.host.memory_nodes}
        lists = [(each.text, LintFinding(Kind.BEYOND, Why.CPUS, each.by, each.text, each.line))
                 for each in self._launched.placements if not each.is_nodes]  # fmt: skip
        for environment in self.environments():
            for name, each in environment.items():
                lists += [(text, self.of(each, Kind.BEYOND, Why.CPUS))
                          for text in _cpu_lists(name, each.value)]  # fmt: skip
        for text, finding in lists:
            outside = sorted({*parse_cpu_list(text)} - allowed)
            if outside:
                yield with_lists(finding, outside, allowed)
        for place in self._launched.placements:
            missing = sorted({*parse_cpu_list(place.text)} - nodes) if place.is_nodes else []
            if missing and self._target.cpus is None:
                finding = LintFinding(Kind.BEYOND, Why.NODES, place.by, place.text, place.line)
                yield with_lists(finding, missing, nodes)

    def _memory(self) -> Iterable[LintFinding]:
        target = self._target.memory_bytes
        is_known = target is not None or not self._is_elsewhere
        here = target if target is not None else float(self.host.limits.memory_bytes)
        limits = self._launched.memory_limits
        for limit in limits if target is not None else []:
            if limit.amount > here:
                yield LintFinding(Kind.BEYOND, Why.MEMORY, limit.by, "", limit.line,
                                  granted=here)  # fmt: skip
        most = min([*(each.amount for each in limits), *([here] if is_known else [])],
                   default=math.inf)  # fmt: skip
        for environment in self.environments():
            for name, each in environment.items():
                unit = _BYTES.get(name)
                is_number = each.gap is None and each.value.isdecimal() and len(each.value) < 19
                if unit and is_number and int(each.value) * unit > most:
                    finding = self.of(each, Kind.BEYOND, Why.MEMORY)
                    yield msgspec.structs.replace(finding, granted=most)


def _is_same(one: Remark, other: Remark) -> bool:
    """Tell whether two remarks blame one variable alike, whatever the words."""
    return one.knob == other.knob and (
        one.cause is other.cause or {one.cause, other.cause} <= _PRELOADABLE
    )


_PRELOADABLE = {Cause.NEEDS_OPENMP, Cause.INEFFECTIVE}


class _Preload:
    """The libraries that a file preloads, as far as they are known."""

    def __init__(self, launched: Launched, *, is_here: bool) -> None:
        """is_here: the files must be on this host; else they are assumed to exist."""
        self._launched = launched
        self.libraries: dict[str, str] = {}
        """Paths of the known libraries that are loaded, by name."""
        self.findings: list[LintFinding] = []
        self.possible: dict[tuple[str, str], str] = {}
        """Libraries, by knob and name, that may be loaded, each with what that depends on."""
        self._absent: set[str] = set()
        for each in launched.assignments:
            if each.name == PRELOAD and each.is_exported:
                self._read(each, is_here=is_here)

    def _read(self, each: Assignment, *, is_here: bool) -> None:
        if each.gap is not None and each.gap is not Gap.NOT_SET_HERE:
            self._may_load(None, f"{PRELOAD} in line {each.line}")
            return
        for path in _parts(each.value):
            name = library_named(path)
            if "$" not in path and is_here and not _is_there(path):
                self._absent.add(path)
                why = Cause.NO_FILE if "/" in path else Why.NO_LIBRARY
                finding = LintFinding(Kind.UNUSABLE, why, PRELOAD, path, each.line, each.file,
                                      unless=each.unless)  # fmt: skip
                if each.is_certain and all(other.value != path for other in self.findings):
                    self.findings.append(finding)
                if name is not None:
                    self._may_load(name, f"{PRELOAD}={path}, which is not here")
            elif name is None and "$" in path:
                self._may_load(None, f"{PRELOAD}={path}")
            elif name is not None and not each.is_certain:
                self._may_load(name, f"{PRELOAD}={path}")
            elif name is not None:
                self.libraries.setdefault(name, path)

    def _may_load(self, name: str | None, source: str) -> None:
        """Note a library that may be loaded; None: any."""
        for knob, libraries in PRELOADED.items():
            for library in libraries:
                if name in (None, library):
                    self.possible.setdefault((knob, library), source)

    def known(self, assignment: Assignment | None) -> str:
        """Return what is surely loaded, as the variable's value."""
        if assignment is None or not assignment.is_certain:
            return ""
        if assignment.gap is not None and assignment.gap is not Gap.NOT_SET_HERE:
            return ""
        kept = []
        for path in _parts(assignment.value):
            name = library_named(path)
            if path not in self._absent and (name or "$" not in path):
                kept.append(Path(path).name)  # that it is there is judged already
        return ":".join(kept)


def _parts(value: str) -> list[str]:
    return [part for part in re.split(r"[:\s]+", value) if part]


def _is_there(path: str) -> bool:
    """Tell whether the dynamic linker finds a library: by its path, or in one of its folders."""
    if "/" in path:
        return Path(path).is_file()
    folders = searched_folders() if library_named(path) else library_folders()
    return any((folder / path).exists() for folder in folders)


def _cpu_lists(name: str, value: str) -> Iterable[str]:
    """Yield the lists of CPUs in a variable's value, as the kernel writes them."""
    if name == "GOMP_CPU_AFFINITY":
        for part in re.split(r"[ ,]+", value.strip()):
            match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4})(?::(\d{1,4}))?)?", part)
            if match:
                first, last = int(match[1]), int(match[2] or match[1])
                cpus = range(first, last + 1, max(1, int(match[3] or 1)))
                yield ",".join(map(str, cpus))
    elif name == "KMP_AFFINITY":
        inside = re.search(r"proclist=\[([\d,-]+)\]", value)
        if inside and CPU_LIST.fullmatch(inside[1]):
            yield inside[1]
    elif name == "OMP_PLACES":
        yield from re.findall(r"\{(\d{1,4})\b", value)
