"""Studies, their trials and rounds, and guidelines as tidy pandas data frames.

The columns stand here, with their units; docs/data_frames.md lists them for users. What is not
known is missing: NA, NaN or NaT.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from tuner.record.configuration import Configuration, Value
from tuner.record.guidelines import Condition, Guidelines
from tuner.record.interval import Interval
from tuner.record.result import Result
from tuner.record.winner_class import WinnerClass

_BATCH = "workload.batch"
SETTING = "setting."
"""Precedes a setting's name in the name of its column."""
STUDIES = {
    "study": "name of the study: its folder",
    "created": "when its last session began (UTC)",
    "tool_version": "version of tune-framework",
    "model": "as given to --model",
    "framework": "torch or tensorflow",
    "framework_version": "its version",
    "device": "cpu or cuda",
    "processor": "name of the processor",
    "fingerprint": "hash of all properties of the host that change results",
    "scenario": "offline, single-stream, multi-stream, server, concurrent or training",
    "metric": "what is maximised or minimised",
    "unit": "unit of value and default",
    "winner_class": "no_code, same_precision or reduced_precision",
    "is_recommended": "whether recommended.toml holds this class's winner",
    "verdict": "faster, keep_default or ambiguous (not decided)",
    "configuration": "KNOB=VALUE of the winner, or default",
    "speedup": "over the default, from the confirmation",
    "speedup_low": "lower end of its confidence interval",
    "speedup_high": "upper end",
    "search_ratio": "over the default in the search, if no round was measured: a hint",
    "value": "of the winner, in unit",
    "value_low": "lower end of its confidence interval",
    "value_high": "upper end",
    "default": "value of the default, in unit",
    "default_low": "lower end of its confidence interval",
    "default_high": "upper end",
    "n_rounds": "rounds behind the verdict",
    "n_won": "rounds in which the winner beat the default",
    "memory_peak_bytes": "peak memory of the winner, all instances together, in bytes",
    "default_memory_peak_bytes": "peak memory of the default, in bytes",
    "call_p50_s": "median duration of the winner's calls, in seconds",
    "call_p99_s": "99th percentile of it, in seconds",
    "default_call_p50_s": "median duration of the default's calls, in seconds",
    "default_call_p99_s": "99th percentile of it, in seconds",
    "drift": "relative difference of the winner's outputs from the default's",
    "top1_agreement": "share of inputs with the same most probable class",
    "seconds_to_decide": "seconds of further rounds that would decide it, if it is not decided",
    "n_trials": "configurations tried by the study",
    "wall_s": "wall-clock time of the study, in seconds",
    "budget_s": "its budget, in seconds",
}
TRIALS = {
    "number": "number of the trial, from 0",
    "source": "who proposed it: default, a recommendation's name, or a sampler",
    "outcome": "measured, pruned, or how its launch failed",
    "reason": "why it failed, in words",
    "search_ratio": "over the default in the search: a hint, not a claim",
    "search_log_sd": "standard deviation of log(search_ratio), without the default's part in it",
    "call_p50_s": "median duration of a call at its batch, in each instance, in seconds",
    "memory_bytes": "peak memory of all instances together (the card's on a GPU), in bytes",
}
"""Followed by a column for each setting that any trial has."""
ROUNDS = {
    "round": "number of the round",
    "is_early": "whether it belongs to an early verdict",
    "arm": "KNOB=VALUE of the configuration, or default",
    "is_default": "whether nothing but the batch is set",
    "value": "measured in this round, in the objective's unit",
    "ratio": "over the default of the same round at its best batch; above 1 is better",
}
RULES = {
    "framework": "torch or tensorflow",
    "setting": "the setting, or two: A with B",
    "condition": "the models that it is about; missing if all",
    "advice": "set, leave or none",
    "effect": "speedup, on average over model families",
    "effect_low": "lower end of its 95 % interval",
    "effect_high": "upper end",
    "expected": "speedup in a model of another family",
    "expected_low": "lower end of its 90 % interval",
    "expected_high": "upper end",
    "n_families": "model families behind it",
    "n_models": "models behind it",
}
_COUNTS = {
    "n_rounds", "n_won", "n_trials", "memory_peak_bytes", "default_memory_peak_bytes",
    "memory_bytes", "number", "round", "n_models", "n_families",
}  # fmt: skip
"""Columns of whole numbers, which pandas would turn into floats where one is missing."""
_FIGURES = {
    "search_ratio", "speedup", "speedup_low", "speedup_high", "value", "value_low", "value_high",
    "default", "default_low", "default_high", "call_p50_s", "call_p99_s", "default_call_p50_s",
    "default_call_p99_s", "drift", "top1_agreement", "seconds_to_decide", "search_log_sd", "ratio",
}  # fmt: skip


def studies_frame(studies: Iterable[tuple[str, Result]]) -> pd.DataFrame:
    """Return one row per study and winner class, with the columns STUDIES.

    studies: the name of each and its result.
    """
    rows = [
        _of_class(name, result, winner_class)
        for name, result in studies
        for winner_class in result.winners
    ]
    frame = _frame(rows, STUDIES)
    frame["created"] = pd.to_datetime(frame["created"], utc=True, format="ISO8601")
    return frame


