"""Check a recommendation against the catalogue: only what could be a study's own is accepted.

The file may come from anywhere, and its content goes into environments, programs, units and
manifests. Every reader that acts on one uses this module; record/files.py checks only the form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tuner.errors import UsageError
from tuner.frameworks import FRAMEWORKS
from tuner.host.libraries import PIP_PACKAGES, library_named, lies_among_libraries
from tuner.host.topology import parse_cpu_list
from tuner.record.configuration import Configuration
from tuner.record.files import read_recommendation
from tuner.record.recommendation import (
    EXPECTED,
    READABLE_RECOMMENDATIONS,
    WITHOUT_SETTINGS,
    Placement,
    Recommendation,
    Setting,
)
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import KNOBS, allowed_in, describe, fault_of_value, is_known
from tuner.space.knobs_of.launch import BATCH, INSTANCES, MAX_WAIT, PRELOADED
from tuner.space.launching import PRELOAD
from tuner.space.restrictions import NOT_A_SETTING, slip_of

_LONG_NUMBER = re.compile(r"\d{5}")
"""No CPU has one: the kernel's NR_CPUS is at most 8192 (arch/x86/Kconfig)."""

_EARLIER = {MAX_WAIT: ("call", False)}
"""What earlier versions wrote of a knob: when it applies, and whether the program must change. They
allowed it in every class."""


def read_recommended(path: Path) -> Recommendation:
    """Read a `recommended.toml`, or a study's in its folder.

    Raises UsageError if it is invalid, or contains what no study can have recommended.
    """
    found = read_recommendation(path)
    if fault := fault_of(found):
        where = path / "recommended.toml" if path.is_dir() else path
        raise UsageError(f"{where} is not a recommendation: {fault}")
    return found


def fault_of(recommendation: Recommendation) -> str | None:
    """Return what of a recommendation contradicts the catalogue or itself, or None."""
    r = recommendation
    if r.schema_version not in READABLE_RECOMMENDATIONS:
        readable = " and ".join(map(str, READABLE_RECOMMENDATIONS))
        return f"its schema_version is {r.schema_version}; this version reads {readable}"
    if r.workload.framework not in FRAMEWORKS:
        return f"there is no framework {r.workload.framework!r}"
    if r.winner_class not in list(WinnerClass):
        return f"there is no winner class {r.winner_class!r}"
    for setting in r.settings:
        if fault := _fault_of_setting(setting, r.workload.framework):
            return fault
    knobs = [setting.knob for setting in r.settings]
    if twice := next((knob for knob in knobs if knobs.count(knob) > 1), None):
        return f"{twice} is set twice"
    settings = Configuration.of({s.knob: s.value for s in r.settings})
    if not allowed_in(r.winner_class, settings.without(MAX_WAIT)):
        return f"the class {r.winner_class} does not allow {settings.label()}"
    for where, count in (("batch", r.workload.batch), ("default_batch", r.workload.default_batch)):
        if count is not None and (fault := fault_of_value(BATCH, count)):
            return f"its {where} is {count}, and {fault}"
    batch = settings.get(BATCH)
    if batch not in (None, r.workload.batch):
        return f"{BATCH} is {batch}, and the batch of its workload {r.workload.batch}"
    claims = ("faster", *EXPECTED) if r.settings else WITHOUT_SETTINGS
    if r.claim.verdict not in claims:
        return f"it claims {r.claim.verdict!r} and sets {settings.label()}"
    return _fault_of_environment(r) or _fault_of_placements(r)


def _fault_of_setting(setting: Setting, framework: str) -> str | None:
    knob = describe(setting.knob)
    if not is_known(setting.knob):
        return f"there is no knob {setting.knob!r}"
    if setting.knob not in KNOBS and (meant := slip_of(setting.knob, KNOBS)):
        return f"{setting.knob} is no setting that is known here; did it mean {meant}?"
    if setting.knob in NOT_A_SETTING:
        return f"{setting.knob} is no setting: {NOT_A_SETTING[setting.knob]}"
    if knob.frameworks and framework not in knob.frameworks:
        return f"{setting.knob} is no knob of {framework}"
    if fault := fault_of_value(setting.knob, setting.value):
        return fault
    stated = (setting.applies, setting.needs_code_change)
    if stated not in ((str(knob.applies), knob.needs_code_change), _EARLIER.get(setting.knob)):
        return (
            f"{setting.knob} applies at {setting.applies!r} with needs_code_change = "
            f"{str(setting.needs_code_change).lower()}; it is {str(knob.applies)!r} and "
            f"{str(knob.needs_code_change).lower()}"
        )
    return None


def _fault_of_environment(r: Recommendation) -> str | None:
    """Compare the variables with those that follow from the settings.

    The path of a preloaded library depends on the host; its file's name does not.
    """
    wanted = {s.knob[4:]: str(s.value) for s in r.settings if s.knob.startswith("env.")}
    found = {name: value for name, value in r.environment.items() if name != PRELOAD}
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            return f"[environment] lacks {name}, which env.{name} sets"
        if name not in wanted:
            return f"[environment] has {name}, which no setting sets"
        if found[name] != wanted[name]:
            return f"[environment] has {name}={found[name]}, and env.{name} is {wanted[name]}"
    libraries = [
        s.value for s in r.settings for name in PRELOADED.get(s.knob, ()) if s.value == name
    ]
    paths = [path for path in r.environment.get(PRELOAD, "").split(":") if path]
    return _fault_of_preload(paths, map(str, libraries)) or _fault_of_packages(r.packages, paths)


def _fault_of_preload(preloaded: Sequence[str], libraries: Iterable[str]) -> str | None:
    paths = list(preloaded)
    for library in libraries:
        path = next((path for path in paths if library_named(path) == library), None)
        if path is None:
            shown = ":".join(preloaded)
            return f"{PRELOAD}={shown!r} does not load {library}, which is a setting"
        if not lies_among_libraries(path):
            return (
                f"{PRELOAD} loads {path}, which lies in no folder of libraries: "
                "name the file alone, or its path in such a folder"
            )
        paths.remove(path)
    return f"{PRELOAD} loads {paths[0]}, which no setting asks for" if paths else None


def _fault_of_packages(packages: Mapping[str, str], preloaded: Sequence[str]) -> str | None:
    """Compare the packages for pip with those known to bring the preloaded libraries."""
    for file, package in packages.items():
        if file not in preloaded:
            return f"[packages] has {file}, which {PRELOAD} does not name"
        name, known = package.partition("==")[0], PIP_PACKAGES.get(library_named(file) or "")
        if name != known:
            return f"[packages] has {name} for {file}, which {known or 'no package'} brings"
    return None


def _fault_of_placements(r: Recommendation) -> str | None:
    """Return the fault in the placements; older files hold an empty one."""
    for placement in r.placements:
        cpus = placement.cpus
        if cpus is not None and _LONG_NUMBER.search(cpus):
            return f"a placement names the CPUs {cpus}, which no machine has"
        if cpus is not None and not parse_cpu_list(cpus):
            return f"a placement names no CPU: {cpus}"
    if r.placements == [Placement()]:
        return None
    n = next((s.value for s in r.settings if s.knob == INSTANCES), 1)
    if len(r.placements) != n:
        return f"it has {len(r.placements)} placements for {n} instance{'' if n == 1 else 's'}"
    return None
