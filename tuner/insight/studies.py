"""What many studies' designed parts say, read from their folders and put together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tuner.errors import UsageError
from tuner.insight.effects import Fit, fit, launch_variance
from tuner.insight.facts import model_facts
from tuner.insight.rules import Seen, distil
from tuner.record.files import read_result
from tuner.record.guidelines import (
    GUIDELINES_VERSION,
    RECORDINGS,
    Found,
    Guidelines,
    Recording,
    StudyOf,
    read_recording,
)
from tuner.record.result import Result
from tuner.version import __version__


def read_recordings(folders: Iterable[Path]) -> list[Recording]:
    """Return every study with a designed part below some folders, recordings among them.

    Each once: two of one name and one beginning are the same. Raises UsageError where there is
    none, or where one cannot be read.
    """
    found: dict[tuple[str, str], Recording] = {}
    n_others = 0
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder; name one below which studies lie")
        recordings = [read_recording(path) for path in sorted(folder.rglob(f"{RECORDINGS}/*.json"))]
        for path in sorted(folder.rglob("result.json")):
            made = recording_of(path.resolve().parent.name, read_result(path))
            recordings += [] if made is None else [made]
            n_others += made is None
        found |= {(each.name, each.created): each for each in recordings}
    if not found:
        raise UsageError(
            f"{', '.join(map(str, folders))}: none of {n_others} studies has a designed part, "
            "which rules are learnt from: tune with --designed"
        )
    return list(found.values())


def recording_of(name: str, result: Result) -> Recording | None:
    """Return what of a result is kept to learn from; None without a designed part."""
    model, design = result.model_facts, result.designed
    if design is None or model is None:
        return None
    host = result.host.identity
    return Recording(
        schema_version=GUIDELINES_VERSION,
        name=name,
        created=result.created,
        tool_version=result.tool_version,
        model=result.model,
        framework=result.framework,
        family=model.family,
        parameters_sha256=model.parameters_sha256,
        facts=model_facts(
            model.kind,
            result.reference_batch,
            model.graph_width,
            model.parameter_bytes,
            model.macs,
            design.default_call_s,
        ),
        host=f"{host['processor']['model']}, {host['physical_cores']} cores",
        fingerprint=result.host.fingerprint,
        versions=result.versions,
        winners={
            klass: Found(won.verdict, won.configuration, won.speedup)
            for klass, won in result.winners.items()
        },
        design=design,
    )


def make_guidelines(recordings: Sequence[Recording], created: str) -> Guidelines:
    """Distil the rules of some recordings.

    Raises UsageError where a host's leave nothing to estimate its noise from.
    """
    fits = [fit(each.design) for each in recordings]
    of_host: dict[str, list[Fit]] = defaultdict(list)
    for recording, found in zip(recordings, fits, strict=True):
        of_host[recording.fingerprint].append(found)
    variances = {host: launch_variance(each)[0] for host, each in of_host.items()}
    for recording in recordings:
        if not math.isfinite(variances[recording.fingerprint]):
            raise UsageError(
                f"{recording.name}: the studies of {recording.host} measured no more cells than "
                "there are effects, so that their noise is not known: record more models there"
            )
    studies = [
        _study(recording, found, variances[recording.fingerprint])
        for recording, found in zip(recordings, fits, strict=True)
    ]
    rules = []
    for framework in dict.fromkeys(study.framework for study in studies):
        own = [study for study in studies if study.framework == framework]
        for setting in dict.fromkeys(name for study in own for name in study.effects):
            rules += distil(framework, setting, _seen(own, setting))
    launch_sd = {host: math.sqrt(variance) for host, variance in variances.items()}
    return Guidelines(
        GUIDELINES_VERSION, __version__, created, launch_sd, _settings(recordings), studies, rules
    )


def _settings(recordings: Sequence[Recording]) -> dict[str, dict[str, list[str]]]:
    """Return, per framework and factor, what is set in all cells that have it, and in no other.

    Where that is nothing, as it depends on other factors: in some of them, and in no other.
    """
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for framework in dict.fromkeys(each.framework for each in recordings):
        cells = [c for r in recordings if r.framework == framework for c in r.design.cells]
        for name in dict.fromkeys(name for cell in cells for name in cell.factors):
            own = [set(c.configuration.items()) for c in cells if name in c.factors]
            others = [set(c.configuration.items()) for c in cells
                      if name not in (*c.factors, *c.idle)]  # fmt: skip
            alone = set().union(*own) - set().union(*others)
            told = set.intersection(*own) & alone or alone
            found[framework][name] = [f"{knob}={value}" for knob, value in sorted(told)]
    return dict(found)


def _study(recording: Recording, found: Fit, variance: float) -> StudyOf:
    kept = msgspec.structs.asdict(recording)
    del kept["schema_version"], kept["design"]
    effects = {effect.name: (effect.value, effect.error(variance)) for effect in found.effects}
    return StudyOf(**kept, effects=effects)


def _seen(studies: Sequence[StudyOf], setting: str) -> list[Seen]:
    return [
        Seen(s.name, s.family, s.facts, s.effects[setting][0], s.effects[setting][1] ** 2)
        for s in studies
        if setting in s.effects
    ]
