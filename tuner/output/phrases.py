"""A result in words: how its parts are written in reports and on a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from tuner.frameworks import FRAMEWORKS
from tuner.output.price import price
from tuner.output.values import bounds, default_value, metric, winner_value, worth_in_unit
from tuner.record.configuration import Configuration, Value
from tuner.record.interval import Interval
from tuner.record.journal import TRANSFERRED, WinnerClass
from tuner.record.launch import OutputCheck
from tuner.record.noisiness import MOSTLY_DISTURBED, floor_in_words, is_too_noisy
from tuner.record.result import (
    BaselineSection,
    BesideNeighbour,
    CompileSeconds,
    Contribution,
    OperatorProfile,
    Result,
    Verdict,
    WinnerSection,
)
from tuner.space.as_run import AS_RUN, shown
from tuner.space.catalogue import winner_class
from tuner.space.knobs_of.launch import BATCH, INSTANCES

_N_TOP1 = 64
"""Inputs that a comparison of classes needs; settings that keep the numerics get fewer."""


def ratio(interval: Interval | None) -> str:
    """Write a ratio with its interval: 1.65x (1.52 - 1.79)."""
    if interval is None:
        return "-"
    return f"{interval.point:.2f}x ({interval.low:.2f} - {_number(interval.high)})"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else "unbounded"


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
    is_default = set(winner.configuration) == {BATCH}
    return "the default, " if is_default else "the default; best candidate: "


def is_recommended(result: Result, klass: str) -> bool:
    """Tell whether a class's winner is what recommended.toml holds."""
    return klass == result.recommended_class and result.winners[klass].verdict == "faster"


def standing(baseline: BaselineSection) -> str:
    """Say whether a baseline applies here and was measured; empty if both, as itself."""
    if not baseline.applicable:
        return f"not applicable: {baseline.reason}"
    if baseline.same_as:
        return f"same as {baseline.same_as}"
    return "" if baseline.search_ratio else f"not measured: {baseline.reason}"


def changes(baseline: BaselineSection) -> list[str]:
    """Say what of a recommendation is different here: what stands in, and what has no effect."""
    return [*baseline.substituted, *(f"dead: {text}" for text in baseline.dead_settings)]


def over_best_baseline(result: Result) -> str:
    """Write the gain over the best baseline; where there is none, why."""
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
    """Say which variables were removed from what was measured; empty if none was set."""
    if not result.environment:
        return ""
    return f"{shown(result.environment)}: set in the shell, and removed from what was measured"


def against_as_run(result: Result) -> str:
    """Say what is gained against the environment that was set; empty where none was."""
    own = next((b for b in result.baselines if b.name == AS_RUN), None)
    if own is None:
        return ""
    if not own.applicable:
        return f"not measured: {own.reason}"
    if own.same_as == "default":
        return "the same: what is set has no effect here"
    if result.speedup_over_as_run is not None:
        whose = "" if result.verdict == "faster" else ", with nothing set"
        return f"{ratio(result.speedup_over_as_run)}{whose}"
    recommended = _bare(result.winners[result.recommended_class].configuration)
    if result.verdict == "faster" and recommended == own.configuration:
        return "that is what is recommended"
    return standing(own) or "too few rounds compare it"


def _bare(configuration: dict[str, Value]) -> dict[str, Value]:
    """Return a configuration without its batch size, as baselines are written."""
    return {knob: value for knob, value in configuration.items() if knob != BATCH}


def with_reduced(result: Result) -> str:
    """Write what reduced numerics gain beyond what is recommended; empty if nothing."""
    winner, recommended = (
        result.winners[WinnerClass.REDUCED],
        result.winners[result.recommended_class],
    )
    reduces = winner_class(Configuration.of(winner.configuration)) is WinnerClass.REDUCED
    if not reduces or winner.verdict != "faster" or winner.speedup is None:
        return ""
    gain = recommended.speedup if recommended.verdict == "faster" else None
    if gain is not None and winner.speedup.point <= gain.point:
        return ""
    return f"{ratio(winner.speedup)} against the default: recommended.reduced.toml holds it"


def _learnt(result: Result) -> str:
    """Say what the search made of earlier studies; empty if it had none."""
    learnt = result.learnt_from
    if learnt is None:
        return ""
    tried = sum(t.source == TRANSFERRED for t in result.trials)
    text = (
        f"Earlier studies told where to look ({', '.join(learnt.studies)}): they measured "
        f"{learnt.n_configurations} configurations that exist here, of which {tried} were tried "
        "first."
    )
    if learnt.rank_correlation is None:
        return f"{text} Too little is known to say how well they agree."
    if learnt.is_dropped:
        return (
            f"{text} They misled (rank correlation {learnt.rank_correlation:.2f}) and were dropped."
        )
    return f"{text} They rank configurations alike, by {learnt.rank_correlation:.2f} (Spearman)."


