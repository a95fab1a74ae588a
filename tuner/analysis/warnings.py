"""Warnings of a result: noted while measuring, or derived from the launches."""

from __future__ import annotations

from tuner.analysis.launches import check_of, launches_of
from tuner.analysis.neighbours import beside_neighbour
from tuner.analysis.serving import of_serving
from tuner.analysis.stability import stability
from tuner.host.interference import disturbances, n_disturbed
from tuner.record.configuration import Configuration
from tuner.record.journal import Phase, PhaseDone, Waited, WarningNoted
from tuner.record.launch import Purpose
from tuner.record.output_check import MIN_TOP1_INPUTS
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import class_title, narrowest_class
from tuner.study.candidates import beats_default
from tuner.study.claim import Claim
from tuner.study.claims import Claims
from tuner.study.compared import never_launched
from tuner.study.confirm import DECIDED
from tuner.study.notes import NO_TIME
from tuner.study.study import Study

_DISTURBED = 0.1
"""Share of all slices: if more were disturbed, the result says so."""
_OVERRUN = 1.1
"""A study that takes this many times its budget says so."""
_LEFT_OVER = 0.9
"""A study that uses less of its budget than this, and had no time for something, says why."""
_UNUSED = 0.75
"""A study that uses less of its budget than this, and decides nothing, says why."""


def study_warnings(study: Study, claims: Claims, winner_class: WinnerClass) -> list[str]:
    """Return the warnings of a study, each once. winner_class: that of the recommended winner."""
    store = study.store
    noted = [note.text for note in _still_told(store)]
    texts = [text for text in noted if not text.startswith(NO_TIME)]
    undone = [text.removeprefix(NO_TIME) for text in noted if text.startswith(NO_TIME)]
    if not study.notes.is_done(Phase.CONFIRM):
        texts.insert(
            0, "the search was not over when this was written: the same command resumes it"
        )
    if study.notes.is_done(Phase.BASELINES) and (never := never_launched(study)):
        undone.insert(0, f" to measure {', '.join(b.name for b in never)}")
    texts += _of_the_host(store)
    texts += _of_warm_ups(store)
    found = [claims.claim(each) for each in WinnerClass]
    for claim in found:
        texts += _of_outputs(store, claim)
    for claim in found:
        if claim.verdict == "faster":
            texts += _of_a_winner(study, claims, claim)
    texts += _of_stability(study, claims, winner_class)
    texts += _of_bounds(study, claims)
    texts += of_serving(study, claims, found)
    recommended = claims.claim(winner_class)
    texts += _of_the_budget(study, recommended)
    texts += _of_what_was_fixed(study, recommended)
    unknown = [
        class_title(each, claim.configuration)
        for each, claim in zip(WinnerClass, found, strict=True)
        if claim.verdict == "faster" and _is_unknown_beside(study, claims, claim)
    ]
    if unknown:
        undone.append(f" to see how {', '.join(unknown)} fare next to a busy neighbour")
    if undone:  # one line, whatever it holds
        words = ", nor".join(dict.fromkeys(undone))
        texts.append(f"{NO_TIME}{words}; --extend 10m continues the study{_left_over(study)}")
    return list(dict.fromkeys(texts))


def _still_told(store: Store) -> list[WarningNoted]:
    """Return the noted warnings, without those of an earlier extent about its lack of time."""
    now = {id(note) for note in store.current(WarningNoted)}
    return [
        note
        for note in store.all(WarningNoted)
        if id(note) in now or not (note.is_passing or note.text.startswith(NO_TIME))
    ]


def _of_stability(study: Study, claims: Claims, winner_class: WinnerClass) -> list[str]:
    """Name the winners that are slower than the default now and then; say who ships instead."""
    texts: dict[Configuration, str] = {}
    shipped, order = claims.claim(winner_class), list(WinnerClass)
    for each in order:
        claim = claims.claim(each)
        found = stability(claims, claim)
        if found is None or found.word != "unstable" or claim.configuration in texts:
            continue
        text = (
            f"{claim.configuration.label()} is faster on average but unstable: in {found.n_slower} "
            f"of {found.n_rounds} rounds its launch was slower than the default's"
        )
        gave_way = order.index(winner_class) < order.index(each) <= order.index(study.widest)
        if gave_way and claim.speedup is not None and shipped.speedup is not None:
            text += (
                f"; the winner with {class_title(winner_class)} is recommended instead: its "
                f"{shipped.speedup.point:.2f}x is nearly as fast as {claim.speedup.point:.2f}x, "
                "and it was not found unstable"
            )
        texts[claim.configuration] = text
    return [*texts.values()]


def _of_bounds(study: Study, claims: Claims) -> list[str]:
    """Say what of the default, and of a winner's single launches, lies beyond a bound."""
    texts = []
    if beyond := study.evaluation.default_exceeds:
        texts.append(
            f"the default itself exceeds the bound ({beyond}); it is what everything is "
            "compared with all the same"
        )
    faster = [c for k in WinnerClass if (c := claims.claim(k)).verdict == "faster"]
    for bound in claims.objective.bounds:
        for claim in faster:
            records = launches_of(study.store, claim.configuration)
            most = max((bound.of(r) or 0.0 for r in records), default=0.0)
            if most > bound.most:
                texts.append(
                    f"{claim.configuration.label()} is about as large as {bound.asked} allows: "
                    f"in one of its launches, {bound.in_words(most)}"
                )
    return texts


