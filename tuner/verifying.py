"""A recommendation proved again on this host: read, plan what was tuned, measure, conclude."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from tuner.errors import NothingMeasured, UsageError
from tuner.host.identity import Host, probe
from tuner.plan import Plan, plan
from tuner.record.events import Listener
from tuner.record.recommendation import Recommendation
from tuner.request import Request
from tuner.space.differences import differences
from tuner.space.recommended import read_recommended
from tuner.study.verification import Conclusion, Verification, unmeasured
from tuner.study.verify import nothing_to_prove, verify


class Proof(msgspec.Struct, frozen=True):
    """What is to be proved, and with which model and for how long."""

    path: Path
    """A recommended*.toml."""
    seconds: float
    """After so long everything is given up, preparation included."""
    model: str | None = None
    """Where the model is, if the recommendation does not say or it was moved."""
    inputs: Path | None = None
    allows_pickle: bool = False


def prove(proof: Proof, listen: Listener) -> Verification:
    """Measure the default and a recommendation again, interleaved.

    Raises UsageError for a file that is none, of another model or of an older version;
    NothingMeasured where the default cannot be measured here.
    """
    began = time.monotonic()
    recommendation = read_recommended(proof.path)
    host = probe()
    if not recommendation.settings:
        return nothing_to_prove(recommendation, host)
    try:
        planned = _plan(proof, recommendation, host, listen)
        left_s = proof.seconds - (time.monotonic() - began)
        found = verify(recommendation, planned.workload, planned.facts, host, left_s, listen)
    except NothingMeasured as error:
        if time.monotonic() - began < proof.seconds:
            raise
        reason = f"the time was up: {error}"
        known = differences(recommendation, host)
        found = unmeasured(recommendation, Conclusion.INCONCLUSIVE, reason, known)
    return msgspec.structs.replace(found, seconds=round(time.monotonic() - began, 1))


def _plan(proof: Proof, recommendation: Recommendation, host: Host, listen: Listener) -> Plan:
    """Find the model that was tuned; raises UsageError where it is another, or cannot be known."""
    path, workload = proof.path, recommendation.workload
    if workload.default_batch is None:
        raise UsageError(f"{path} was written by an older version, which did not note at which "
                         "batch the default was fastest: tune again")  # fmt: skip
    if workload.form == "program":
        raise UsageError(f"{path} is of a program (--command), which cannot be verified: measure "
                         f"it under: tune-framework run {path} -- PROGRAM")  # fmt: skip
    named = workload.model.partition("@")[0]
    if proof.model is None and ("/" in named or Path(named).suffix):
        raise UsageError(f"{path} names a file, {named}, which would be loaded and run: name it "
                         f"yourself, if you trust it: --model {named}")  # fmt: skip
    held_to = recommendation.tolerances
    by_drift = held_to.numerics == "reduced" and held_to.max_accuracy_loss is None
    request = Request(
        model=workload.model if proof.model is None else proof.model,
        frameworks=(workload.framework,),
        budget_s=proof.seconds,
        inputs=proof.inputs,
        tolerance=held_to.max_drift if by_drift else None,
        allows_pickle=proof.allows_pickle,
        scenario=workload.scenario,
        callers=workload.callers if workload.callers > 1 else None,
        device=workload.device,
    )
    (planned,) = plan(request, host, listen, is_strict=True)
    if planned.workload.card.source_sha256 != workload.source_sha256:
        raise UsageError(f"{request.model} is not the model that was tuned (its file differs): "
                         "name that one with --model, or tune this one")  # fmt: skip
    return planned
