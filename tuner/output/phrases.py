"""A result in words: how its parts are written in reports and on a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from tuner.output.caveats import disturbance, faster_still
from tuner.output.evidence import (
    beside,
    compiling,
    drift,
    evidence,
    fared_beside,
    learnt,
    left,
    memory,
    of_search,
    profiled_how,
    profiles,
    steadiness,
    typical,
)
from tuner.output.price import price
from tuner.output.serving import (
    edge_in_words,
    highest_rate,
    how_tried,
    latency_bound,
    loadgen_in_words,
    queue_in_words,
    served,
)
from tuner.output.spending import in_seconds, of_phase, time_spent, went
from tuner.output.training import loading_in_words, step_memory, time_to_target_in_words
from tuner.output.values import (
    bounds,
    default_value,
    metric,
    ratio,
    score_in_unit,
    winner_ratio,
)
from tuner.output.why import first_reason, heads, in_short, rows, what_is_left
from tuner.record.configuration import Value
from tuner.record.designed import DesignedCell
from tuner.record.identities import card
from tuner.record.index import CONFIRMED, Row
from tuner.record.load import SERVER
from tuner.record.noisiness import floor_in_words
from tuner.record.outcome import Outcome
from tuner.record.result import (
    BaselineSection,
    Contribution,
    Result,
    Verdict,
    WinnerSection,
)
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import CPU
from tuner.space.as_run import AS_RUN, shown
from tuner.space.knobs_of.launch import BATCH


def verdict_line(verdict: Verdict) -> str:
    """Say a verdict in words."""
    return {
        "faster": "faster than the default",
        "keep_default": "keep the default",
        "ambiguous": "not decided",
    }[verdict]


def settings(configuration: dict[str, Any]) -> str:
    """Write a configuration on one line."""
    return " ".join(f"{knob}={value}" for knob, value in configuration.items()) or "the default"


def best_candidate(winner: WinnerSection) -> str:
    """Return what precedes the settings of a class that nothing is recommended for."""
    if winner.verdict == "faster" or not winner.configuration:
        return ""
    if set(winner.configuration) == {BATCH}:
        return "the default, "
    reached = winner.search_ratio
    if reached is None and winner.speedup is not None:
        reached = winner.speedup.point
    is_slower = reached is not None and reached < 1
    return f"the default; {'tried, and not faster' if is_slower else 'best candidate'}: "


def is_recommended(result: Result, winner_class: WinnerClass) -> bool:
    """Tell whether a class's winner is what recommended.toml holds."""
    return (
        winner_class == result.recommended_class
        and result.winners[winner_class].verdict == "faster"
    )


def standing(baseline: BaselineSection) -> str:
    """Say whether a baseline applies here and was measured; empty if both, as itself."""
    if not baseline.applicable:
        return f"not applicable: {baseline.reason}"
    if baseline.same_as:
        return f"same as {baseline.same_as}"
    return f"not measured: {baseline.reason}" if baseline.reason else ""


def changes(baseline: BaselineSection) -> list[str]:
    """Write how a vendor recommendation differs here: substitutes, and ineffective settings."""
    return [*baseline.substituted, *(f"no effect: {text}" for text in baseline.dead_settings)]


def sources(result: Result) -> dict[str, int]:
    """Return each source of a recommendation once, with the number of its footnote."""
    distinct = dict.fromkeys(baseline.source for baseline in result.baselines)
    return {source: number for number, source in enumerate(distinct, start=1)}


def over_best_baseline(result: Result) -> str:
    """Write the gain over the best baseline, or why there is none."""
    name = result.best_baseline
    if name is None:
        return "the baselines were not measured"
    if result.speedup_over_best_baseline is not None:
        return f"{ratio(result.speedup_over_best_baseline)} over {name}"
    if result.verdict != "faster":
        return f"nothing is recommended; the best baseline is {name}"
    best = next(b.configuration for b in result.baselines if b.name == name)
    if _bare(result.winners[result.recommended_class].configuration) == best:
        return f"the winner is {name}"
    if best not in map(_bare, result.confirmation.arms):
        return f"the best baseline, {name}, was not confirmed"
    return f"too few rounds compare it with {name}"


def removed(result: Result) -> str:
    """Write which variables were removed from the measured processes; empty if none was set."""
    if not result.environment:
        return ""
    return f"{shown(result.environment)}: set in the shell, and removed from what was measured"


def against_as_run(result: Result) -> str:
    """Write the gain over the environment that was set; empty if none was."""
    own = next((b for b in result.baselines if b.name == AS_RUN), None)
    if own is None:
        return ""
    if not own.applicable:
        return f"not measured: {own.reason}"
    if own.same_as == "default":
        return "the same: these settings have no effect here"
    if result.speedup_over_as_run is not None:
        whose = "" if result.verdict == "faster" else ", with nothing set"
        return f"{ratio(result.speedup_over_as_run)}{whose}"
    recommended = _bare(result.winners[result.recommended_class].configuration)
    if result.verdict == "faster" and recommended == own.configuration:
        return "that is the recommendation"
    return standing(own) or "too few rounds compare it"


def _bare(configuration: dict[str, Value]) -> dict[str, Value]:
    """Return a configuration without its batch size, as baselines are written."""
    return {knob: value for knob, value in configuration.items() if knob != BATCH}


def noise_floor(result: Result) -> str:
    """Write the noise floor; if it is too high to mean anything, its cause."""
    return floor_in_words(
        result.noise_floor,
        result.noise.launch_sd,
        is_served=result.scenario == SERVER,
    )