def _of_the_budget(study: Study, recommended: Claim) -> list[str]:
    used_s, total_s = study.budget.used_s(), study.budget.total_s
    if used_s > _OVERRUN * total_s:
        return [
            f"it took {used_s:.0f} s of a budget of {total_s:.0f} s: a launch that has begun is "
            "measured, and the default is launched whatever the budget"
        ]
    ended = {note.phase: note.reason for note in study.store.all(PhaseDone)}
    is_open = recommended.verdict == "ambiguous" and Phase.CONFIRM in ended
    if is_open and used_s < _UNUSED * total_s:
        return [
            f"{total_s - used_s:.0f} s of a budget of {total_s:.0f} s were not used: "
            f"{ended[Phase.CONFIRM]}"
        ]
    return []


def _left_over(study: Study) -> str:
    """Say why time is left although there was none for something; empty where next to none is."""
    used_s, total_s = study.budget.used_s(), study.budget.total_s
    ended = {note.phase: note.reason for note in study.store.all(PhaseDone)}
    is_decided = ended.get(Phase.CONFIRM, "").startswith(DECIDED)
    if used_s > _LEFT_OVER * total_s or not is_decided:
        return ""
    return (
        f" ({total_s - used_s:.0f} s were left in the end: they had been kept for the "
        "confirmation, which took less)"
    )


def _of_what_was_fixed(study: Study, recommended: Claim) -> list[str]:
    fixed = study.space.fixed_by_user()
    given = [f"{k}={v}" for k, v in recommended.configuration.settings if k in fixed]
    if recommended.verdict != "faster" or not given:
        return []
    return [
        f"{', '.join(given)} was given by --fix and is kept: whether the rest does as well without "
        "it was not measured"
    ]


def _of_the_host(store: Store) -> list[str]:
    texts = []
    slices = [s for record in store.launches.values() for s in record.slices]
    n_dirty = n_disturbed(slices)
    if n_dirty > _DISTURBED * len(slices):
        found = disturbances([s.interference for s in slices])
        texts.append(
            f"the host was not quiet, {n_dirty} of {len(slices)} slices were disturbed: "
            f"{'; '.join(each.what for each in found)}"
        )
    waits = store.all(Waited)
    in_vain = [wait for wait in waits if not wait.is_quiet]
    if in_vain:
        texts.append(
            f"the host did not become quiet in {len(in_vain)} of {len(waits)} waits "
            f"({sum(w.seconds for w in in_vain):.0f} s; {in_vain[-1].reason}): what was measured "
            "meanwhile counts all the same; a verdict stands only where its interval decides"
        )
    return texts


def _of_warm_ups(store: Store) -> list[str]:
    return [
        f"{record.request.configuration.label()} was not steady after a warm-up in the confirmation"
        for record in store.launches.values()
        if record.request.purpose is Purpose.CONFIRM
        if record.prepared is not None and not record.prepared.is_steady
    ]


def _of_outputs(store: Store, claim: Claim) -> list[str]:
    check = check_of(launches_of(store, claim.configuration))
    reduced = narrowest_class(claim.configuration) is WinnerClass.REDUCED_PRECISION
    if not reduced or not check or check.top1_informative:
        return []
    if check.top1_all is not None:
        n = check.n_inputs
        why = f"the default gives nearly all of the {n} inputs one class"
        if n < MIN_TOP1_INPUTS:
            why = f"only {n} inputs were compared"
        return [f"top-1 agreement of {claim.configuration.label()} says little: {why}"]
    if check.top1_agreement is None:
        return []
    return [
        f"top-1 agreement of {claim.configuration.label()} says little: {check.top1_inputs} "
        f"inputs with a clear class, in {check.top1_classes} classes"
    ]


def _of_a_winner(study: Study, claims: Claims, claim: Claim) -> list[str]:
    """Return what its being faster does not say."""
    name, texts = claim.configuration.label(), []
    if len(claim.configuration.settings) > 1 and not beats_default(
        study.evaluation, claim.configuration
    ):
        texts.append(
            f"{name} did not lead in the search, so that its settings were not tried one by one: "
            "some may do nothing"
        )
    fared = beside_neighbour(claims, claim.configuration)
    if fared is not None and fared.collapses:
        texts.append(
            f"{name} degrades next to a busy neighbour: {fared.kept:.0%} of its rate is left, "
            f"{fared.speedup:.2f}x the default there; where the host is shared, use --goal robust"
        )
    return texts


def _is_unknown_beside(study: Study, claims: Claims, claim: Claim) -> bool:
    """Tell whether too few rounds next to a busy neighbour judge a winner there."""
    fared = beside_neighbour(claims, claim.configuration)
    return fared is None or (fared.interval is None and study.preference.bears_neighbours)
