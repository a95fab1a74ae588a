"""A launch file held against this host and the guidelines: what of it is dead, or missing.

Nothing is executed of it. What its settings come to is asked of the same rules by which a study
judges the environment that it is started in (space/as_run.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tuner.deploy.launch_file import Launched, LaunchFile, read_launch_file
from tuner.host.environment import is_tuning_variable
from tuner.host.identity import Host, probe
from tuner.host.secrets import stated
from tuner.host.topology import format_cpu_list, parse_cpu_list
from tuner.insight.facts import facts_of
from tuner.insight.predict import applicable, best_supported
from tuner.output.guidelines import sentence
from tuner.plan import Plan, plan
from tuner.recommending import in_words
from tuner.record.configuration import Configuration
from tuner.record.events import Listener
from tuner.record.guidelines import Guidelines, Rule
from tuner.record.journal import WinnerClass
from tuner.request import Request
from tuner.space.as_run import as_run
from tuner.space.catalogue import allowed_in
from tuner.space.design import Factors

PROBE_MODEL = "matmul"
"""Built where no model is named: which variables a framework reads is asked of it."""
_THREADS = re.compile(
    r"(OMP|MKL|OPENBLAS)_NUM_THREADS|OMP_THREAD_LIMIT|TF_NUM_(INTRA|INTER)OP_THREADS"
)
_RIVALS = (
    (
        "GOMP_CPU_AFFINITY",
        "KMP_AFFINITY",
        "each is read by another OpenMP runtime, and one of them is loaded",
    ),
    (
        "GOMP_CPU_AFFINITY",
        "OMP_PLACES",
        "libgomp takes OMP_PLACES in its place where OMP_PROC_BIND is set",
    ),
)
Kind = Literal["contradiction", "dead", "unusable", "beyond", "hurts", "missed", "unknown"]
WORDS: dict[Kind, str] = {
    "contradiction": "contradicts itself",
    "dead": "has no effect here",
    "unusable": "cannot be here",
    "beyond": "more than there is here",
    "hurts": "a guideline advises against it",
    "missed": "a guideline is missed",
    "unknown": "not judged",
}
"""What a finding is, the worst first."""


class Slip(msgspec.Struct, frozen=True):
    """A finding about a launch file."""

    kind: Kind
    line: int | None
    what: str
    evidence: str
    container: str = ""


class Linted(msgspec.Struct, frozen=True):
    """What a launch file came to."""

    slips: list[Slip]
    n_settings: int
    """Tuning variables that were read."""
    not_understood: list[tuple[int, str]]
    frameworks: list[str]
    notes: list[str]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong with it; what a guideline would add is no fault."""
        return all(slip.kind in ("missed", "unknown") for slip in self.slips)


def lint(path: Path, request: Request, guidelines: Guidelines | None, listen: Listener) -> Linted:
    """Hold a launch file against this host, for the frameworks of a request.

    Raises UsageError for a file that cannot be read, else as plan does.
    """
    file = read_launch_file(path)
    host = probe()
    plans = plan(request, host, listen)
    slips: list[Slip] = []
    for launched in file.launched:
        own = _contradictions(launched) + _beyond(launched, host)
        own += _in_all([_without_effect(launched, each, host) for each in plans], plans)
        if guidelines is not None:
            own += _by_rules(launched, plans, host, guidelines, of_model=request.model)
        slips += [msgspec.structs.replace(slip, container=launched.name) for slip in own]
    order = list(WORDS)
    slips.sort(key=lambda slip: (slip.container, order.index(slip.kind), slip.line or 0))
    names = [each.workload.framework for each in plans]
    return Linted(slips, _n_settings(file), file.not_understood, names, _notes(guidelines, host))


def _n_settings(file: LaunchFile) -> int:
    names = [a.name for each in file.launched for a in each.assignments]
    return sum(is_tuning_variable(name) for name in names)


def _notes(guidelines: Guidelines | None, host: Host) -> list[str]:
    if guidelines is None or in_words(host) in guidelines.hosts:
        return []
    return [f"the guidelines were measured on {'; '.join(guidelines.hosts)}, not on such a host"]


def _environment(launched: Launched) -> dict[str, str]:
    """Return the tuning variables, as the last assignment leaves them."""
    return stated({each.name: each.value for each in launched.assignments})


def _line_of(launched: Launched, name: str) -> int | None:
    lines = [each.line for each in launched.assignments if each.name == name]
    return lines[-1] if lines else None


def _contradictions(launched: Launched) -> list[Slip]:
    found = []
    lasting = [each for each in launched.assignments if each.is_lasting]
    for i, each in enumerate(lasting):
        before = next((e for e in reversed(lasting[:i]) if e.name == each.name), None)
        if before is not None and before.value != each.value and is_tuning_variable(each.name):
            told = f"line {before.line} sets {before.value or 'nothing'}, which this replaces"
            found.append(Slip("contradiction", each.line, f"{each.name}={each.value}", told))
    environment = _environment(launched)
    for one, other, why in _RIVALS:
        if environment.get(one) and environment.get(other):
            line = _line_of(launched, other)
            found.append(Slip("contradiction", line, f"{one} and {other}", why))
    return found