def _time_spent(result: Result) -> str:
    """Write where the seconds of a study went."""
    spent = result.seconds
    known_s = sum(msgspec.structs.astuple(spent)) - spent.wall
    entry = FRAMEWORKS.get(result.framework)
    is_virtual = entry is not None and entry.is_virtual
    whose = "of the launches' virtual seconds: " if is_virtual else ""
    rest = (
        "" if is_virtual else f", the tool itself and ending processes {spent.wall - known_s:.0f} s"
    )
    return (
        f"{spent.wall:.0f} s of {result.budget_s:.0f} s: {whose}"
        f"scored {spent.scored:.0f} s, pacer {spent.pacer:.0f} s, warm-up, output checks and "
        f"profiles {spent.warm_up:.0f} s, compilation {spent.compile:.0f} s, start-up "
        f"{spent.start_up:.0f} s, waiting and disturbed slices {spent.waiting:.0f} s{rest}."
    )


def _drift(check: OutputCheck | None) -> str:
    """Write how far the outputs are from the default's; top-1 where enough inputs were compared."""
    if check is None:
        return "-"
    if not check.n_inputs:
        return "not compared"
    text = f"{check.drift:.2g}"
    if check.accuracy is not None and check.default_accuracy is not None:
        text += f", accuracy {check.accuracy:.4g} (default {check.default_accuracy:.4g})"
    if check.top1_agreement is not None and check.n_inputs >= _N_TOP1:
        meaning = "" if check.top1_informative else " (uninformative)"
        text += f", top-1 {check.top1_agreement:.1%}{meaning}"
    return text


def _compiling(cost: CompileSeconds) -> str:
    """Write what compiling costs, cold / warm, and after how many items a start has paid."""
    cold, warm = ("-" if s is None else f"{s:.1f} s" for s in (cost.cold, cost.warm))
    pays = f", pays after {cost.items_to_pay:,.0f} items" if cost.items_to_pay else ""
    return f"{cold} / {warm}{pays}"


def disturbance(result: Result) -> str:
    """Say that the headline was measured on a busy host, where it was; empty where not."""
    if result.verdict == "ambiguous" and is_too_noisy(result.noise_floor, result.noise.launch_sd):
        return _too_noisy(result)
    share = result.winners[result.recommended_class].disturbed
    if share <= MOSTLY_DISTURBED:
        return ""
    return (
        f"The host was busy: {share:.0%} of the slices behind this were disturbed. It says what is "
        "so beside such a load, and may not hold on a quiet host."
    )


def _too_noisy(result: Result) -> str:
    """Say what made a host too noisy to compare anything there, and what to do."""
    noise = result.noise
    found = [each.what for each in noise.disturbances]
    remedies = [each.remedy for each in noise.disturbances]
    if not found and noise.dirty_slices:  # a result of an earlier version
        found = [f"{noise.dirty_slices} of {noise.slices} slices were disturbed"]
    what = "; ".join(found) or "nothing that can be seen from here disturbed it"
    todo = "; ".join(remedies) or "take another host, or another hour"
    return (
        "The host was too noisy: two launches of the same program may differ by more than half "
        f"here ({what}). What to do: {todo}; then tune again with a new --out."
    )


def noise_floor(result: Result) -> str:
    """Write the noise floor; one that is too high to mean anything as what it comes from."""
    return floor_in_words(result.noise_floor, result.noise.launch_sd)


def with_along(contribution: Contribution) -> str:
    """Write a setting, with those that mean nothing without it."""
    along = f" (with {', '.join(contribution.along)})" if contribution.along else ""
    return f"{contribution.knob}={contribution.value}{along}"


def worth(contribution: Contribution) -> str:
    """Write what a setting is worth; with an interval, unless it is a hint of the search."""
    if contribution.speedup is None:
        return f"{contribution.ratio:.2f}x"
    return ratio(contribution.speedup)


def worth_unknown(result: Result) -> list[str]:
    """Return the recommended settings of which nothing tells what they are worth.

    The batch is none of them: both are compared at their best one.
    """
    found = result.contributions or []
    told = {BATCH, *(knob for c in found for knob in (c.knob, *c.along))}
    winner = result.winners[result.recommended_class].configuration
    return [f"{knob}={value}" for knob, value in winner.items() if knob not in told]


def _evidence(contribution: Contribution) -> str:
    """Say what a contribution rests on."""
    if n := contribution.n_rounds:
        return f"{n} rounds of fresh, interleaved launches"
    too_few = ", from too few launches to remove it" if contribution.ratio < 1 else ""
    return f"the search: a hint, no claim{too_few}"


def _beside(fared: BesideNeighbour) -> str:
    """Write how a configuration fares beside a busy neighbour, against the default there."""
    if fared.interval is not None and fared.interval.low < fared.interval.high:
        return ratio(fared.interval)
    if fared.interval is not None:  # the default itself
        return "1.00x"
    rounds = "1 round" if fared.n_rounds == 1 else f"{fared.n_rounds} rounds"
    return f"{fared.speedup:.2f}x (from {rounds})"


