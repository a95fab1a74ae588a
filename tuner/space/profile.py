"""Read a search space from TOML: the file that a user writes, checked with file and line.

    schema_version = 1
    title = "what hosts this is for"
    extends = "auto"                       # optional: a profile whose entries may be replaced
    matches = "host.vendor == 'intel'"     # optional formula: is this one of them?
    device = "cuda"                        # optional: what computes; the CPU unless it says so

    [[knob]]
    id = "launch.allocator"
    frameworks = ["torch", "tensorflow"]   # optional: all
    values = [                             # beside the default, which is always one
      "tcmalloc",                          # a value
      "=between(1, host.physical_cores)",  # a formula: one value, or a list of them
      { value = "jemalloc", when = "'jemalloc' in host.libraries", why = "not installed",
        substitute = "tcmalloc" },         # optional: what stands in for it in baselines, or a
                                           # list: the first of them that is here; also optional:
                                           # beside = "env.A == 1", a condition on earlier knobs,
                                           # and why_beside
    ]
    when = "torch.compile.mode == 'off'"   # optional: where it is live; may ask earlier knobs
    why = "what makes it ineffective elsewhere"
    search = true                          # false: only baselines and the command line use it;
                                           # "late": when the others promise less
    alias_of = "env.OMP_NUM_THREADS"       # another name of a knob above
    is_stronger = true                     # whether that name wins where both are set
    follows = "instance.cores"             # what is in force by default on fewer CPUs
    at_most = "instance.cpus"              # the largest number beside the settings above

    [[baseline]]
    name = "vendor_guide"
    source = "where it is recommended"
    frameworks = ["torch"]
    settings = { "env.OMP_NUM_THREADS" = "=host.physical_cores" }
    when = "host.vendor == 'intel'"        # optional: where it applies
    why = "why it does not, elsewhere"

Formulas may ask host.*, workload.*, the ids of knobs that stand above, and below the knobs that
place instances what these leave to one: instance.cores, .cpus, .nodes (how many it spans; the
fewest cores and CPUs, the most nodes), .is_pinned (to fewer CPUs than there are), and
instances.nodes, which all of them together use.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tuner.record.configuration import Value
from tuner.record.load import INFERENCE, TRAINING
from tuner.record.workload import CPU
from tuner.space.expressions import Expression

SCHEMA_VERSION = 1
WORKLOAD_FACTS = (
    "workload.framework",
    "workload.scenario",
    "workload.callers",
    "workload.kind",
    "workload.reference_batch",
    "workload.batches",
    "workload.width",
    "workload.has_images",
    "workload.has_loader",
    "workload.loader_divides",
    "workload.form",
    "workload.mode",
)
INSTANCE_FACTS = (
    "instance.cores",
    "instance.cpus",
    "instance.nodes",
    "instance.is_pinned",
    "instances.nodes",
)


class ValueEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that exists only on some hosts."""

    value: str | int | float | bool
    when: str
    why: str
    substitute: str | int | float | bool | list[str | int | float | bool] | None = None
    beside: str = ""
    """A further condition, on knobs above; empty if it goes with all of their values."""
    why_beside: str = ""

    def substitutes(self) -> tuple[Value, ...]:
        """Return the substitutes of a value, the preferred one first."""
        if self.substitute is None:
            return ()
        return tuple(self.substitute) if isinstance(self.substitute, list) else (self.substitute,)


class KnobEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `[[knob]]` as written."""

    id: str
    values: list[str | int | float | bool | ValueEntry]
    frameworks: list[str] = []
    when: str = ""
    why: str = ""
    search: bool | Literal["late"] = True
    alias_of: str = ""
    is_stronger: bool = True
    follows: str = ""
    at_most: str = ""


class BaselineEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `[[baseline]]` as written."""

    name: str
    source: str
    frameworks: list[str]
    settings: dict[str, str | int | float | bool]
    when: str = ""
    why: str = ""
    modes: tuple[str, ...] = (INFERENCE, TRAINING)
    """The modes of the workloads that it is published for (record/load.py)."""


class FactorEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `[[factor]]` as written: what a cell of the designed part sets, or does not.

    Its settings may use which other factors the cell has: factor.NAME.
    """

    name: str
    column: str
    """Letters of a, b, c and d: it is set where an odd number of these is (space/design.py)."""
    frameworks: list[str]
    settings: dict[str, str | int | float | bool]
    interacts: list[str] = []
    """Factors with which together it is known to do more, or less, than both alone."""
    of_cores: bool = False
    """Whether it is about how cores are shared: its effect on two cores says nothing about 64."""
    when: str = ""
    why: str = ""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A search space as written, merged with the one that it extends."""

    schema_version: int
    title: str
    knob: list[KnobEntry] = []
    baseline: list[BaselineEntry] = []
    factor: list[FactorEntry] = []
    extends: str = ""
    matches: str = ""
    device: str = CPU
    """What models are measured on."""
    caution: str = ""
    """A notice for users of the profile; every study warns of it."""
    name: str = ""


def literal_or_formula(value: Value) -> Value | Expression:
    """Return a setting's value, or the formula behind its "="."""
    if isinstance(value, str) and value.startswith("="):
        return Expression(value[1:])
    return value
