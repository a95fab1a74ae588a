"""The evidence of a result in words: what launches and checks showed."""

from __future__ import annotations

from tuner.output.values import ratio
from tuner.record.journal import TRANSFERRED
from tuner.record.output_check import OutputCheck
from tuner.record.result import (
    BesideNeighbour,
    CompileSeconds,
    Contribution,
    OperatorProfile,
    Result,
    WinnerSection,
)
from tuner.space.catalogue import class_title
from tuner.space.knobs_of.launch import INSTANCES

_TELLING = 0.5
"""Share of a class: to say that less than this may be better takes five draws."""
_N_TOP1 = 64
"""Inputs that a comparison of classes needs; settings that keep the numerics get fewer."""


def learnt(result: Result) -> str:
    """Say how earlier studies influenced the search; empty if there were none."""
    learnt = result.learnt_from
    if learnt is None:
        return ""
    tried = sum(t.source == TRANSFERRED for t in result.trials)
    text = (
        f"Told beforehand where to look ({', '.join(learnt.studies)}): of "
        f"{learnt.n_configurations} configurations that they speak of and that exist here, {tried} "
        "were tried right after the default."
    )
    if learnt.rank_correlation is None:
        return f"{text} Too little is known to say how well they agree."
    if learnt.is_dropped:
        return (
            f"{text} They misled (rank correlation {learnt.rank_correlation:.2f}) and were dropped."
        )
    return f"{text} They rank configurations alike, by {learnt.rank_correlation:.2f} (Spearman)."


def drift(check: OutputCheck | None) -> str:
    """Write how far the outputs are from the default's; top-1 where enough inputs were compared.

    0.025 (worst part of an output 0.06), top-1 kept on 95.9% of 128 inputs; on 100.0% of 69 clear
    """
    if check is None:
        return "-"
    if not check.n_inputs:
        return "not compared"
    text = f"{check.drift:.2g}"
    if check.channel_drift is None and check.channel:  # of training
        return f"{text} of what {check.n_inputs} batches differ by ({check.channel})"
    if check.channel_drift is not None and check.channel_drift > check.drift:
        text += f" (worst part of an output {check.channel_drift:.2g})"
    if check.accuracy is not None and check.default_accuracy is not None:
        text += f", accuracy {check.accuracy:.4g} (default {check.default_accuracy:.4g})"
    if check.most_accuracy_loss is not None:
        text += f", a loss of at most {check.most_accuracy_loss:.2g} by {check.accuracy_samples}"
    if check.changed:
        text += f", {check.changed:.1%} of the integers changed"
    if check.n_inputs < _N_TOP1:
        return text
    meaning = "" if check.top1_informative else ", uninformative"
    clear = f"{check.top1_inputs} clear"
    if check.top1_all is not None:
        if check.top1_agreement is not None:
            meaning = f"; on {check.top1_agreement:.1%} of {clear}{meaning}"
        text += f", top-1 kept on {check.top1_all:.1%} of {check.n_inputs} inputs{meaning}"
    elif check.top1_agreement is not None:  # of an earlier version
        text += f", top-1 kept on {check.top1_agreement:.1%} of {clear} inputs{meaning}"
    return text


def compiling(cost: CompileSeconds) -> str:
    """Write what compiling costs, cold / warm, and after how many items a start has paid."""
    cold, warm = ("-" if s is None else f"{s:.1f} s" for s in (cost.cold, cost.warm))
    pays = f", pays after {cost.items_to_pay:,.0f} items" if cost.items_to_pay else ""
    beside = " (prepared in parallel: alone it takes less)" if cost.in_company else ""
    return f"{cold} / {warm}{pays}{beside}"


def evidence(contribution: Contribution) -> str:
    """Write the basis of a contribution."""
    if n := contribution.n_rounds:
        return f"{n} rounds of fresh, interleaved launches"
    too_few = ", from too few launches to remove it" if contribution.ratio < 1 else ""
    return f"the search: a hint, no claim{too_few}"