def fared_beside(result: Result) -> dict[str, BesideNeighbour]:
    """Return by name what was measured beside a busy neighbour, the default first."""
    baselines = {b.name: b.beside_neighbour for b in result.baselines if not b.same_as}
    winners = {
        name: w.beside_neighbour for name, w in result.winners.items() if w.verdict == "faster"
    }
    of_winners = list(winners.values())
    baselines = {name: fared for name, fared in baselines.items() if fared not in of_winners}
    everything = {"the default": result.default.beside_neighbour, **baselines, **winners}
    return {name: fared for name, fared in everything.items() if fared is not None}


def profiles(result: Result) -> dict[str, OperatorProfile]:
    """Return where the time of a call goes, by name: in the default, and in what is recommended."""
    winner = result.winners[result.recommended_class]
    found = {"default": result.default.profile}
    if winner.verdict == "faster":
        found[result.recommended_class] = winner.profile
    return {n: p for n, p in found.items() if p is not None and any(o.seconds for o in p.operators)}


def profiled_how(result: Result) -> str:
    """Say what the profiles are of, and what they do not tell."""
    parts = []
    for name, profile in profiles(result).items():
        section = result.winners.get(name)
        n = section.configuration.get(INSTANCES, 1) if section else 1
        alone = f", one of {n} instances while the others waited" if n != 1 else ""
        parts.append(f"{name}: {_time(profile.call_s)} a call at batch {profile.batch}{alone}")
    hows = dict.fromkeys(profile.how for profile in profiles(result).values())
    return (
        f"Shares of what all operators took, by {'; '.join(hows)}, outside scored slices. A "
        f"profiler slows what it watches. {'; '.join(parts)}."
    )


def _prose(text: object) -> str:
    """Keep a value from being anything but words in Markdown, in a table or outside."""
    words = re.sub(r"([\\`*\[\]<>|#~$]|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(str(text).split()))
    return re.sub(r"(?<!\w)@(?=\w)", "@\u200b", words)  # or GitHub would call someone


def _code(text: object) -> str:
    """Keep a value inside the backticks that it stands between in Markdown."""
    return " ".join(str(text).split()).replace("`", "'")


def _mebibytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.0f} MiB"


def _calling(winner: WinnerSection, result: Result) -> str:
    """Say what a call takes beside the default's: instances answer more often, and later."""
    mine, default = winner.call, result.default.call
    if mine is None or default is None or not winner.configuration:
        return ""
    batch = winner.configuration.get(BATCH, result.reference_batch)
    n = winner.configuration.get(INSTANCES, 1)
    team = f" of each of {n} instances" if n != 1 else ""
    summed = "Its rate is the sum of its instances'. " if n != 1 else ""
    return summed + (
        f"Half of the calls{team} with {_items(batch)} take at most {_time(mine.p50_s)}, "
        f"99 % at most {_time(mine.p99_s)}; the default's with {_items(result.default.batch)}: "
        f"{_time(default.p50_s)} and {_time(default.p99_s)} ({mine.n_calls} and "
        f"{default.n_calls} calls were timed)."
    )


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _items(n: Value) -> str:
    return "1 item" if n == 1 else f"{n} items"


def model_size(result: Result) -> str:
    """Write how large a model is, as far as that is known; empty of a program."""
    facts = result.model_facts
    told = [f"{result.n_parameters:,} parameters"] if result.n_parameters else []
    if facts is not None and facts.macs is not None:
        told.append(f"{facts.macs:,} multiply-accumulates per sample ({facts.macs_by})")
    return ", ".join(told)


def same_settings(result: Result, name: str) -> str:
    """Return a class told before whose winner has the same settings; empty if none."""
    return _told_before(result, name, lambda winner: winner.configuration)


def same_winner(result: Result, name: str) -> str:
    """Return a class told before of whose winner all the same is said; empty if none."""
    return _told_before(result, name, lambda w: (w.configuration, w.reason, w.removed))


def _told_before(result: Result, name: str, said: Callable[[WinnerSection], object]) -> str:
    names = list(result.winners)
    earlier = names[: names.index(name)]
    mine = said(result.winners[name])
    return next((other for other in earlier if said(result.winners[other]) == mine), "")


FILTERS: dict[str, Callable[..., Any]] = {
    "ratio": ratio,
    "settings": settings,
    "candidate": best_candidate,
    "standing": standing,
    "changes": changes,
    "learnt": _learnt,
    "time_spent": _time_spent,
    "drift": _drift,
    "over_best_baseline": over_best_baseline,
    "removed": removed,
    "against_as_run": against_as_run,
    "price": price,
    "with_reduced": with_reduced,
    "compiling": _compiling,
    "worth": worth,
    "with_along": with_along,
    "disturbance": disturbance,
    "noise_floor": noise_floor,
    "evidence": _evidence,
    "beside": _beside,
    "fared": fared_beside,
    "profiles": profiles,
    "profiled_how": profiled_how,
    "prose": _prose,
    "code": _code,
    "mebibytes": _mebibytes,
    "calling": _calling,
    "default_value": default_value,
    "winner_value": winner_value,
    "worth_in_unit": worth_in_unit,
    "metric": metric,
    "bounds": bounds,
    "model_size": model_size,
    "same_settings": same_settings,
    "same_winner": same_winner,
    "verdict": verdict_line,
}
"""Of the templates: each writes one thing."""
