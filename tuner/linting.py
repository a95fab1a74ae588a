"""A launch file held against this host and the guidelines: what of it is dead, or missing.

Nothing is executed of it. What its settings come to is asked of the same rules by which a study
judges the environment that it is started in (space/as_run.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tuner.deploy.launch_file import CPU_LIST, read_launch_file
from tuner.deploy.launched import Launched, LaunchFile
from tuner.host.environment import is_of_no_speed, is_tuning_variable
from tuner.host.identity import Host, probe
from tuner.host.libraries import library_folders
from tuner.host.secrets import stated
from tuner.host.topology import format_cpu_list, parse_cpu_list
from tuner.insight.facts import facts_of, host_in_words
from tuner.insight.predict import known_of, settable
from tuner.output.guidelines import sentence
from tuner.plan import Plan, plan
from tuner.record.configuration import Configuration
from tuner.record.events import Listener
from tuner.record.guidelines import Guidelines, Rule
from tuner.record.journal import WinnerClass
from tuner.request import Request
from tuner.space.as_run import LEFT_OUT, NO_FILE, NO_NUMBER, as_run
from tuner.space.catalogue import allowed_in
from tuner.space.design import Factors
from tuner.space.launching import PRELOAD
from tuner.space.placement import PLACING
from tuner.space.space import Space

PROBE_MODEL = "matmul"
"""Built where no model is named: which variables a framework reads is asked of it."""
_THREADS = re.compile(r"(OMP|MKL|OPENBLAS)_NUM_THREADS|TF_NUM_(INTRA|INTER)OP_THREADS")
_RIVALS = (
    ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "both bind threads, and one runtime reads one of them"),
    ("GOMP_CPU_AFFINITY", "OMP_PLACES", "both bind threads, and one of them wins"),
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
    def faults(self) -> list[Slip]:
        """What is wrong with it.

        What a guideline would add is no fault, nor what guidelines of other hosts advise against.
        """
        harmless = {"missed", "unknown", *(["hurts"] if self.notes else [])}
        return [slip for slip in self.slips if slip.kind not in harmless]


def lint(path: Path, request: Request, guidelines: Guidelines | None, listen: Listener) -> Linted:
    """Hold a launch file against this host, for the frameworks of a request.

    Raises UsageError for a file that cannot be read, else as plan does.
    """
    file = read_launch_file(path)
    host = probe()
    plans = plan(request, host, listen)
    slips: list[Slip] = []
    for launched in file.launched:
        dead = _in_all([_without_effect(launched, each, host) for each in plans])
        idle = {_name_in(slip.what) for slip in dead if slip.kind == "dead"}
        own = [slip for slip in _contradictions(launched) + _beyond(launched, host)
               if _name_in(slip.what.partition(" ")[0]) not in idle]  # fmt: skip
        missing = _not_preloaded(launched)
        own += missing + [s for s in dead if s.what not in {each.what for each in missing}]
        own += _not_exported(launched)
        if guidelines is not None:
            own += _by_rules(launched, plans, host, guidelines, of_model=request.model)
        slips += [msgspec.structs.replace(slip, container=launched.name) for slip in own]
    order = list(WORDS)
    slips.sort(key=lambda s: (s.container, s.line or math.inf, order.index(s.kind)))
    names = [each.workload.framework for each in plans]
    return Linted(slips, _n_settings(file), file.not_understood, names, _notes(guidelines, host))


def _n_settings(file: LaunchFile) -> int:
    names = [a.name for each in file.launched for a in each.assignments]
    return sum(is_tuning_variable(name) for name in names)


def _notes(guidelines: Guidelines | None, host: Host) -> list[str]:
    if guidelines is None or host_in_words(host.identity()) in guidelines.hosts:
        return []
    return [f"the guidelines were measured on {'; '.join(guidelines.hosts)}, not on such a host"]


def _environments(launched: Launched) -> list[dict[str, str]]:
    """Return the tuning variables of each command, as the last assignment leaves them.

    First of those that have none of their own.
    """
    lasting = {each.name: each.value for each in launched.assignments
               if each.is_lasting and each.is_exported}  # fmt: skip
    of_command: dict[int, dict[str, str]] = {}
    for each in launched.assignments:
        if not each.is_lasting:
            of_command.setdefault(each.line, {})[each.name] = each.value
    return [stated(lasting), *(stated(lasting | own) for own in of_command.values())]


def _line_of(launched: Launched, name: str, value: str | None = None) -> int | None:
    """Return the last line that sets a variable, to a value if one sets it so."""
    own = [each for each in launched.assignments if each.name == name]
    lines = [each.line for each in own if each.value == value] or [each.line for each in own]
    return lines[-1] if lines else None


def _contradictions(launched: Launched) -> list[Slip]:
    found = []
    lasting = [each for each in launched.assignments
               if each.is_lasting and each.is_certain and each.is_exported]  # fmt: skip
    for i, each in enumerate(lasting):
        before = next((e for e in reversed(lasting[:i]) if e.name == each.name), None)
        if before is not None and before.value != each.value and is_tuning_variable(each.name):
            told = f"line {before.line} sets it otherwise, which this replaces"
            value = stated({each.name: each.value}).get(each.name, "")
            found.append(Slip("contradiction", each.line, f"{each.name}={value}", told))
    for environment in _environments(launched):
        for one, other, why in _RIVALS:
            if environment.get(one) and environment.get(other):
                line = _line_of(launched, other)
                found.append(Slip("contradiction", line, f"{one} and {other}", why))
    return list(dict.fromkeys(found))


def _not_exported(launched: Launched) -> list[Slip]:
    """Return what a shell sets and keeps to itself."""
    last = {each.name: each for each in launched.assignments if not each.is_exported}
    why = "it is not exported: programs see it only if the environment holds it already"
    return [
        Slip("dead", each.line, f"{name}={stated({name: each.value}).get(name, '')}", why)
        for name, each in last.items()
        if is_tuning_variable(name)
    ]


def _beyond(launched: Launched, host: Host) -> list[Slip]:
    """Return threads and CPUs that this host, or the manifest itself, does not grant."""
    found = []
    granted, told = float(host.usable_cpus), f"{host.usable_cpus} CPUs may be used here"
    if launched.cpu_limit is not None and launched.cpu_limit < granted:
        granted, told = launched.cpu_limit, f"its own limit is {launched.cpu_limit:g} CPUs"
    allowed = {cpu.id for cpu in host.cpus}
    lists = [(value, line, "the program is bound to CPUs") for value, line in launched.cpus]
    for environment in _environments(launched):
        for name, value in environment.items():
            line, count = _line_of(launched, name, value), value.partition(",")[0]
            if _THREADS.fullmatch(name) and count.isdecimal() and float(count) > granted:
                why = f"{told}: threads wait for each other"
                found.append(Slip("beyond", line, f"{name}={value}", why))
            lists += [(text, line or 0, name) for text in _cpu_lists(name, value)]
    for text, line, what in lists:
        outside = [cpu for cpu in parse_cpu_list(text) if cpu not in allowed]
        if outside:
            here = format_cpu_list(tuple(sorted(allowed)))
            why = f"{format_cpu_list(tuple(outside))} are not allowed here, {here} are"
            shown = format_cpu_list(tuple(parse_cpu_list(text)))
            found.append(Slip("beyond", line or None, f"{what} {shown}", why))
    return list(dict.fromkeys(found))


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


def _without_effect(launched: Launched, plan: Plan, host: Host) -> list[Slip]:
    """Return what has no effect in a framework, or cannot be, by the rules of its space.

    What has an effect in one command has one, whatever the others make of it.
    """
    shared, *of_commands = _environments(launched)
    others = [_judged(launched, environment, plan, host) for environment in of_commands]
    found = [slip for slip in _judged(launched, shared, plan, host)
             if all(slip in other for other in others)]  # fmt: skip
    found += [slip for other in others for slip in other if _name_in(slip.what) not in shared]
    return list(dict.fromkeys(found))


def _judged(
    launched: Launched, environment: Mapping[str, str], plan: Plan, host: Host
) -> list[Slip]:
    left = dict(environment)
    found: list[Slip] = []
    while left:
        made = as_run(left, host, plan.workload, plan.space, plan.baselines)
        assert made is not None
        if made.is_applicable:
            found += [_slip("dead", launched, text) for text in made.dead_settings]
            found += [_slip("unknown", launched, text) for text in made.substituted]
            return [slip for slip in found if not is_of_no_speed(_name_in(slip.what))]
        found.append(_slip("unusable", launched, _as_written(launched, made.reason, plan.space)))
        name = _name_in(found[-1].what)
        if name not in left:  # several together
            break
        del left[name]
    return found


def _slip(kind: Kind, launched: Launched, text: str) -> Slip:
    """Turn "env.NAME=VALUE: why" into a finding; what is not measured is no fault."""
    what, _, why = text.removeprefix("env.").partition(": ")
    if NO_NUMBER in what:
        what, why = what.partition(NO_NUMBER)[0], "it is no number above 0"
        kind = kind if _THREADS.fullmatch(_name_in(what)) else "unknown"
    name, _, value = what.partition("=")
    if why.startswith(LEFT_OUT):
        kind = "unknown"
    elif name == PRELOAD and why == NO_FILE:
        kind = "unusable"
    line = _line_of(launched, _name_in(what), value)
    return Slip(kind, line, what, why.removeprefix(LEFT_OUT))


def _as_written(launched: Launched, reason: str, space: Space) -> str:
    """Return a reason with the variable that the file sets, where a space names its twin."""
    knob, _, rest = reason.partition("=")
    twins = {knob, *(k.id for k in space.by_id.values() if k.alias_of == knob)}
    value = rest.partition(NO_NUMBER)[0]
    names = [f"env.{each.name}" for each in launched.assignments if each.value == value]
    return f"{next((name for name in names if name in twins), knob)}={rest}" if rest else reason


def _not_preloaded(launched: Launched) -> list[Slip]:
    """Return the libraries without a path that the dynamic linker finds in none of its folders."""
    found = []
    for environment in _environments(launched):
        for name in re.split(r"[:\s]+", environment.get(PRELOAD, "")):
            is_bare = name and "/" not in name and "$" not in name
            if is_bare and not any((folder / name).exists() for folder in library_folders()):
                line = _line_of(launched, PRELOAD)
                why = "no folder of libraries holds a file of that name"
                found.append(Slip("unusable", line, f"{PRELOAD}={name}", why))
    return list(dict.fromkeys(found))


def _name_in(what: str) -> str:
    return what.removeprefix("env.").partition("=")[0]


def _in_all(found: Sequence[list[Slip]]) -> list[Slip]:
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
        facts = facts_of(each.workload.card, each.facts, host.identity())
        known = known_of(guidelines, framework, facts)
        factors = Factors(each.profile, host, each.workload, each.facts, each.space)
        made = as_run(_environments(launched)[0], host, each.workload, each.space, each.baselines)
        own = Configuration() if made is None else made.configuration
        for name in settable(known, factors.here):
            meant = factors.together([name]).configuration
            rule = known.rules.get(name)
            if rule is None or not _can_be_in_a_file(meant):
                continue
            if rule.condition is None or of_model != PROBE_MODEL:
                found += _held_against(rule, meant, own, framework, launched)
    return found


def _can_be_in_a_file(meant: Configuration) -> bool:
    """Tell whether a launch file tells that something is set.

    Not how often a program is started, and what the program itself does.
    """
    is_set_outside = allowed_in(WinnerClass.LAUNCH_ONLY, meant)
    return is_set_outside and meant.as_dict().keys().isdisjoint(PLACING)


def _held_against(
    rule: Rule, meant: Configuration, own: Configuration, framework: str, launched: Launched
) -> list[Slip]:
    set_: Mapping[str, object] = own.as_dict()
    wanted = meant.as_dict()
    told = f"{framework}: {sentence(rule)}"
    lines = (_line_of(launched, knob.removeprefix("env.")) for knob in wanted)
    line = next(filter(None, lines), None)
    if rule.advice == "set" and not any(knob in set_ for knob in wanted):
        return [Slip("missed", line, meant.label(), told)]
    if rule.advice == "leave" and all(set_.get(knob) == value for knob, value in wanted.items()):
        return [Slip("hurts", line, meant.label(), told)]
    return []