def with_along(contribution: Contribution) -> str:
    """Write a setting, with those that have no meaning without it."""
    along = f" (with {', '.join(contribution.along)})" if contribution.along else ""
    return f"{contribution.knob}={contribution.value}{along}"


def effect(contribution: Contribution) -> str:
    """Write the effect of a setting; with an interval, unless it is a hint of the search."""
    if contribution.speedup is None:
        return f"{contribution.ratio:.2f}x"
    return ratio(contribution.speedup)


def _prose(text: object) -> str:
    """Keep a value from being anything but words in Markdown, in a table or outside."""
    words = re.sub(r"([\\`*\[\]<>|#~$]|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(str(text).split()))
    return re.sub(r"(?<!\w)@(?=\w)", "@\u200b", words)  # or GitHub would call someone


def _code(text: object) -> str:
    """Keep a value inside the backticks that it stands between in Markdown."""
    return " ".join(str(text).split()).replace("`", "'")


def model_size(result: Result) -> str:
    """Write how large a model is, as far as that is known; empty of a program."""
    facts = result.model_facts
    parts = [f"{result.n_parameters:,} parameters"] if result.n_parameters else []
    if facts is not None and facts.macs is not None:
        parts.append(f"{facts.macs:,} multiply-accumulates per sample ({facts.macs_by})")
    if facts is not None and facts.item != "sample":
        parts.append(f"an item is a {facts.item}")
    return ", ".join(parts)


def gpu(result: Result) -> str:
    """Name the GPU that computed; empty if the CPU did."""
    return "" if result.device == CPU else card(result.host.identity["gpus"][0])


def same_settings(result: Result, winner_class: WinnerClass) -> WinnerClass | None:
    """Return a narrower class whose winner has the same settings, or None."""
    return _narrower(result, winner_class, lambda winner: winner.configuration)


def same_winner(result: Result, winner_class: WinnerClass) -> WinnerClass | None:
    """Return a narrower class of whose winner the report says the same, or None."""
    return _narrower(result, winner_class, lambda w: (w.configuration, w.reason, w.removed))


def _narrower(
    result: Result, winner_class: WinnerClass, printed: Callable[[WinnerSection], object]
) -> WinnerClass | None:
    classes = list(result.winners)
    narrower = classes[: classes.index(winner_class)]
    mine = printed(result.winners[winner_class])
    return next((other for other in narrower if printed(result.winners[other]) == mine), None)


def designed(cell: DesignedCell) -> str:
    """Say what became of a cell of the designed part."""
    ratio_ = "-" if cell.log_ratio is None else f"{math.exp(cell.log_ratio):.2f}x"
    failed = cell.outcome if cell.outcome not in (None, Outcome.MEASURED) else ""
    return ", ".join(filter(None, (ratio_, failed, cell.reason)))


def percent(share: float) -> str:
    """Write a share: 3.1 %."""
    return f"{share:.1%}".replace("%", " %")


def elsewhere(row: Row) -> str:
    """Write the results of other hosts of the kind for a winner."""
    if row.verdict != "faster":
        return ""
    if not row.elsewhere:
        return "not asked yet" if row.n_elsewhere else "no other host was asked"
    return "; ".join(
        f"{each.host}{' (it had part in the study)' if each.host in row.hosts else ''}: "
        f"{each.verdict}"
        + (f", {ratio(each.speedup)}" if each.speedup is not None else "")
        + ("" if each.verdict == CONFIRMED else f" ({each.reason})")
        for each in row.elsewhere
    )


FILTERS: dict[str, Callable[..., Any]] = {
    "percent": percent,
    "gpu": gpu,
    "designed": designed,
    "ratio": ratio,
    "settings": settings,
    "candidate": best_candidate,
    "standing": standing,
    "sources": sources,
    "changes": changes,
    "learnt": learnt,
    "left": left,
    "time_spent": time_spent,
    "went": went,
    "of_phase": of_phase,
    "in_seconds": in_seconds,
    "drift": drift,
    "over_best_baseline": over_best_baseline,
    "removed": removed,
    "against_as_run": against_as_run,
    "price": price,
    "compiling": compiling,
    "effect": effect,
    "with_along": with_along,
    "disturbance": disturbance,
    "faster_still": faster_still,
    "noise_floor": noise_floor,
    "evidence": evidence,
    "loading": loading_in_words,
    "step_memory": step_memory,
    "time_to_target": time_to_target_in_words,
    "beside": beside,
    "fared": fared_beside,
    "steadiness": steadiness,
    "typical": typical,
    "of_search": of_search,
    "profiles": profiles,
    "why": in_short,
    "why_heads": heads,
    "why_rows": rows,
    "what_is_left": what_is_left,
    "first_reason": first_reason,
    "profiled_how": profiled_how,
    "prose": _prose,
    "code": _code,
    "memory": memory,
    "default_value": default_value,
    "winner_ratio": winner_ratio,
    "score_in_unit": score_in_unit,
    "metric": metric,
    "bounds": bounds,
    "model_size": model_size,
    "same_settings": same_settings,
    "same_winner": same_winner,
    "verdict": verdict_line,
    "elsewhere": elsewhere,
    "latency_bound": latency_bound,
    "served": served,
    "highest_rate": highest_rate,
    "edge": edge_in_words,
    "queue": queue_in_words,
    "how_tried": how_tried,
    "loadgen": loadgen_in_words,
}
"""The functions that templates may call: each writes one thing."""
