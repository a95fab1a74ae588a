"""tune-framework lint FILE: what of a launch file is ineffective, contradictory or missing."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import typer
from rich.text import Text

from tuner.app.lint import PROBE_MODEL, LintReport, Note, lint
from tuner.app.request import Request, parse_size
from tuner.cli.progress import progress
from tuner.cli.tables import text_console
from tuner.deploy.launch_judge import Target
from tuner.deploy.launched import Gap, NotUnderstood
from tuner.deploy.lint_finding import Kind, LintFinding, Severity, Why
from tuner.errors import UsageError
from tuner.galleries import GUIDELINES
from tuner.record.guidelines import read_guidelines
from tuner.space.as_run import Cause

EXIT_FAULTY = 4
KINDS: dict[Kind, str] = {
    Kind.CONTRADICTION: "contradicts itself",
    Kind.UNUSABLE: "cannot be",
    Kind.BEYOND: "more than there is",
    Kind.MISSPELT: "misspelt",
    Kind.DEAD: "has no effect",
    Kind.HURTS: "a guideline advises against it",
    Kind.MISSED: "a guideline is missed",
    Kind.DEPENDS: "may have no effect",
    Kind.REDUNDANT: "needless",
    Kind.ASIDE: "serves other programs",
    Kind.UNKNOWN: "not judged",
}
REASONS: dict[Cause | Why, str] = {
    Cause.NOT_WRITTEN_DOWN: "its value is not written down",
    Cause.EMPTY: "it is empty",
    Cause.BAD_NAME: "no shell can set such a name",
    Cause.MISSPELT: "nothing reads it: {detail} is meant",
    Cause.UNREAD: "{detail}",
    Cause.IRRELEVANT: "{detail}",
    Cause.NUMPY: "numpy's own threads serve no framework",
    Cause.NEEDS_OPENMP: "only libiomp5 and libomp read KMP_*, and neither is preloaded",
    Cause.NO_FILE: "there is no file that can be read",
    Cause.UNKNOWN_LIBRARY: "it is no allocator or OpenMP runtime that is known here",
    Cause.LOADED_BEFORE: "{detail} is loaded before it",
    Cause.NOT_FOUND: "no {detail} is found in the folders of libraries",
    Cause.NO_NUMBER: "it is no number above 0",
    Cause.NOT_ALLOWED: "{detail}",
    Cause.NOT_HERE: "{detail}",
    Cause.INEFFECTIVE: "{detail}",
    Cause.OVERRIDDEN: "{detail}{at} is another name of it, and wins",
    Cause.DEFAULT: "{detail}",
    Why.SET_TWICE: "line {other_line} sets it otherwise, which this replaces",
    Why.RIVALS: "it and {detail} both bind threads, and one of them wins",
    Why.NOT_EXPORTED: "it is not exported, and programs see it only if it was set before",
    Why.THREADS: "{granter}: threads wait for each other",
    Why.WORKERS: "{granter}: workers wait for each other",
    Why.CPUS: "CPUs {beyond} are not allowed, {allowed} are",
    Why.NODES: "there is no NUMA node {beyond}; there are {allowed}",
    Why.MEMORY: "there are {gib:.1f} GiB",
    Why.NO_LIBRARY: "no folder of libraries holds a file of that name",
    Why.PRELOAD: "it depends on {detail}",
    Why.GUIDELINE: "{detail}",
}
GAPS: dict[Gap, str] = {
    Gap.COMPUTED: "its value is computed when it is started",
    Gap.NOT_SET_HERE: "a value that this file does not set",
    Gap.BRANCH: "its value differs between branches",
    Gap.WORDS: "it may hold settings",
    Gap.PROGRAM: "it may place the program, or set variables",
    Gap.LAUNCHER: "it sets threads or CPUs by rules of its own",
    Gap.ELSEWHERE: "another file, which is not read",
    Gap.SYNTAX: "the file's grammar does not allow it here",
    Gap.BLANKS: "blanks around =",
    Gap.TEXT: "in a text that is passed on",
    Gap.CPUS: "no list or number is known of it",
}
NOTES: dict[Note, str] = {
    Note.OTHER_HOSTS: "the guidelines were measured on {}, not on such a host",
    Note.IMAGE: "judged as an image: nothing of this host counts; libraries, nodes and the "
    "instruction set of its target are not known{}",
    Note.CONTAINER: "libraries in a container are taken to be where it says",
}
_STYLES = {Severity.FAULT: "bold red", Severity.NOTE: ""}


def main(
    path: Path,
    model: str | None,
    hardware: str,
    frameworks: list[str],
    rules: Path | None,
    *,
    is_image: bool,
    cpus: float | None,
    memory: str | None,
    as_json: bool,
) -> None:
    """Print the findings; exits with 4 where something is wrong."""
    if path.suffix == ".toml":
        raise UsageError(
            f"{path} is no launch file: lint what starts your program; a recommendation is held "
            f"against this host by: tune-framework verify {path}"
        )
    request = Request(
        model=model or PROBE_MODEL,
        hardware=hardware,
        frameworks=tuple(dict.fromkeys(frameworks)),
    )
    target = Target(is_image, cpus, None if memory is None else parse_size(memory))
    where = rules or (GUIDELINES if GUIDELINES.is_file() else None)
    guidelines = None if where is None else read_guidelines(where)
    with progress(quiet=as_json or not sys.stdout.isatty()) as listen:
        found = lint(path, request, guidelines, target, listen)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(_data(found)), indent=2).decode())
        sys.stdout.write("\n")
    else:
        _show(found)
    if found.faults:
        raise typer.Exit(EXIT_FAULTY)


def reason(finding: LintFinding) -> str:
    """Write why a finding is one."""
    by = f"{finding.detail} grants" if finding.detail else "there are"
    text = REASONS[finding.why].format(
        detail=finding.detail,
        other_line=finding.other_line,
        at=f" in line {finding.other_line}" if finding.other_line else "",
        granter=f"{by} {finding.granted:g} CPUs" if finding.granted else by,
        beyond=finding.beyond,
        allowed=finding.allowed,
        gib=(finding.granted or 0.0) / 2**30,
    )
    return f"{finding.value} unless {finding.unless} is set; {text}" if finding.unless else text


def subject(finding: LintFinding) -> str:
    """Write the subject of a finding, as the file has it."""
    if not finding.value:
        return finding.name
    joint = "" if finding.name.endswith("=") else "=" if finding.name.isupper() else " "
    return f"{finding.name}{joint}{finding.value}"


def _data(found: LintReport) -> dict[str, object]:
    """Return a report for JSON: its data, and the sentence of each finding."""
    data: dict[str, object] = msgspec.to_builtins(found)
    data["findings"] = [
        {**msgspec.to_builtins(each), "what": subject(each), "reason": reason(each)}
        for each in found.findings
    ]
    return data


def _show(found: LintReport) -> None:
    console = text_console()
    for finding in found.findings:
        console.print(
            Text(_place(finding)),
            Text(KINDS[finding.kind], style=_STYLES[finding.severity]),
            Text(f": {subject(finding)}"),
            sep="",
            soft_wrap=True,
        )
        console.print(Text(f"    {reason(finding)}", style="dim"), soft_wrap=True)
    for entry in found.not_understood:
        text = f"{_place(entry)}not understood: {entry.text} ({GAPS[entry.gap]})"
        console.print(Text(text, style="dim"), soft_wrap=True)
    for note, detail in found.notes.items():
        shown = f"; it has {detail} CPUs" if note is Note.IMAGE and detail else detail
        console.print(Text(f"note: {NOTES[note].format(shown)}", style="dim"), soft_wrap=True)
    console.print(Text(_summary(found)), soft_wrap=True)


def _summary(found: LintReport) -> str:
    """Write the last line: nothing is called right that was not understood."""
    n, faults, left = found.n_settings, len(found.faults), len(found.not_understood)
    frameworks = " and ".join(found.frameworks)
    counted = f"{n} tuning variable{'' if n == 1 else 's'} found, for {frameworks}"
    what = f"{faults} fault{'' if faults == 1 else 's'}" if faults else "nothing wrong"
    if left:
        what += f" in what was understood; {left} {'is' if left == 1 else 'are'} not understood"
    return f"{counted}: {what}"


def _place(entry: LintFinding | NotUnderstood) -> str:
    where = f"{entry.where}, " if entry.where else ""
    where += f"{entry.file}, " if entry.file else ""
    return f"{where}line {entry.line}: " if entry.line else where
