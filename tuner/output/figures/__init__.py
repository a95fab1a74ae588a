"""The figures of a report, one file each: a result becomes a Vega-Lite chart, or None."""

from __future__ import annotations

from collections.abc import Callable

from tuner.output.figures.batches import batches
from tuner.output.figures.chart import Chart
from tuner.output.figures.contributions import contributions
from tuner.output.figures.front import front
from tuner.output.figures.history import history
from tuner.output.figures.operators import operators
from tuner.output.figures.parallel import parallel
from tuner.output.figures.roofline import roofline
from tuner.output.figures.speedups import speedups
from tuner.output.figures.spending import spending
from tuner.output.figures.timeline import timeline
from tuner.output.figures.why import why
from tuner.record.result import Result

FIGURES: dict[str, Callable[[Result], Chart | None]] = {
    "speedups": speedups,
    "contributions": contributions,
    "operators": operators,
    "batches": batches,
    "front": front,
    "history": history,
    "parallel": parallel,
    "timeline": timeline,
    "spending": spending,
    "why": why,
    "roofline": roofline,
}
"""By their names in the template."""
