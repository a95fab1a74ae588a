"""A launch file held against a target and the guidelines: what of it is ineffective, or missing.

Nothing is executed of it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tuner.app.plan import plan
from tuner.app.request import Request
from tuner.deploy.launch_file import read_launch_file
from tuner.deploy.launch_judge import LaunchJudge, Target, misspelt_in
from tuner.deploy.launched import Assignment, LaunchFile, NotUnderstood, Scope
from tuner.deploy.lint_finding import Kind, LintFinding, Severity, Why
from tuner.errors import UsageError
from tuner.guidelines.facts import facts_of, host_in_words
from tuner.guidelines.predict import known_of, settable
from tuner.host.environment import is_tuning_variable
from tuner.host.identity import Host, probe
from tuner.output.guidelines import sentence
from tuner.record.configuration import Configuration
from tuner.record.events import Listener
from tuner.record.guidelines import Guidelines, Rule
from tuner.record.winner_class import WinnerClass
from tuner.space.as_run import as_run
from tuner.space.catalogue import allowed_in
from tuner.space.design import Factors
from tuner.space.knobs_of.launch import PRELOADED
from tuner.space.launching import PRELOAD
from tuner.space.placement import PLACING
from tuner.space.space import Space

PROBE_MODEL = "matmul"
"""Built if no model is named: shows which variables a framework reads."""
_FAULTS = (Kind.CONTRADICTION, Kind.UNUSABLE, Kind.BEYOND, Kind.MISSPELT, Kind.DEAD, Kind.HURTS)


class Note(enum.StrEnum):
    """Notes for the reader of a report."""

    OTHER_HOSTS = "other_hosts"
    """The guidelines were measured on hosts of another kind; detail: which."""
    IMAGE = "image"
    """Whether the target's CPUs, nodes, memory, instruction set and libraries are unknown."""
    CONTAINER = "container"
    """Libraries in a container are taken to be there."""


class LintReport(msgspec.Struct, frozen=True):
    """The result of checking a launch file."""

    findings: list[LintFinding]
    not_understood: list[NotUnderstood]
    n_settings: int
    """Tuning variables that were read."""
    frameworks: list[str]
    notes: dict[Note, str]

    @property
    def faults(self) -> list[LintFinding]:
        """The faults in it."""
        return [each for each in self.findings if each.severity is Severity.FAULT]


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
    if all(each.is_empty and not misspelt_in(each) for each in file.launched):
        raise UsageError(
            f"{path} is no launch file: it sets no tuning variable, places no program and limits "
            "nothing; lint what starts your program"
        )
    host = probe()
    plans = plan(request, host, listen)
    notes = _notes(file, target, guidelines, host)
    findings: list[LintFinding] = []
    for launched in (each for each in file.launched if not each.is_empty or misspelt_in(each)):
        subjects = [(each.profile, each.workload, each.facts) for each in plans]
        judge = LaunchJudge(launched, host, target, subjects)
        own = judge.findings()
        if guidelines is not None:
            own += _by_rules(judge, guidelines, of_model=request.model)
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


def _can_be_in_a_file(meant: Configuration) -> bool:
    """Tell whether a launch file can show that something is set.

    It cannot show how often a program is started, nor what the program itself does.
    """
    is_set_outside = allowed_in(WinnerClass.NO_CODE, meant)
    return is_set_outside and meant.as_dict().keys().isdisjoint(PLACING)


def _by_rules(judge: LaunchJudge, guidelines: Guidelines, *, of_model: str) -> list[LintFinding]:
    """Return the guidelines about launch settings that the file misses or violates.

    For the model's own facts if one is named, otherwise those that hold for every kind. If the
    target's CPUs are unknown, none about how cores are shared.
    """
    found: list[LintFinding] = []
    environment = judge.environments()[0]
    for each in judge.subjects:
        framework = each.workload.framework
        facts = facts_of(each.workload.card, each.facts, judge.host.identity())
        known = known_of(guidelines, framework, facts)
        factors = Factors(each.profile, judge.host, each.workload, each.facts, each.space)
        here = [factor for factor in factors.here if judge.knows_cpus or not factor.of_cores]
        made = as_run(judge.known(environment), judge.host, each.workload, each.space, [])
        own = Configuration() if made is None else made.configuration
        for name in settable(known, here):
            meant = factors.together([name]).configuration
            rule = known.rules.get(name)
            if rule is None or not _can_be_in_a_file(meant):
                continue
            if rule.condition is None or of_model != PROBE_MODEL:
                found += _held_against(rule, meant, own, framework, environment, each.space, judge)
    return found


def _held_against(
    rule: Rule,
    meant: Configuration,
    own: Configuration,
    framework: str,
    environment: Mapping[str, Assignment],
    space: Space,
    judge: LaunchJudge,
) -> list[LintFinding]:
    set_: Mapping[str, object] = own.as_dict()
    wanted = meant.as_dict()
    detail = f"{framework}: {sentence(rule)}"
    is_open = judge.may_preload and wanted.keys() & PRELOADED.keys()
    if rule.advice == "set" and not is_open and not any(knob in set_ for knob in wanted):
        return [LintFinding(Kind.MISSED, Why.GUIDELINE, meant.label(), detail=detail)]
    if rule.advice == "leave" and all(set_.get(knob) == v for knob, v in wanted.items()):
        names = {each.alias_of: each.id for each in space.knobs if each.alias_of}
        for knob in wanted:
            written = (names.get(knob, knob), knob, f"env.{PRELOAD}")
            own_names = (each.removeprefix("env.") for each in written)
            each = next((environment[n] for n in own_names if n in environment), None)
            if each is not None:
                return [judge.of(each, Kind.HURTS, Why.GUIDELINE, detail)]
        return [LintFinding(Kind.HURTS, Why.GUIDELINE, meant.label(), detail=detail)]
    return []
