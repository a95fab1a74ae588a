"""A launch file held against a target and the guidelines: what of it is ineffective, or missing.

Nothing is executed of it. What its settings come to is judged by the same rules by which a study
judges the environment that it is started in (space/as_run.py).
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from tuner.deploy.launch_file import read_launch_file
from tuner.deploy.launched import (
    CPU_LIST,
    Assignment,
    Gap,
    Launched,
    LaunchFile,
    NotUnderstood,
    Scope,
)
from tuner.errors import UsageError
from tuner.host.environment import is_of_no_speed, is_tuning_variable
from tuner.host.identity import Host, probe
from tuner.host.libraries import library_folders, library_named
from tuner.host.limits import Limits
from tuner.host.secrets import stated
from tuner.host.topology import Cpu, Node, Topology, format_cpu_list, parse_cpu_list
from tuner.insight.facts import facts_of, host_in_words
from tuner.insight.predict import known_of, settable
from tuner.output.guidelines import sentence
from tuner.plan import Plan, plan
from tuner.record.configuration import Configuration
from tuner.record.events import Listener
from tuner.record.guidelines import Guidelines, Rule
from tuner.record.journal import WinnerClass
from tuner.request import Request
from tuner.space.as_run import Cause, Remark, as_run, effects
from tuner.space.catalogue import allowed_in
from tuner.space.design import Factors
from tuner.space.knobs_of.launch import PRELOADED
from tuner.space.launching import PRELOAD
from tuner.space.placement import PLACING
from tuner.space.resolve import resolve_space
from tuner.space.restrictions import Restrictions
from tuner.space.space import Space
from tuner.space.variables import misspelt

PROBE_MODEL = "matmul"
"""Built where no model is named: which variables a framework reads is asked of it."""
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


class Kind(enum.StrEnum):
    """What a finding is, the worst first."""

    CONTRADICTION = "contradiction"
    UNUSABLE = "unusable"
    BEYOND = "beyond"
    MISSPELT = "misspelt"
    DEAD = "dead"
    HURTS = "hurts"
    MISSED = "missed"
    DEPENDS = "depends"
    REDUNDANT = "redundant"
    ASIDE = "aside"
    UNKNOWN = "unknown"


class Severity(enum.StrEnum):
    """Whether a finding is wrong, or worth knowing."""

    FAULT = "fault"
    NOTE = "note"


_FAULTS = (Kind.CONTRADICTION, Kind.UNUSABLE, Kind.BEYOND, Kind.MISSPELT, Kind.DEAD, Kind.HURTS)


class Why(enum.StrEnum):
    """Reasons that the whole file gives, beside those of a single variable (as_run.Cause)."""

    SET_TWICE = "set_twice"
    RIVALS = "rivals"
    """Two runtimes' ways of binding; detail: the other variable."""
    NOT_EXPORTED = "not_exported"
    THREADS = "threads"
    """More than is granted; detail: by what, empty for the host."""
    WORKERS = "workers"
    CPUS = "cpus"
    NODES = "nodes"
    MEMORY = "memory"
    NO_LIBRARY = "no_library"
    """No folder of libraries holds a file of that name."""
    PRELOAD = "preload"
    """It depends on a preload that is not known."""
    GUIDELINE = "guideline"


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


class LintFinding(msgspec.Struct, frozen=True):
    """A finding about a launch file, as data."""

    kind: Kind
    why: Cause | Why
    name: str
    """The variable, as the file has it, or what else it is about: taskset."""
    value: str = ""
    line: int | None = None
    file: str = ""
    """Another file that sets it; empty: the launch file itself."""
    where: str = ""
    """The container, service or stage."""
    unless: str = ""
    """The variable that replaces this default where it is set."""
    detail: str = ""
    """By its reason: another variable, the limit as written, a sentence of a search space."""
    other_line: int | None = None
    granted: float | None = None
    """CPUs or bytes."""
    beyond: str = ""
    """Of the CPUs or nodes those that are not allowed."""
    allowed: str = ""
    severity: Severity = Severity.NOTE


class Note(enum.StrEnum):
    """What the reader of a report should know of it."""

    OTHER_HOSTS = "other_hosts"
    """The guidelines were measured on hosts of another kind; detail: which."""
    IMAGE = "image"
    """What the target has is not known: CPUs, nodes, memory, instruction set, libraries."""
    CONTAINER = "container"
    """Libraries in a container are taken to be there."""


