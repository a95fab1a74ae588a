"""The costs of a recommendation: memory, and the time of a call."""

from __future__ import annotations

from tuner.output.values import compared, milliseconds
from tuner.record.objective import THROUGHPUT
from tuner.record.result import DefaultSection, Result, WinnerSection
from tuner.space.knobs_of.launch import BATCH, INSTANCES


def price(result: Result) -> str:
    """Write the cost of the recommended settings and, in brackets, of the default.

    Empty if nothing is recommended, or if an earlier version did not store the figures.
    """
    if result.verdict != "faster":
        return ""
    winner, default = result.winners[result.recommended_class], result.default
    if result.objective.metric == THROUGHPUT.metric:
        call = _call(winner, default, result.reference_batch)
    else:
        call = compared(winner, result)
    parts = [_memory(winner, default), call, _energy(winner, default)]
    return "; ".join(part for part in parts if part)


def _memory(winner: WinnerSection, default: DefaultSection) -> str:
    """Write the memory that is short: the card's where one computed."""
    on_card, by_default = winner.device_memory, default.device_memory
    if on_card is not None and by_default is not None:
        held, usual = on_card.reserved_peak_bytes, by_default.reserved_peak_bytes
        return f"GPU memory {held / 2**20:.0f} MiB (default {usual / 2**20:.0f} MiB)"
    mine, other = winner.memory_peak_bytes, default.memory_peak_bytes
    if not mine or not other:
        return ""
    return f"memory {mine / 2**20:.0f} MiB (default {other / 2**20:.0f} MiB)"


def short_memory(winner: WinnerSection, default: DefaultSection) -> str:
    """Write the memory in short: 681 MiB (default 423); empty if it is unknown."""
    return _memory(winner, default).removeprefix("memory ").replace(" MiB)", ")")


def short_call(winner: WinnerSection, result: Result) -> str:
    """Write the median time of a call if it is not the metric: call 1,435 ms (default 326)."""
    mine, other = winner.call, result.default.call
    if mine is None or other is None or result.objective.metric != THROUGHPUT.metric:
        return ""
    return f"call {milliseconds(mine.p50_s)} (default {milliseconds(other.p50_s)})".replace(
        " ms)", ")"
    )


def _energy(winner: WinnerSection, default: DefaultSection) -> str:
    mine, other = winner.joules_per_item, default.joules_per_item
    if mine is None or other is None:
        return ""
    return f"{1000 * mine:.3g} mJ an item on the GPU (default {1000 * other:.3g} mJ)"


def _call(winner: WinnerSection, default: DefaultSection, reference_batch: int) -> str:
    """Write the medians; of several instances, each answers its own calls."""
    mine, other = winner.call, default.call
    if mine is None or other is None:
        return ""
    batch = winner.configuration.get(BATCH, reference_batch)
    n = winner.configuration.get(INSTANCES, 1)
    team = f" in each of {n} instances" if n != 1 else ""
    return (
        f"a call takes {milliseconds(mine.p50_s)} at batch {batch}{team} (default "
        f"{milliseconds(other.p50_s)} at batch {default.batch})"
    )