def _beyond(launched: Launched, host: Host) -> list[Slip]:
    """Return threads and CPUs that this host, or the manifest itself, does not grant."""
    found = []
    granted, told = float(host.usable_cpus), f"{host.usable_cpus} CPUs may be used here"
    if launched.cpu_limit is not None and launched.cpu_limit < granted:
        granted, told = launched.cpu_limit, f"its own limit is {launched.cpu_limit:g} CPUs"
    for name, value in _environment(launched).items():
        count = value.partition(",")[0]
        if _THREADS.fullmatch(name) and count.isdecimal() and int(count) > granted:
            line = _line_of(launched, name)
            found.append(
                Slip("beyond", line, f"{name}={value}", f"{told}: threads wait for each other")
            )
    allowed = {cpu.id for cpu in host.cpus}
    lists = [(value, line, "the program is bound to CPUs") for value, line in launched.cpus]
    for name in ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES"):
        value = _environment(launched).get(name, "")
        lists += [(text, _line_of(launched, name) or 0, name) for text in _cpu_lists(name, value)]
    for text, line, what in lists:
        outside = [cpu for cpu in parse_cpu_list(text) if cpu not in allowed]
        if outside:
            here = format_cpu_list(tuple(sorted(allowed)))
            shown = format_cpu_list(tuple(outside))
            found.append(
                Slip("beyond", line or None, f"{what} {shown}", f"allowed here are {here}")
            )
    return found


def _cpu_lists(name: str, value: str) -> Iterable[str]:
    """Yield the lists of CPUs in a variable's value, as the kernel writes them."""
    if name == "GOMP_CPU_AFFINITY":
        parts = re.split(r"[ ,]+", value.strip())
        yield from (p.partition(":")[0] for p in parts if re.fullmatch(r"\d+(-\d+(:\d+)?)?", p))
    elif name == "KMP_AFFINITY":
        inside = re.search(r"proclist=\[([\d,-]+)\]", value)
        if inside:
            yield inside[1].strip(",")
    else:
        yield from re.findall(r"\{(\d+)", value)


def _without_effect(launched: Launched, plan: Plan, host: Host) -> list[Slip]:
    """Return what has no effect in a framework, or cannot be, by the rules of its space."""
    environment = _environment(launched)
    found: list[Slip] = []
    while environment:
        made = as_run(environment, host, plan.workload, plan.space, plan.baselines)
        assert made is not None
        if made.is_applicable:
            found += [_slip("dead", launched, text) for text in made.dead_settings
                      if ": left out, for " not in text]  # fmt: skip
            found += [_slip("unknown", launched, text) for text in made.dead_settings
                      if ": left out, for " in text]  # fmt: skip
            found += [_slip("unknown", launched, text) for text in made.substituted]
            break
        slip = _slip("unusable", launched, made.reason)
        found.append(slip)
        name = _name_in(slip.what)
        if name not in environment:  # several together
            break
        del environment[name]
    return found


def _slip(kind: Kind, launched: Launched, text: str) -> Slip:
    """Turn "env.NAME=VALUE: why" into a finding."""
    what, _, why = text.removeprefix("env.").partition(": ")
    return Slip(kind, _line_of(launched, _name_in(what)), what, why.removeprefix("left out, for "))


def _name_in(what: str) -> str:
    return what.removeprefix("env.").partition("=")[0]


def _in_all(found: Sequence[list[Slip]], plans: Sequence[Plan]) -> list[Slip]:
    """Keep what holds for every framework: which one the file starts is not known."""
    first, *others = found
    return [slip for slip in first
            if all(any((o.kind, o.what) == (slip.kind, slip.what) for o in each)
                   for each in others)]  # fmt: skip


def _by_rules(
    launched: Launched, plans: Sequence[Plan], host: Host, guidelines: Guidelines, *, of_model: str
) -> list[Slip]:
    """Return which guidelines about launch settings the file misses, or acts against.

    By the model's own facts where one is named, else by what holds of every kind.
    """
    found: list[Slip] = []
    for each in plans:
        framework = each.workload.framework
        facts = facts_of(each.workload.card, each.facts)
        rules = applicable(guidelines.rules, framework, facts)
        rules = best_supported(rules) if of_model == PROBE_MODEL else rules
        factors = Factors(each.profile, host, each.workload, each.facts, each.space)
        made = as_run(_environment(launched), host, each.workload, each.space, each.baselines)
        own = Configuration() if made is None else made.configuration
        for name in (entry.name for entry in factors.here):
            meant = factors.together([name]).configuration
            if name in rules and allowed_in(WinnerClass.LAUNCH_ONLY, meant):
                found += _held_against(rules[name], meant, own, framework)
    return found


def _held_against(
    rule: Rule, meant: Configuration, own: Configuration, framework: str
) -> list[Slip]:
    set_: Mapping[str, object] = own.as_dict()
    wanted = meant.as_dict()
    told = f"{framework}: {sentence(rule)}"
    if rule.advice == "set" and not any(knob in set_ for knob in wanted):
        return [Slip("missed", None, meant.label(), told)]
    if rule.advice == "leave" and all(set_.get(knob) == value for knob, value in wanted.items()):
        return [Slip("hurts", None, meant.label(), told)]
    return []