def trials_frame(result: Result) -> pd.DataFrame:
    """Return one row per trial, with the columns TRIALS and one for each setting."""
    settings = dict.fromkeys(knob for trial in result.trials for knob in trial.configuration)
    rows = [
        {
            "number": trial.number,
            "source": trial.source,
            "outcome": str(trial.outcome),
            "reason": trial.reason,
            "search_ratio": trial.search_ratio,
            "search_log_sd": trial.search_sd,
            "call_p50_s": trial.call_p50_s,
            "memory_bytes": trial.memory_bytes,
            **{f"{SETTING}{knob}": value for knob, value in trial.configuration.items()},
        }
        for trial in result.trials
    ]
    return _frame(rows, [*TRIALS, *(f"{SETTING}{knob}" for knob in settings)])


def rounds_frame(result: Result) -> pd.DataFrame:
    """Return one row per round and arm of the confirmation, with the columns ROUNDS."""
    section = result.confirmation
    batches = [_batch_of_default(arm, result) for arm in section.arms]
    default = batches.index(result.default.batch) if result.default.batch in batches else None
    rows = [
        {
            "round": each.number,
            "is_early": n < section.n_early,
            "arm": _label(arm),
            "is_default": batches[i] is not None,
            "value": None if log is None else result.objective.value(log),
            "ratio": _ratio(log, None if default is None else each.log_rates[default]),
        }
        for n, each in enumerate(section.rounds)
        for i, (arm, log) in enumerate(zip(section.arms, each.log_rates, strict=True))
    ]
    return _frame(rows, ROUNDS)


def rules_frame(guidelines: Guidelines) -> pd.DataFrame:
    """Return one row per rule, with the columns RULES."""
    rows = [
        {
            "framework": rule.framework,
            "setting": rule.setting,
            "condition": _condition(rule.condition),
            "advice": rule.advice,
            **_interval("effect", rule.effect),
            **_interval("expected", rule.expected),
            "n_families": rule.n_families,
            "n_models": rule.n_models,
        }
        for rule in guidelines.rules
    ]
    return _frame(rows, RULES)


def _of_class(name: str, result: Result, winner_class: WinnerClass) -> dict[str, Any]:
    winner, default = result.winners[winner_class], result.default
    call, default_call, drift = winner.call, default.call, winner.output_drift
    return {
        "study": name,
        "created": result.created,
        "tool_version": result.tool_version,
        "model": result.model,
        "framework": result.framework,
        "framework_version": result.versions.get(result.framework),
        "device": result.device,
        "processor": (result.host.identity.get("processor") or {}).get("model"),
        "fingerprint": result.host.fingerprint,
        "scenario": result.scenario,
        "metric": result.objective.metric,
        "unit": result.objective.unit,
        "winner_class": str(winner_class),
        "is_recommended": winner_class is result.recommended_class and result.verdict == "faster",
        "verdict": winner.verdict,
        "configuration": _label(winner.configuration),
        **_interval("speedup", winner.speedup),
        "search_ratio": winner.search_ratio,
        **_interval("value", winner.value or winner.rate),
        **_interval("default", default.value or default.rate),
        "n_rounds": winner.n_rounds,
        "n_won": winner.n_won,
        "memory_peak_bytes": winner.memory_peak_bytes,
        "default_memory_peak_bytes": default.memory_peak_bytes,
        "call_p50_s": None if call is None else call.p50_s,
        "call_p99_s": None if call is None else call.p99_s,
        "default_call_p50_s": None if default_call is None else default_call.p50_s,
        "default_call_p99_s": None if default_call is None else default_call.p99_s,
        "drift": None if drift is None else drift.drift,
        "top1_agreement": None if drift is None else drift.top1_agreement,
        "seconds_to_decide": winner.seconds_to_decide,
        "n_trials": len(result.trials),
        "wall_s": result.seconds.wall,
        "budget_s": result.budget_s,
    }


def _batch_of_default(arm: Mapping[str, Value], result: Result) -> int | None:
    """Return the batch of an arm that sets nothing else; None for any other arm."""
    batch = arm.get(_BATCH, result.reference_batch)
    return batch if not arm.keys() - {_BATCH} and isinstance(batch, int) else None


def _frame(rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=list(columns))
    kinds = {name: "Int64" for name in frame.columns if name in _COUNTS}
    # a column of which nothing is known would be one of objects
    kinds |= {name: "float64" for name in frame.columns if name in _FIGURES}
    return frame.astype(kinds)


def _condition(condition: Condition | None) -> str | None:
    if condition is None:
        return None
    return f"{condition.fact} {condition.relation} {condition.value}"


def _label(configuration: Mapping[str, Value]) -> str:
    return Configuration.of(configuration).label()


def _interval(name: str, interval: Interval | None) -> dict[str, float | None]:
    if interval is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: interval.point, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _ratio(log: float | None, default: float | None) -> float | None:
    return None if log is None or default is None else math.exp(log - default)
