"""Guidelines for people: one page of rules, each with its evidence, as Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tuner.guidelines.predict import WITH
from tuner.guidelines.rules import LEAST_FAMILIES, MANY_HOSTS
from tuner.output.figures.chart import Chart
from tuner.output.figures.rules import forest
from tuner.output.report import write_page
from tuner.output.values import ratio
from tuner.record.files import make_folder
from tuner.record.guidelines import (
    GUIDELINES_FILE,
    RECORDINGS,
    Condition,
    Fact,
    Failure,
    Guidelines,
    Recording,
    Rule,
    write_as_json,
)

_FOR, _AGAINST = 1.02, 0.98
_FACTS = {
    "kind": "the model is of the kind {}",
    "batch": "the batch is {}",
    "graph_width": "heavy operators side by side are {}",
    "parameter_bytes": "the parameters take {}",
    "macs_per_call": "a call takes {}",
    "macs_per_byte": "multiply-accumulates per byte of parameters are {}",
    "call_s": "a call of the default takes {}",
    "host": "the host is {}",
    "host_isa": "the host's instructions are {}",
    "host_cores": "the host's cores are {}",
}
_UNITS = {
    "parameter_bytes": (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0)),
    "macs_per_call": (
        ("G multiply-accumulates", 1e9),
        ("M multiply-accumulates", 1e6),
        ("multiply-accumulates", 1.0),
    ),
    "call_s": (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)),
}
_RELATIONS = {"<=": "up to", ">": "more than", "==": "", "!=": "not"}


class Shown(msgspec.Struct, frozen=True):
    """A rule as a row of the page."""

    rule: Rule
    what: str
    sets: str
    """KNOB=VALUE, and so on."""
    where: str
    effect: str
    expected: str
    n_for: int
    n_against: int
    n_failed: int
    """Models of which all combinations that failed in one way had it."""
    figure: str
    """Its name among the page's figures."""


class Part(msgspec.Struct, frozen=True):
    """The rules of a framework, sorted by use."""

    framework: str
    set: list[Shown]
    leave: list[Shown]
    open: list[Shown]
    """Neither: the effect is small, or it differs from model to model."""
    weak: list[Shown]
    """Of too few families."""
    failures: list[Failure]


def sentence(rule: Rule) -> str:
    """Write a rule in a line."""
    where = f" where {in_words(rule.condition)}" if rule.condition else ""
    n = rule.n_models
    return (
        f"{rule.setting}{where}: {ratio(rule.effect)} on average over {rule.n_families} families, "
        f"{n} model{'' if n == 1 else 's'}"
    )


def where_it_failed(failure: Failure) -> str:
    """Say it: distilbert (1 of 6 combinations with it: out of memory)."""
    n_cells = f"{failure.n_failed} of {failure.n_cells} combinations with it"
    return f"{failure.model} ({n_cells}: {failure.outcome.replace('_', ' ')})"


def measured_elsewhere(rule: Rule, guidelines: Guidelines, here: str) -> str:
    """Name the hosts on which a rule was measured, if this host is known and not one of them."""
    hosts = _hosts_of(rule, guidelines)
    is_elsewhere = here in guidelines.hosts and here not in hosts
    return f", {_alone(hosts)}" if is_elsewhere else ""


def _hosts_of(rule: Rule, guidelines: Guidelines) -> set[str]:
    return {study.host for study in guidelines.studies if study.name in rule.studies}


def _alone(hosts: Iterable[str]) -> str:
    return f"measured on {'; '.join(sorted(hosts))} alone"


def in_words(condition: Condition) -> str:
    """Write a condition: a call of the default takes up to 10 ms."""
    number = _number(condition.fact, condition.value)
    return _told(condition.fact, f"{_RELATIONS[condition.relation]} {number}".strip())


def fact_in_words(name: str, value: Fact) -> str:
    """Write a fact: a call of the default takes 10 ms."""
    return _told(name, _number(name, value))


def _told(name: str, value: str) -> str:
    known = _FACTS.get(name)
    return f"{name} is {value}" if known is None else known.format(value)


def _number(name: str, value: Fact) -> str:
    if isinstance(value, str):
        return value
    for unit, size in _UNITS.get(name, ()):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def parts_of(guidelines: Guidelines) -> list[Part]:
    """Return the page's rows, framework by framework, the largest effects first."""
    found = []
    for framework in dict.fromkeys(rule.framework for rule in guidelines.rules):
        rows = [
            _shown(rule, guidelines, f"{framework}-{number}")
            for number, rule in enumerate(guidelines.rules)
            if rule.framework == framework
        ]
        rows.sort(key=lambda row: -abs(row.rule.mean))
        strong = [row for row in rows if row.rule.n_families >= LEAST_FAMILIES]
        found.append(
            Part(
                framework,
                [row for row in strong if row.rule.advice == "set"],
                [row for row in strong if row.rule.advice == "leave"],
                [row for row in strong if row.rule.advice == "none"],
                [row for row in rows if row.rule.n_families < LEAST_FAMILIES],
                sorted(
                    (each for each in guidelines.failures if each.framework == framework),
                    key=lambda each: (each.setting, each.model),
                ),
            )
        )
    return found


def _shown(rule: Rule, guidelines: Guidelines, figure: str) -> Shown:
    known = guidelines.settings.get(rule.framework, {})
    parts = rule.setting.split(WITH)
    return Shown(
        rule,
        rule.setting if len(parts) == 1 else f"{' and '.join(parts)}, beyond what each does alone",
        " ".join(each for part in parts for each in known.get(part, ())) if len(parts) == 1 else "",
        _where(rule, guidelines),
        ratio(rule.effect) if rule.n_families > 1 else f"{rule.effect.point:.2f}x, one family",
        ratio(rule.expected) if rule.n_families > 1 else "-",
        sum(each > _FOR for each in rule.families.values()),
        sum(each < _AGAINST for each in rule.families.values()),
        len(
            {
                f.model
                for f in guidelines.failures
                if (f.framework, f.setting) == (rule.framework, rule.setting)
            }
        ),
        figure,
    )


def _where(rule: Rule, guidelines: Guidelines) -> str:
    """Write the scope of a rule; empty for every model on all hosts that taught rules."""
    hosts = _hosts_of(rule, guidelines)
    conditions = [] if rule.condition is None else [in_words(rule.condition)]
    if hosts and hosts != set(guidelines.hosts):
        conditions.append(_alone(hosts))
    return ", ".join(conditions)


def write_guidelines(folder: Path, guidelines: Guidelines, recordings: Sequence[Recording]) -> None:
    """Write guidelines.json, .md and .html, and the recordings that they were learnt from."""
    make_folder(folder / RECORDINGS)
    write_as_json(folder / GUIDELINES_FILE, guidelines)
    for recording in recordings:
        write_as_json(folder / RECORDINGS / f"{recording.name}.json", recording)
    parts = parts_of(guidelines)
    charts: dict[str, Chart | None] = {
        row.figure: forest(row.rule, row.what, row.where, guidelines)
        for part in parts
        for row in (*part.set, *part.leave, *part.open)
    }
    families = list(dict.fromkeys(study.family for study in guidelines.studies))
    models = list(dict.fromkeys(study.model for study in guidelines.studies))
    given = {
        "many_hosts": MANY_HOSTS,
        "g": guidelines,
        "parts": parts,
        "families": families,
        "models": models,
        "where_it_failed": where_it_failed,
    }
    write_page(folder / "guidelines.md", "guidelines.md.j2", {}, **given)
    write_page(folder / "guidelines.html", "guidelines.html.j2", charts, **given)
