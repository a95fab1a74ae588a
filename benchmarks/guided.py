"""What rules of other families let a study expect on a recorded table.

As on a host that taught none of them, for no table says which instructions its own has: what holds
of every host is told. What can be set is asked of the host that replays, which has to have as many
cores as the tables' hosts, two; of an own table whose family alone has its kind, rules with a
condition say nothing.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from benchmarks.table import Table
from tuner.app.plan import Plan, plan
from tuner.app.request import Request
from tuner.errors import UsageError
from tuner.guidelines.prior import as_earlier
from tuner.guidelines.studies import make_guidelines, read_recordings
from tuner.host.identity import Host, probe
from tuner.record.guidelines import Guidelines
from tuner.search.transfer import Earlier
from tuner.space.design import Factors

_ANOTHER = "another processor"
_CORES = 2
"""Of the hosts of the tables."""


@functools.lru_cache(maxsize=2)
def _rules_for(
    recordings: Path, model: str, framework: str
) -> tuple[Guidelines, Plan, Factors, Host]:
    """Learn rules without a model's family; build the model for its facts."""
    here = probe()
    if here.physical_cores != _CORES:
        raise UsageError(f"the tables are of {_CORES} cores, and here are {here.physical_cores}")
    (planned,) = plan(Request(model=model, frameworks=(framework,)), here)
    factors = Factors(planned.profile, here, planned.workload, planned.facts, planned.space)
    own = planned.workload.card.family
    others = [each for each in read_recordings([recordings]) if each.family != own]
    processor = msgspec.structs.replace(here.processor, model=_ANOTHER, isa=())
    there = msgspec.structs.replace(here, processor=processor)
    return make_guidelines(others, ""), planned, factors, there


def is_asked(table: Table) -> bool:
    """Tell whether rules, which are of throughput, may say anything of a table."""
    return table.recording is not None and table.recording.objective == "rate"


def expected_on(table: Table, recordings: Path, seed: int) -> list[Earlier]:
    """Return what a study is told by --guidelines of a table that is asked about.

    seed: decides whether a setting is withheld, as a study's identity does.
    """
    recorded = table.recording
    assert recorded is not None
    rules, planned, factors, host = _rules_for(recordings, recorded.model, recorded.framework)
    found = as_earlier(rules, planned.workload, planned.facts, host, factors, str(seed))
    return [] if found is None else [found]
