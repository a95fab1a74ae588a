"""A server's rates in words: the rate within the bound, the latency there, LoadGen's results."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.output.values import in_unit, value_of
from tuner.record.configuration import Value
from tuner.record.figures import figure
from tuner.record.load import Slo
from tuner.record.result import DefaultSection, Result, WinnerSection
from tuner.record.serving import Serving, Validation
from tuner.record.workload import SERVICE
from tuner.space.catalogue import class_title

_WORDS = {"valid": "VALID", "too_short": "too short", "too_slow": "too slow"}


def latency_bound(result: Result) -> str:
    """Write the bound and its origin; empty without one."""
    slo = result.objective.slo
    if slo is None:
        return ""
    text = f"{slo.name} within {1000 * slo.seconds:.3g} ms ({slo.asked})"
    trace = slo.trace
    return text if trace is None else (
        f"{text}; requests arrive as in {trace.path} ({trace.n_requests} at "
        f"{figure(trace.rate)}/s)"
    )  # fmt: skip


def served(result: Result) -> dict[str, DefaultSection | WinnerSection]:
    """Return what requests were sent to, by name: the default and each winner that is another."""
    found: dict[str, DefaultSection | WinnerSection] = {"the default": result.default}
    seen: list[dict[str, Value]] = []
    for winner_class, winner in result.winners.items():
        if winner.configuration not in ({}, *seen):
            found[class_title(winner_class)] = winner
            seen.append(winner.configuration)
    return {name: section for name, section in found.items() if section.serving is not None}


def highest_rate(section: DefaultSection | WinnerSection, result: Result) -> str:
    """Write the highest rate within the bound, or that no launch met it."""
    value = value_of(section)
    if section.serving is not None and not section.serving.n_met:
        return "none"
    if value is None:
        return "not known: too few rounds"
    slo = result.objective.slo
    trace = None if slo is None else slo.trace
    pace = "" if trace is None else f": {figure(value.point / trace.rate)} times the trace's pace"
    valid = last_valid(section)
    text = "" if valid is None else f"; LoadGen: VALID at {figure(valid)}"
    return f"{in_unit(value, result)}{pace}{text}"


def edge_in_words(serving: Serving) -> str:
    """Say in how many launches the bound was kept, and what a little more load does."""
    met = f"kept in {serving.n_met} of {serving.n_launches} launches"
    if not serving.n_met:
        return met
    if serving.is_open:
        return f"{met}; no rate that was tried was too high, so that it is a least"
    pauses = serving.pauses
    if pauses is not None:
        return (
            f"{met}; not the load makes requests late, but pauses of about "
            f"{1000 * pauses.seconds:.0f} ms, one in {pauses.every_s:.0f} s"
        )
    if serving.slope is None:
        return met
    return f"{met}; with 10 % more load {1.1**serving.slope:.1f} times as many are late"


def queue_in_words(serving: Serving) -> str:
    """Write the queue's share of the median latency at the highest rate within the bound."""
    return "-" if serving.queue_share is None else f"{serving.queue_share:.0%}"


def how_tried(result: Result) -> str:
    """Write the number of requests behind the rates, their cost, and the limits of LoadGen.

    result: of a server to which requests were sent.
    """
    sections = served(result).values()
    servings = [section.serving for section in sections if section.serving is not None]
    tried = [rate.n_requests for serving in servings for rate in serving.rates]
    cost = f"for at most {100 * max(each.generator for each in servings):.1f} % of one CPU's time"
    facts = result.model_facts
    is_own = facts is not None and facts.form == SERVICE
    n_trials = max(len(serving.rates) for serving in servings)
    paragraphs = [
        f"Each rate is estimated from the share of late requests in up to {n_trials} trials of "
        f"{min(tried)} to {max(tried)} requests.",
        f"They were posted from beside the server, {cost} an instance."
        if is_own
        else f"They were sorted in the servers' own processes, {cost}: a front end of your own "
        "comes on top.",
    ]
    if any(section.validations for section in sections):
        paragraphs.append(
            "No MLPerf result: LoadGen ran for less than the ten minutes that its rules ask for."
        )
    return " ".join(paragraphs)


def last_valid(section: DefaultSection | WinnerSection) -> float | None:
    """Return the highest rate that LoadGen found VALID; None if there is none."""
    answers = [v.told for v in section.validations if v.told is not None]
    return max((each.rate for each in answers if each.word == "valid"), default=None)


def loadgen_in_words(
    validations: Sequence[Validation], serving: Serving | None = None, slo: Slo | None = None
) -> str:
    """Write LoadGen's results with their basis, and its reason for the last.

    serving: with the rate, which tells how many late requests agree with it.
    """
    if not validations:
        return "not asked"
    answer = validations[-1].told
    reason = f" ({answer.reason})" if answer is not None and answer.reason else ""
    return "; then ".join(_word(each, serving, slo) for each in validations) + reason


def _word(validation: Validation, serving: Serving | None, slo: Slo | None) -> str:
    answer = validation.told
    if answer is None:
        return f"no word: {validation.fault}"
    late = f"{answer.n_over} of {answer.n_requests} late"
    if serving is not None and slo is not None:
        most = serving.most_late(answer.scheduled_rate, answer.n_requests, slo.allowed)
        late += "" if most is None else f" (up to {most:.0f} agree with the rate)"
    disturbed = f", while {validation.disturbed[0]}" if validation.disturbed else ""
    said = f"{_WORDS[answer.word]} at {figure(answer.rate)}/s"
    return f"{said}: {late} in {answer.duration_s:.0f} s{disturbed}"