class LintReport(msgspec.Struct, frozen=True):
    """What a launch file came to."""

    findings: list[LintFinding]
    not_understood: list[NotUnderstood]
    n_settings: int
    """Tuning variables that were read."""
    frameworks: list[str]
    notes: dict[Note, str]

    @property
    def faults(self) -> list[LintFinding]:
        """What is wrong with it."""
        return [each for each in self.findings if each.severity is Severity.FAULT]


class Target(msgspec.Struct, frozen=True):
    """What the file is judged for, as far as it is not this host."""

    is_image: bool = False
    """It runs elsewhere: nothing of this host counts."""
    cpus: float | None = None
    memory_bytes: float | None = None


def lint(
    path: Path, request: Request, guidelines: Guidelines | None, target: Target, listen: Listener
) -> LintReport:
    """Hold a launch file against a target, for the frameworks of a request.

    Raises UsageError for a file that cannot be read or sets nothing, else as plan does.
    """
    file = read_launch_file(path)
    if target.is_image:
        for launched in file.launched:
            launched.scope = Scope.IMAGE
    if all(each.is_empty and not _misspelt(each) for each in file.launched):
        raise UsageError(
            f"{path} is no launch file: it sets no tuning variable, places no program and limits "
            "nothing; lint what starts your program"
        )
    host = probe()
    plans = plan(request, host, listen)
    notes = _notes(file, target, guidelines, host)
    findings: list[LintFinding] = []
    for launched in file.launched:
        judge = _Judge(launched, host, target, plans)
        own = judge.findings()
        if guidelines is not None:
            own += judge.by_rules(guidelines, of_model=request.model)
        findings += [_weighed(each, launched.name, notes) for each in dict.fromkeys(own)]
    order = list(Kind)
    findings.sort(key=lambda f: (f.where, f.line or math.inf, order.index(f.kind)))
    listed = [each for launched in file.launched for each in launched.not_understood]
    listed.sort(key=lambda each: (each.file, each.line))
    names = [a.name for each in file.launched for a in each.assignments]
    n_settings = sum(is_tuning_variable(name) for name in names)
    frameworks = [each.workload.framework for each in plans]
    return LintReport(findings, list(dict.fromkeys(listed)), n_settings, frameworks, notes)


def _weighed(finding: LintFinding, where: str, notes: Mapping[Note, str]) -> LintFinding:
    """Return a finding with its place and severity: what other hosts' guidelines say is a note."""
    is_advice = finding.kind is Kind.HURTS and Note.OTHER_HOSTS in notes
    is_fault = finding.kind in _FAULTS and not is_advice
    severity = Severity.FAULT if is_fault else Severity.NOTE
    return msgspec.structs.replace(finding, where=where, severity=severity)


def _notes(
    file: LaunchFile, target: Target, guidelines: Guidelines | None, host: Host
) -> dict[Note, str]:
    notes = {}
    scopes = {each.scope for each in file.launched if not each.is_empty}
    if Scope.IMAGE in scopes:
        notes[Note.IMAGE] = "" if target.cpus is None else f"{target.cpus:g}"
    if any(each.scope is Scope.CONTAINER and any(a.name == PRELOAD for a in each.assignments)
           for each in file.launched):  # fmt: skip
        notes[Note.CONTAINER] = ""
    if guidelines is not None and host_in_words(host.identity()) not in guidelines.hosts:
        notes[Note.OTHER_HOSTS] = "; ".join(guidelines.hosts)
    return notes


def described(host: Host, cpus: float, memory_bytes: float | None = None) -> Host:
    """Return a host with so many CPUs, each a core of one NUMA node, and all else as it is."""
    ids = tuple(range(max(1, math.ceil(cpus))))
    memory = int(memory_bytes or host.limits.memory_bytes)
    topology = Topology(tuple(Cpu(i, i, 0, 0, 0) for i in ids), (Node(0, ids, memory, (10,)),))
    limits = Limits(ids, cpus if cpus < len(ids) else None, memory, (0,))
    return msgspec.structs.replace(host, topology=topology, limits=limits)


def _misspelt(launched: Launched) -> list[tuple[Assignment, str]]:
    """Return the variables without a tuning one's prefix that seem slips of one: OPM_NUM_THREADS."""
    return [
        (each, meant)
        for each in launched.assignments
        if each.is_exported and not is_tuning_variable(each.name)
        if (meant := misspelt(each.name)) is not None
    ]