def steadiness(winner: WinnerSection) -> str:
    """Say whether every launch of a winner may be expected to gain; empty if nothing is claimed."""
    found = winner.stability
    if found is None:
        return ""
    meaning = {
        "stable": "Stable: nearly every start of your program gains",
        "unstable": "Unstable: faster on average, but some starts of your program are slower than "
        "the default",
        "unknown": "Whether every start of your program gains is unknown, for want of rounds",
    }[found.word]
    return f"{meaning}."


def typical(winner: WinnerSection) -> str:
    """Write which launches a speedup is of; empty without a claim."""
    found = winner.stability
    if found is None:
        return ""
    if found.unseen_one_in is None:
        return "of typical launches"
    return f"of typical launches; a slow one in {found.unseen_one_in} would not have been seen"


def beside(fared: BesideNeighbour) -> str:
    """Write how a configuration performs next to a busy neighbour, against the default there."""
    if fared.interval is not None and fared.interval.low < fared.interval.high:
        return ratio(fared.interval)
    if fared.interval is not None:  # the default itself
        return "1.00x"
    rounds = "1 round" if fared.n_rounds == 1 else f"{fared.n_rounds} rounds"
    return f"{fared.speedup:.2f}x (from {rounds})"


def of_search(result: Result) -> str:
    """Explain the ratios of the search, and their metric if claims use another."""
    by = f", by {result.objective.searched_by}" if result.objective.searched_by else ""
    return f"The ratios of the search are hints with the machine's drift taken out{by}: no claims."


def left(result: Result) -> str:
    """Say how much of the space may be better than the best; empty where draws say too little."""
    shares = [
        f"{found.better_share:.0%} of what only {class_title(winner_class)} allows "
        f"({found.n_random} draws)"
        for winner_class, found in result.left.items()
        if found.better_share <= _TELLING
    ]
    if not shares:
        return ""
    return (
        "By proposals drawn at random, what is better than the best that was tried is at most "
        f"{', '.join(shares)}, with 95 % confidence."
    )


def fared_beside(result: Result) -> dict[str, BesideNeighbour]:
    """Return by name what was measured next to a busy neighbour, the default first."""
    baselines = {b.name: b.beside_neighbour for b in result.baselines if not b.same_as}
    winners = {
        class_title(winner_class): winner.beside_neighbour
        for winner_class, winner in result.winners.items()
        if winner.verdict == "faster"
    }
    of_winners = list(winners.values())
    baselines = {name: fared for name, fared in baselines.items() if fared not in of_winners}
    everything = {"the default": result.default.beside_neighbour, **baselines, **winners}
    return {name: fared for name, fared in everything.items() if fared is not None}


def profiles(result: Result) -> dict[str, OperatorProfile]:
    """Return the profiles by name: of the default, and of the recommendation."""
    winner = result.winners[result.recommended_class]
    found = {"default": result.default.profile}
    if winner.verdict == "faster":
        found[class_title(result.recommended_class)] = winner.profile
    return {n: p for n, p in found.items() if p is not None and any(o.seconds for o in p.operators)}


def profiled_how(result: Result) -> str:
    """Explain the profiles and their limits."""
    parts = []
    for name, profile in profiles(result).items():
        winner = result.winners[result.recommended_class]
        n = 1 if name == "default" else winner.configuration.get(INSTANCES, 1)
        alone = f", one of {n} instances while the others waited" if n != 1 else ""
        parts.append(f"{name}: {_time(profile.call_s)} a call at batch {profile.batch}{alone}")
    hows = dict.fromkeys(profile.how for profile in profiles(result).values())
    return (
        f"Shares of what all operators took, by {'; '.join(hows)}, outside scored slices. A "
        f"profiler slows what it watches. {'; '.join(parts)}."
    )


def memory(winner: WinnerSection) -> str:
    """Write a winner's peak memory: the card's, if a card computes."""
    if (on_card := winner.device_memory) is not None:
        return f"{on_card.reserved_peak_bytes / 2**20:.0f} MiB of the GPU's"
    size = winner.memory_peak_bytes
    return "-" if size is None else f"{size / 2**20:.0f} MiB"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
