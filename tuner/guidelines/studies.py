"""What many studies' designed parts say, read from their folders and put together."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from tuner.errors import UsageError
from tuner.guidelines.effects import Fit, fit, launch_variance
from tuner.guidelines.facts import host_facts, host_in_words, model_facts
from tuner.guidelines.rules import Seen, distil
from tuner.record.designed import DesignedCell
from tuner.record.files import read_result
from tuner.record.guidelines import (
    GUIDELINES_VERSION,
    RECORDINGS,
    Failure,
    Found,
    Guidelines,
    Recording,
    StudyOf,
    is_recording,
    read_recording,
)
from tuner.record.load import OFFLINE
from tuner.record.outcome import Outcome
from tuner.record.result import Result
from tuner.record.workload import CPU
from tuner.version import __version__

_UNSAFE = re.compile(r"[^A-Za-z0-9_.=,@+-]")
_LONGEST_NAME = 100


def read_recordings(folders: Iterable[Path]) -> list[Recording]:
    """Return every study with a designed part below some folders, recordings included.

    Recordings are in the folder itself or in folders called studies. Each once. Raises UsageError
    if there is none, or if one cannot be read.
    """
    found: dict[str, Recording] = {}
    n_others = 0
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder; name one below which studies lie")
        kept = {*folder.rglob(f"{RECORDINGS}/*.json")}
        is_kept = (
            folder.resolve().name == RECORDINGS
        )  # a damaged one is said there, not passed over
        kept |= {path for path in folder.glob("*.json") if is_kept or is_recording(path)}
        recordings = [read_recording(path) for path in sorted(kept)]
        for path in sorted(folder.rglob("result.json")):
            made = recording_of(read_result(path))
            recordings += [] if made is None else [made]
            n_others += made is None
        found |= {each.name: each for each in recordings}
    if not found:
        where = ", ".join(map(str, folders))
        there = (
            f"none of {n_others} studies has a designed part of throughput on CPUs, which rules "
            "are learnt from"
            if n_others
            else f"no study has ended there, and no recording of one lies in it, or in a folder "
            f"called {RECORDINGS}"
        )
        raise UsageError(f"{where}: {there}: tune with --designed")
    return [found[name] for name in sorted(found)]  # wherever they lie, they teach the same


def recording_of(result: Result) -> Recording | None:
    """Return the part of a result that rules are learned from.

    None without a designed part, or if its objective is not the highest throughput on CPUs.
    """
    model, design, objective = result.model_facts, result.designed, result.objective
    is_usual = (result.scenario, result.goal, result.device) == (OFFLINE, "fastest", CPU)
    if design is None or model is None or not is_usual or objective.bounds:
        return None
    named = _UNSAFE.sub("_", f"{result.model}-{result.framework}"[:_LONGEST_NAME]).lstrip("_.-=,@+")
    return Recording(
        schema_version=GUIDELINES_VERSION,
        name=f"{named}-{result.identity[:8]}",
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
        )
        | host_facts(result.host.identity),
        host=host_in_words(result.host.identity),
        fingerprint=result.host.fingerprint,
        versions=result.versions,
        winners={
            winner_class: Found(won.verdict, won.configuration, won.speedup)
            for winner_class, won in result.winners.items()
        },
        design=design,
    )


def make_guidelines(recordings: Sequence[Recording], created: str) -> Guidelines:
    """Distil the rules of some recordings.

    Raises UsageError if those of a host leave nothing to estimate its noise from.
    """
    fits = [fit(each.design) for each in recordings]
    of_host: dict[str, list[Fit]] = defaultdict(list)
    for recording, found in zip(recordings, fits, strict=True):
        of_host[recording.fingerprint].append(found)
    noise = {host: launch_variance(each) for host, each in of_host.items()}
    variances = {host: variance for host, (variance, _) in noise.items()}
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
    return Guidelines(
        GUIDELINES_VERSION,
        __version__,
        created,
        {host: math.sqrt(variance) for host, variance in variances.items()},
        {host: freedom for host, (_, freedom) in noise.items()},
        _settings(recordings),
        studies,
        rules,
        list(_failures(recordings)),
    )


def _settings(recordings: Sequence[Recording]) -> dict[str, dict[str, list[str]]]:
    """Return, per framework and factor, what is set in all cells with it, and in no other.

    If that is empty, because it depends on other factors: what is set in some of them, and in no
    other, as alternatives.
    """
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for framework in dict.fromkeys(each.framework for each in recordings):
        cells = [c for r in recordings if r.framework == framework for c in r.design.cells]
        for name in dict.fromkeys(name for cell in cells for name in cell.factors):
            own = [set(c.configuration.items()) for c in cells if name in c.factors]
            others = [set(c.configuration.items()) for c in cells
                      if name not in (*c.factors, *c.idle)]  # fmt: skip
            alone = set().union(*own) - set().union(*others)
            always = sorted(f"{knob}={value}" for knob, value in set.intersection(*own) & alone)
            sometimes = sorted(f"{knob}={value}" for knob, value in alone)
            found[framework][name] = always or [" or ".join(sometimes)]
    return dict(found)


def _study(recording: Recording, found: Fit, variance: float) -> StudyOf:
    kept = msgspec.structs.asdict(recording)
    del kept["schema_version"], kept["design"]
    effects = {effect.name: (effect.value, effect.error(variance)) for effect in found.effects}
    failed = [cell.factors for cell in recording.design.cells if _has_failed(cell)]
    return StudyOf(**kept, effects=effects, failed=failed)


def _has_failed(cell: DesignedCell) -> bool:
    return cell.outcome not in (None, Outcome.MEASURED)


def _failures(recordings: Iterable[Recording]) -> Iterator[Failure]:
    """Yield the settings that all cells of a model had that failed in one way."""
    of_model: dict[tuple[str, str], list[DesignedCell]] = defaultdict(list)
    for each in recordings:
        run = (c for c in each.design.cells if c.outcome is not None and c.same_as is None)
        of_model[each.framework, each.model] += run
    for (framework, model), cells in of_model.items():
        for outcome in sorted({str(cell.outcome) for cell in cells if _has_failed(cell)}):
            failed = [cell for cell in cells if cell.outcome == outcome]
            for setting in sorted(set.intersection(*(set(cell.factors) for cell in failed))):
                n_cells = sum(setting in cell.factors for cell in cells)
                yield Failure(framework, setting, model, len(failed), n_cells, outcome)


def _seen(studies: Sequence[StudyOf], setting: str) -> list[Seen]:
    """Return the effect in each model on each host.

    Studies of one on the same are one, weighted by how sure they are.
    """
    of_model: dict[tuple[str, str], list[StudyOf]] = defaultdict(list)
    for study in studies:
        if setting in study.effects:
            of_model[study.model, study.fingerprint].append(study)
    found = []
    for (model, _), own in of_model.items():
        effects = [study.effects[setting] for study in own]
        weights = [error**-2 for _, error in effects]
        value = sum(w * v for w, (v, _) in zip(weights, effects, strict=True)) / sum(weights)
        names = tuple(study.name for study in own)
        found.append(Seen(model, names, own[-1].family, own[-1].facts, value, 1 / sum(weights)))
    return found
