"""Resolve a profile on a host for a workload: which knobs there are, with which values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from tuner.engines import ENGINES, FRAMEWORK
from tuner.errors import UsageError
from tuner.host.identity import Host
from tuner.record.configuration import Value
from tuner.record.load import INFERENCE, TRAINING
from tuner.record.numerics import admitted
from tuner.record.workload import OF_PROGRAMS, ModelFacts, Workload
from tuner.space.catalogue import SIZING, describe
from tuner.space.expressions import Expression
from tuner.space.knob import Applies, Knob
from tuner.space.knobs_of.engines import DEFAULTS, ENGINE, THREADS
from tuner.space.knobs_of.launch import BATCH, INSTANCES, MAX_WAIT
from tuner.space.knobs_of.torch import LOADER_WORKERS
from tuner.space.placement import ALONE, Placements
from tuner.space.profile import KnobEntry, Profile, ValueEntry, literal_or_formula
from tuner.space.resolved_knob import UNSET, ResolvedKnob, fault_of_setting, same
from tuner.space.restrictions import Restrictions
from tuner.space.space import Space

_WAITS_MS: tuple[str | int | float | bool | ValueEntry, ...] = (1, 2, 5, 10, 20)
_ONE_PROCESS = {
    INFERENCE: "all requests go to one process: other instances would idle",
    TRAINING: "another instance would train a model of its own",
}
"""Why there is one instance, by mode."""
_IMAGE_RANK = 4
"""Dimensions of a convolution's weights over images: channels out and in, height, width."""


def workload_facts(workload: Workload, model: ModelFacts) -> dict[str, Any]:
    """Return what formulas may ask about the workload, by its name there."""
    return {
        "workload.framework": workload.framework,
        "workload.scenario": workload.scenario,
        "workload.callers": workload.callers,
        "workload.kind": workload.card.kind,
        "workload.reference_batch": workload.card.reference_batch,
        "workload.batches": workload.card.batches,
        "workload.width": model.graph_width,
        "workload.has_images": not model.parameter_ranks or _IMAGE_RANK in model.parameter_ranks,
        "workload.has_loader": model.has_loader,
        "workload.loader_divides": LOADER_WORKERS in model.effective_defaults,
        "workload.form": workload.card.form,
        "workload.mode": workload.mode,
    }


def knob_ids(
    profile: Profile,
    frameworks: Iterable[str],
    form: str = "code",
    mode: str = INFERENCE,
    *,
    is_served: bool = False,
) -> list[str]:
    """Return the knobs that a profile has for any of the frameworks.

    form: of a whole program only the launch can be tuned, and its results must stay the same.
    is_served: whether requests wait in line for a batch.
    """
    wanted = set(frameworks)
    found = [
        entry.id
        for entry in profile.knob
        if wanted & set(entry.frameworks or wanted)
        and wanted & set(describe(entry.id).frameworks or wanted)
        # of training those of inference stay, never live: conditions of other knobs ask for them
        and (mode != INFERENCE or INFERENCE in describe(entry.id).modes)
    ]
    if form not in OF_PROGRAMS:
        return [*found, BATCH, MAX_WAIT] if is_served else [*found, BATCH]
    knobs = map(describe, found)
    return [k.id for k in knobs if k.applies is Applies.LAUNCH and not k.changes_numerics]


def resolve_space(
    profile: Profile,
    host: Host,
    workload: Workload,
    model: ModelFacts,
    restrictions: Restrictions,
) -> Space:
    """Resolve a profile into the space of a workload on a host.

    model: facts from a child process without settings: the effective defaults, and the variables
    that nothing reads. Restrictions of another framework's knobs are skipped
    (restrictions.check_known refuses unknown ones).

    Raises UsageError or ExpressionError for what cannot be resolved.
    """
    facts = {**host.facts(), **workload_facts(workload, model)}
    restrictions = _without_aliases(restrictions, profile, workload.framework)
    is_served = workload.means().is_served
    present = knob_ids(profile, [workload.framework], workload.card.form, workload.mode)
    entries = [_in_mode(entry, workload.mode) for entry in profile.knob if entry.id in present]
    entries = [_in_engine(entry, host.engines, entries[:i]) for i, entry in enumerate(entries)]
    entries += [
        KnobEntry(id=knob, values=[])  # a variable of the user's that no profile has
        for knob in dict.fromkeys((*restrictions.values, *restrictions.fixed))
        if knob.startswith("env.") and knob not in {entry.id for entry in profile.knob}
    ]
    batches: list[str | int | float | bool | ValueEntry] = list(workload.card.batches)
    entries.append(KnobEntry(id=BATCH, values=batches))
    defaults = {
        **ALONE,
        **DEFAULTS,
        **model.effective_defaults,
        BATCH: workload.card.reference_batch,
    }
    if is_served:
        entries.append(KnobEntry(id=MAX_WAIT, values=list(_WAITS_MS), when=f"{BATCH} > 1"))
        defaults[MAX_WAIT] = 0
    knobs: list[ResolvedKnob] = []
    for entry in entries:
        # conditions over knobs are kept for later; those over the host alone are settled now
        knobs.append(_resolve_knob(entry, facts, defaults.get(entry.id, UNSET), restrictions))
    idle = {INSTANCES: _ONE_PROCESS[workload.mode]} if workload.means().one_process else {}
    return Space(knobs, facts, {**model.unread, **idle}, Placements(host))