class _Judge:
    """Judges what one process would be started with."""

    def __init__(
        self, launched: Launched, host: Host, target: Target, plans: Sequence[Plan]
    ) -> None:
        self._launched = launched
        self._target = target
        self._is_elsewhere = launched.scope is Scope.IMAGE
        self._known_cpus = target.cpus is not None or not self._is_elsewhere
        self._preload = _Preload(launched, is_here=launched.scope is Scope.HOST)
        if target.cpus is not None:
            host = described(host, target.cpus, target.memory_bytes)
        elif self._is_elsewhere:
            host = described(host, _ENOUGH_CPUS, target.memory_bytes)
        self._host = msgspec.structs.replace(
            host, libraries=host.libraries | self._preload.libraries
        )
        every = {name: name for names in PRELOADED.values() for name in names}
        open_host = msgspec.structs.replace(self._host, libraries=every | self._host.libraries)
        self._plans = [(each, self._space(each, self._host), self._space(each, open_host))
                       for each in plans]  # fmt: skip

    @staticmethod
    def _space(plan: Plan, host: Host) -> Space:
        return resolve_space(plan.profile, host, plan.workload, plan.facts, Restrictions())

    def findings(self) -> list[LintFinding]:
        """Return what is wrong with it, or worth knowing, guidelines aside."""
        effects = self._in_all([self._effects(plan, space, wide)
                                for plan, space, wide in self._plans])  # fmt: skip
        dead = {each.name for each in effects if each.kind is Kind.DEAD}
        own = [*self._contradictions(), *self._beyond()]
        return [
            *(each for each in own if each.name not in dead),
            *self._preload.findings,
            *effects,
            *self._not_exported(),
            *(self._of(each, Kind.MISSPELT, Cause.MISSPELT, meant)
              for each, meant in _misspelt(self._launched)),
        ]  # fmt: skip

    def _environments(self) -> list[dict[str, Assignment]]:
        """Return the tuning variables of each command, as the last assignment leaves them.

        First of those that have none of their own.
        """
        lasting = {each.name: each for each in self._launched.assignments
                   if not each.command and each.is_exported and is_tuning_variable(each.name)}  # fmt: skip
        of_command: dict[int, dict[str, Assignment]] = {}
        for each in self._launched.assignments:
            if each.command and is_tuning_variable(each.name):
                of_command.setdefault(each.command, {})[each.name] = each
        return [lasting, *(lasting | own for own in of_command.values())]

    def _known(self, environment: Mapping[str, Assignment]) -> dict[str, str]:
        """Return the values that are known and may be written down."""
        known = {n: a.value for n, a in environment.items() if a.gap is None and n != PRELOAD}
        preload = self._preload.known(environment.get(PRELOAD))
        return stated(known | ({PRELOAD: preload} if preload else {}))

    def _of(
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

    def _effects(self, plan: Plan, space: Space, wide: Space) -> list[LintFinding]:
        """Return what has no effect in a framework, or cannot be, by the rules of its space.

        What has an effect in one command has one, whatever the others make of it.
        """
        shared, *of_commands = self._environments()
        others = [self._judged(each, plan, space, wide) for each in of_commands]
        found = [each for each in self._judged(shared, plan, space, wide)
                 if all(each in other for other in others)]  # fmt: skip
        found += [each for other in others for each in other if each.name not in shared]
        return list(dict.fromkeys(found))

    def _judged(
        self, environment: Mapping[str, Assignment], plan: Plan, space: Space, wide: Space
    ) -> list[LintFinding]:
        known = self._known(environment)
        remarks = effects(known, self._host, plan.workload, space)
        is_open = PRELOAD in environment and self._preload.is_open
        possible: list[list[Remark]] = []
        if is_open:
            possible = [
                effects(known, self._host, plan.workload, wide, {knob: library})
                for knob, libraries in PRELOADED.items()
                for library in libraries
            ]
        found = []
        for remark in remarks:
            name = remark.knob.removeprefix("env.")
            if is_of_no_speed(name) and remark.cause is not Cause.MISSPELT:
                continue
            is_settled = all(any(_is_same(remark, other) for other in each) for each in possible)
            assignment = environment[name if name in environment else PRELOAD]
            found.append(self._finding(remark, assignment, is_settled=is_settled))
        return found

    def _finding(
        self, remark: Remark, assignment: Assignment, *, is_settled: bool
    ) -> LintFinding:
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
            winner = next((each for environment in self._environments()
                           if (each := environment.get(detail)) is not None), None)  # fmt: skip
            other_line = winner.line if winner else None
            detail = f"{detail}={winner.value}" if winner else detail
        if remark.cause is Cause.NOT_HERE and self._is_elsewhere:
            kind = Kind.UNKNOWN
        if not is_settled and kind is Kind.DEAD:
            kind, why = Kind.DEPENDS, Why.PRELOAD
            return self._of(assignment, kind, why, self._preload.shown, value)
        found = self._of(assignment, kind, remark.cause, detail, value)
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
            finding = self._of(each, Kind.CONTRADICTION, Why.SET_TWICE)
            found.append(msgspec.structs.replace(finding, other_line=before.line))
        for environment in self._environments():
            for one, other in _RIVALS:
                if one in environment and other in environment and environment[one].value:
                    found.append(self._of(environment[other], Kind.CONTRADICTION, Why.RIVALS, one))
        return found

    def _not_exported(self) -> Iterable[LintFinding]:
        """Yield what a shell sets and keeps to itself."""
        last = {each.name: each for each in self._launched.assignments
                if not each.is_exported and is_tuning_variable(each.name)}  # fmt: skip
        return (self._of(each, Kind.DEAD, Why.NOT_EXPORTED) for each in last.values())

    # ------------------------------------------------------------------ what is granted

    def _beyond(self) -> list[LintFinding]:
        """Return threads, workers, CPUs, nodes and memory that the target, or the file, lacks."""
        return [*self._threads(), *self._places(), *self._memory()]

    def _granted(self) -> tuple[float, str]:
        """Return how many CPUs the process has, and what says so; nothing of it may be known."""
        grants: list[tuple[float, str]] = []
        if self._known_cpus:
            by = "--cpus" if self._target.cpus is not None else ""
            grants.append((float(self._host.usable_cpus), by))
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
        for environment in self._environments():
            for name, each in environment.items():
                count = each.value.partition(",")[0]
                is_number = each.gap is None and count.isdecimal()
                if _THREADS.fullmatch(name) and is_number and float(count) > granted:
                    found.append(self._of(each, Kind.BEYOND, Why.THREADS, by))
        for limit in self._launched.workers:
            if limit.amount > granted:
                found.append(LintFinding(Kind.BEYOND, Why.WORKERS, limit.by, "", limit.line,
                                         detail=by))  # fmt: skip
        return (msgspec.structs.replace(each, granted=granted) for each in found)

    def _places(self) -> Iterable[LintFinding]:
        if not self._known_cpus:
            return
        allowed = {cpu.id for cpu in self._host.cpus}
        nodes = {*self._host.nodes, *self._host.memory_nodes}
        lists = [(each.text, LintFinding(Kind.BEYOND, Why.CPUS, each.by, each.text, each.line))
                 for each in self._launched.placements if not each.is_nodes]  # fmt: skip
        for environment in self._environments():
            for name, each in environment.items():
                lists += [(text, self._of(each, Kind.BEYOND, Why.CPUS))
                          for text in _cpu_lists(name, each.value)]  # fmt: skip
        for text, finding in lists:
            outside = sorted({*parse_cpu_list(text)} - allowed)
            if outside:
                yield _with_lists(finding, outside, allowed)
        for place in self._launched.placements:
            missing = sorted({*parse_cpu_list(place.text)} - nodes) if place.is_nodes else []
            if missing and self._target.cpus is None:
                finding = LintFinding(Kind.BEYOND, Why.NODES, place.by, place.text, place.line)
                yield _with_lists(finding, missing, nodes)

    def _memory(self) -> Iterable[LintFinding]:
        target = self._target.memory_bytes
        is_known = target is not None or not self._is_elsewhere
        here = target if target is not None else float(self._host.limits.memory_bytes)
        limits = self._launched.memory_limits
        for limit in limits if target is not None else []:
            if limit.amount > here:
                yield LintFinding(Kind.BEYOND, Why.MEMORY, limit.by, "", limit.line,
                                  granted=here)  # fmt: skip
        most = min([*(each.amount for each in limits), *([here] if is_known else [])],
                   default=math.inf)  # fmt: skip
        for environment in self._environments():
            for name, each in environment.items():
                unit = _BYTES.get(name)
                is_number = each.gap is None and each.value.isdecimal() and len(each.value) < 19
                if unit and is_number and int(each.value) * unit > most:
                    finding = self._of(each, Kind.BEYOND, Why.MEMORY)
                    yield msgspec.structs.replace(finding, granted=most)

    # ------------------------------------------------------------------ guidelines

    def by_rules(self, guidelines: Guidelines, *, of_model: str) -> list[LintFinding]:
        """Return which guidelines about launch settings the file misses, or acts against.

        By the model's own facts where one is named, else by what holds of every kind. Of a target
        whose CPUs are not known: nothing about how cores are shared out.
        """
        found: list[LintFinding] = []
        environment = self._environments()[0]
        for plan, space, _ in self._plans:
            framework = plan.workload.framework
            facts = facts_of(plan.workload.card, plan.facts, self._host.identity())
            known = known_of(guidelines, framework, facts)
            factors = Factors(plan.profile, self._host, plan.workload, plan.facts, space)
            here = [each for each in factors.here if self._known_cpus or not each.of_cores]
            made = as_run(self._known(environment), self._host, plan.workload, space, [])
            own = Configuration() if made is None else made.configuration
            for name in settable(known, here):
                meant = factors.together([name]).configuration
                rule = known.rules.get(name)
                if rule is None or not _can_be_in_a_file(meant):
                    continue
                if rule.condition is None or of_model != PROBE_MODEL:
                    found += self._held_against(rule, meant, own, framework, environment, space)
        return found

    def _held_against(
        self,
        rule: Rule,
        meant: Configuration,
        own: Configuration,
        framework: str,
        environment: Mapping[str, Assignment],
        space: Space,
    ) -> list[LintFinding]:
        set_: Mapping[str, object] = own.as_dict()
        wanted = meant.as_dict()
        told = f"{framework}: {sentence(rule)}"
        is_open = self._preload.is_open and wanted.keys() & PRELOADED.keys()
        if rule.advice == "set" and not is_open and not any(knob in set_ for knob in wanted):
            return [LintFinding(Kind.MISSED, Why.GUIDELINE, meant.label(), detail=told)]
        if rule.advice == "leave" and all(set_.get(knob) == v for knob, v in wanted.items()):
            names = {each.alias_of: each.id for each in space.knobs if each.alias_of}
            for knob in wanted:
                written = (names.get(knob, knob), knob, f"env.{PRELOAD}")
                own_names = (each.removeprefix("env.") for each in written)
                each = next((environment[n] for n in own_names if n in environment), None)
                if each is not None:
                    return [self._of(each, Kind.HURTS, Why.GUIDELINE, told)]
            return [LintFinding(Kind.HURTS, Why.GUIDELINE, meant.label(), detail=told)]
        return []


def _with_lists(
    finding: LintFinding, beyond: Iterable[int], allowed: Iterable[int]
) -> LintFinding:
    return msgspec.structs.replace(
        finding,
        beyond=format_cpu_list(tuple(sorted(beyond))),
        allowed=format_cpu_list(tuple(sorted(allowed))),
    )


def _is_same(one: Remark, other: Remark) -> bool:
    """Tell whether two remarks blame one variable alike, whatever the words."""
    return one.knob == other.knob and (
        one.cause is other.cause or {one.cause, other.cause} <= _PRELOADABLE
    )


_PRELOADABLE = {Cause.NEEDS_OPENMP, Cause.INEFFECTIVE}


class _Preload:
    """The libraries that a file preloads, as far as they are known."""

    def __init__(self, launched: Launched, *, is_here: bool) -> None:
        """is_here: the files must be on this host; else they are taken to be where it says."""
        self._launched = launched
        self.libraries: dict[str, str] = {}
        """Paths of the known libraries that are loaded, by name."""
        self.findings: list[LintFinding] = []
        self.is_open = False
        """Whether something may be loaded that is not known, or is not here."""
        self.shown = PRELOAD
        self._absent: set[str] = set()
        for each in launched.assignments:
            if each.name == PRELOAD and each.is_exported:
                self._read(each, is_here=is_here)

    def _read(self, each: Assignment, *, is_here: bool) -> None:
        if not each.is_certain or (each.gap is not None and each.gap is not Gap.NOT_SET_HERE):
            self.is_open, self.shown = True, f"{PRELOAD} in line {each.line}"
            return
        for path in _parts(each.value):
            if "$" not in path and is_here and not _is_there(path):
                self._absent.add(path)
                why = Cause.NO_FILE if "/" in path else Why.NO_LIBRARY
                finding = LintFinding(Kind.UNUSABLE, why, PRELOAD, path, each.line, each.file,
                                      unless=each.unless)  # fmt: skip
                if all(other.value != path for other in self.findings):
                    self.findings.append(finding)
                self.is_open, self.shown = True, f"{PRELOAD}={path}, which is not here"
            elif name := library_named(path):
                self.libraries.setdefault(name, path)
            elif "$" in path:
                self.is_open, self.shown = True, f"{PRELOAD}={path}"

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
    return any((folder / path).exists() for folder in library_folders())


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


def _can_be_in_a_file(meant: Configuration) -> bool:
    """Tell whether a launch file shows that something is set.

    Not how often a program is started, and what the program itself does.
    """
    is_set_outside = allowed_in(WinnerClass.LAUNCH_ONLY, meant)
    return is_set_outside and meant.as_dict().keys().isdisjoint(PLACING)