def _in_mode(entry: KnobEntry, mode: str) -> KnobEntry:
    if mode in describe(entry.id).modes:
        return entry
    why = f"not a setting of {mode}"
    return msgspec.structs.replace(entry, values=[], when="false", why=why, search=False)


def _in_engine(
    entry: KnobEntry, installed: Collection[str], above: Iterable[KnobEntry]
) -> KnobEntry:
    """Return a knob's entry with the engines that have it as a condition.

    installed: engines; without any, models have their framework's settings. above: the entries that
    a condition may ask; a profile of the user's may not have those that choose an engine.
    """
    engines, known = describe(entry.id).engines, {each.id for each in above}
    if ENGINE not in known:
        return entry
    if entry.id in SIZING and installed and THREADS in known and not entry.alias_of:
        alone = f"{ENGINE} == '{FRAMEWORK}' or {THREADS} == '{UNSET}'"
        when = f"({alone}) and ({entry.when})" if entry.when else alone
        why = entry.why or "the engine's own number of threads is set"
        return msgspec.structs.replace(entry, when=when, why=why)
    if not engines or entry.alias_of or (FRAMEWORK in engines and not installed):
        return entry
    of = " or ".join(f"{ENGINE} == '{name}'" for name in engines)
    when = f"({of}) and ({entry.when})" if entry.when else of
    titles = [ENGINES[name].title if name in ENGINES else "the framework" for name in engines]
    own = f"a setting of {' and '.join(titles)}"
    why = f"{entry.why}, or another engine carries out the model" if entry.why else own
    return msgspec.structs.replace(entry, when=when, why=why)


def _resolve_knob(
    entry: KnobEntry, facts: Mapping[str, Any], default: Value, restrictions: Restrictions
) -> ResolvedKnob:
    knob = describe(entry.id)
    made = _evaluated(entry, facts)
    faults = {
        v: fault for v in made.values if knob.domain and (fault := knob.domain.fault_on(facts, v))
    }
    dropped = [*made.dropped, *faults.items()]
    known = [v for v in dict.fromkeys(made.values) if v not in faults and not same(v, default)]
    searched: tuple[Value, ...] = (default, *known) if entry.search else (default,)
    option = ""
    if entry.id in restrictions.values:
        wanted = restrictions.values[entry.id]
        option = f"--set {entry.id}={','.join(map(str, wanted))}"
        searched = (default, *_asked(knob, wanted, default, known, dropped))
    if own := _ruling_out(entry.id, restrictions, facts["workload.framework"]):
        option, searched = f"--fix {own}={restrictions.fixed[own]}", (default,)
    if knob.level > admitted(restrictions.numerics):
        option, searched = f"--numerics {restrictions.numerics}", (default,)
    if entry.id in restrictions.excluded:
        option, searched = f"--exclude {entry.id}", (default,)
    if entry.id in restrictions.fixed:
        value = restrictions.fixed[entry.id]
        option = f"--fix {entry.id}={value}"
        searched = (
            (default,) if same(value, default) else _asked(knob, (value,), default, known, dropped)
        )
    return ResolvedKnob(
        knob=knob,
        default=default,
        choices=searched,
        all_values=(default, *known),
        dropped=tuple(dropped),
        when=entry.when,
        why=entry.why,
        option=option,
        alias_of=entry.alias_of,
        is_stronger=entry.is_stronger,
        is_late=entry.search == "late" and not option,
        substitutes=tuple(pair for pair in made.substitutes if pair[1] in known),
        beside=tuple(made.beside),
        follows=entry.follows,
        at_most=entry.at_most,
    )


def _ruling_out(knob: str, restrictions: Restrictions, framework: str) -> str:
    """Return a fixed knob of the framework that another engine would not have; empty if none."""
    here = [k for k in restrictions.fixed if framework in (describe(k).frameworks or (framework,))]
    if knob == ENGINE:
        return next((k for k in here if FRAMEWORK in describe(k).engines), "")
    return next((k for k in here if k in SIZING), "") if knob == THREADS else ""


class _Evaluated(msgspec.Struct):
    """The values of an entry on a host."""

    values: list[Value] = []
    dropped: list[tuple[Value, str]] = []
    """Values that do not exist here, each with the reason."""
    substitutes: list[tuple[Value, Value]] = []
    """A dropped value, and one that may stand in for it."""
    beside: list[tuple[Value, str, str]] = []
    """A value with a condition on other settings, the condition, and the reason."""


def _evaluated(entry: KnobEntry, facts: Mapping[str, Any]) -> _Evaluated:
    found = _Evaluated()
    for raw in entry.values:
        if isinstance(raw, ValueEntry):
            condition = Expression(raw.when)
            if not condition.names <= facts.keys():
                found.values.append(raw.value)
                found.beside.append((raw.value, raw.when, raw.why))
            elif condition.holds(facts):
                found.values.append(raw.value)
                if raw.beside:
                    found.beside.append((raw.value, raw.beside, raw.why_beside))
            else:
                found.dropped.append((raw.value, raw.why))
                found.substitutes += [(raw.value, other) for other in raw.substitutes()]
            continue
        made = literal_or_formula(raw)
        if isinstance(made, Expression):
            result = made.evaluate(facts)
            results = result if isinstance(result, tuple) else (result,)
            check_made(f"knob {entry.id}", entry.id, str(raw), results)
            found.values.extend(results)
        else:
            found.values.append(made)
    return found


def check_made(where: str, knob: str, formula: str, values: Iterable[Value]) -> None:
    """Raise UsageError for a value of a formula that the knob cannot have; `where` it stands."""
    for value in values:
        if fault := fault_of_setting(knob, value):
            raise UsageError(f"{where}: {formula!r} comes to {value!r} here; {fault}")


def _asked(
    knob: Knob,
    requested: tuple[Value, ...],
    default: Value,
    known: list[Value],
    dropped: list[tuple[Value, str]],
) -> tuple[Value, ...]:
    """Return the values that a user requested, without the default; refuse invalid ones."""
    for value in requested:
        for gone, why in dropped:
            if same(value, gone):
                raise UsageError(f"{knob.id}={value} is not possible here: {why}")
        if not _is_free(knob, value, (default, *known)) and not any(
            same(value, v) for v in (default, *known)
        ):
            allowed = ", ".join(map(str, (default, *known)))
            raise UsageError(f"{knob.id}={value} is not a value here; allowed are {allowed}")
    return tuple(v for v in dict.fromkeys(requested) if not same(v, default))


def _is_free(knob: Knob, value: Value, known: tuple[Value, ...]) -> bool:
    """Tell whether a value may be requested although the profile does not list it.

    A variable may be anything; a variable or a batch that counts something, a positive number.
    """
    if any(isinstance(v, int) and not isinstance(v, bool) for v in known):
        is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
        return is_count and (knob.id.startswith("env.") or knob.id == BATCH)
    return knob.id.startswith("env.")


def _without_aliases(restrictions: Restrictions, profile: Profile, framework: str) -> Restrictions:
    """Return the restrictions with every other name of a knob replaced by the knob's own."""
    entries = {entry.id: entry for entry in profile.knob}
    names = {
        entry.id: entry.alias_of
        for entry in profile.knob
        if framework in (entries.get(entry.alias_of, entry).frameworks or (framework,))
        if entry.alias_of
    }
    for alias, knob in names.items():
        for requested in (restrictions.values, restrictions.fixed):
            if alias in requested and knob in (*restrictions.values, *restrictions.fixed):
                raise UsageError(f"{alias} is another name of {knob}; give one of them")

    def renamed(requested: dict[str, Any]) -> dict[str, Any]:
        return {names.get(knob, knob): value for knob, value in requested.items()}

    return msgspec.structs.replace(
        restrictions, values=renamed(restrictions.values), fixed=renamed(restrictions.fixed)
    )


def without_effect(space: Space, restrictions: Restrictions) -> dict[str, str]:
    """Return requested values (--set, --fix) that can have no effect here, with the reason."""
    found = {}
    fixed = {k: v for k, v in restrictions.fixed.items() if k in space.by_id}
    for knob, why in space.ineffective(fixed):
        found[f"--fix {knob}={restrictions.fixed[knob]}"] = why
    for knob, values in restrictions.values.items():
        if knob in space.by_id and (why := space.never_live(knob)):
            found[f"--set {knob}={','.join(map(str, values))}"] = why
    return found


def profile_matches(profile: Profile, host: Host) -> bool:
    """Tell whether a profile names this host; one without a condition matches every host.

    Raises ExpressionError if the condition uses an unknown fact.
    """
    return not profile.matches or Expression(profile.matches).holds(host.facts())
