"""The verify command: read a recommendation, plan the same workload, measure, conclude."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tuner.app.plan import Plan, check_budget, plan
from tuner.app.request import Request, Service
from tuner.errors import NothingMeasured, UnknownName, UsageError
from tuner.host.identity import Host, probe
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.record.events import Listener
from tuner.record.load import SCENARIOS
from tuner.record.numerics import Level
from tuner.record.recommendation import Recommendation
from tuner.record.trace import read_trace
from tuner.record.workload import OF_PROGRAMS, PROGRAM, SERVICE
from tuner.space.differences import differences
from tuner.space.recommended import read_recommended
from tuner.space.restrictions import Restrictions
from tuner.study.verification import Conclusion, Verification, unmeasured
from tuner.study.verify import nothing_to_prove, refused_here, verify


class VerifyRequest(msgspec.Struct, frozen=True):
    """What to verify, with which model and for how long."""

    path: Path
    """A recommended*.toml."""
    seconds: float
    """The time limit, preparation included."""
    model: str | None = None
    """The model's path, if the recommendation does not name it or it was moved."""
    inputs: Path | None = None
    allows_pickle: bool = False
    trace: Path | None = None
    """The path of the recorded arrivals, if they were moved."""
    service: Service | None = None
    """The server that was tuned, if it was one of the user's own."""
    at_least: float | None = None
    """The share of the claimed gain (speedup - 1) that must be there; None: not surely less than
    all of it."""


def run_verify(
    request: VerifyRequest, listen: Listener, testbed: Testbed = THIS_HOST
) -> Verification:
    """Measure the default and a recommendation again, interleaved.

    Raises UsageError for a file that is invalid, of another model or of an older version, and
    NothingMeasured if the default cannot be measured here.
    """
    began_s = testbed.clock.now_s()
    recommendation = read_recommended(request.path)
    host = probe()
    if not recommendation.settings:
        return nothing_to_prove(recommendation, host)
    recommendation = _with_trace(recommendation, request)
    if (refused := refused_here(recommendation, host)) is not None:
        return refused
    check_budget(request.seconds, [recommendation.workload.framework])
    try:
        planned = plan_as_tuned(request, recommendation, host, listen, testbed)
        left_s = request.seconds - (testbed.clock.now_s() - began_s)
        found = verify(
            recommendation,
            planned.workload,
            planned.facts,
            host,
            left_s,
            listen,
            request.at_least,
            testbed,
        )
    except NothingMeasured as error:
        if testbed.clock.now_s() - began_s < request.seconds:
            raise
        reason = f"the time was up: {error}"
        known = differences(recommendation, host)
        found = unmeasured(recommendation, Conclusion.INCONCLUSIVE, reason, known)
    return msgspec.structs.replace(found, seconds=round(testbed.clock.now_s() - began_s, 1))


def _with_trace(recommendation: Recommendation, request: VerifyRequest) -> Recommendation:
    """Return a recommendation with the present path of its recorded arrivals, if it has any.

    Raises UsageError if they are missing, or have changed.
    """
    slo = recommendation.slo
    if slo is None or slo.trace is None:
        if request.trace is not None:
            raise UsageError(
                f"--trace {request.trace}: {request.path} is not about recorded arrivals"
            )
        return recommendation
    path = request.trace or Path(slo.trace.path)
    if request.trace is None and not path.is_file():
        raise UsageError(f"{request.path} was tuned by the arrivals in {path}, which is not here: "
                         "name the file with --trace")  # fmt: skip
    trace = read_trace(path)
    if trace.sha256 != slo.trace.sha256:
        raise UsageError(f"{path} is not the trace that {request.path} was tuned by")
    return msgspec.structs.replace(recommendation, slo=msgspec.structs.replace(slo, trace=trace))


def plan_as_tuned(
    request: VerifyRequest,
    recommendation: Recommendation,
    host: Host,
    listen: Listener,
    testbed: Testbed,
) -> Plan:
    """Plan the workload of a recommendation; raises UsageError for another model, or an unknown."""
    path, workload = request.path, recommendation.workload
    if workload.default_batch is None:
        raise UsageError(f"{path} was written by an older version, which did not note at which "
                         "batch the default was fastest: tune again")  # fmt: skip
    if workload.form == PROGRAM:
        raise UsageError(f"{path} is of a program (--command), which cannot be verified: measure "
                         f"it under: tune-framework run {path} -- PROGRAM")  # fmt: skip
    if workload.form == SERVICE and request.service is None:
        raise UsageError(f"{path} is of a server, which would be started: name it yourself, as it "
                         "was tuned, with --serve, --url and --requests")  # fmt: skip
    if request.service is not None and request.model is not None:
        raise UsageError("--model and --serve exclude each other; give one of them")
    if workload.form != SERVICE and request.service is not None:
        raise UsageError(f"{path} is of a model, and not of a server: leave out --serve")
    named = workload.model.partition("@")[0]
    if workload.form != SERVICE and request.model is None and ("/" in named or Path(named).suffix):
        raise UsageError(f"{path} names a file, {named}, which would be loaded and run: name it "
                         f"yourself, if you trust it: --model {named}")  # fmt: skip
    held_to = recommendation.tolerances
    # a model that takes one batch alone is called with no other
    is_served = workload.scenario in SCENARIOS and SCENARIOS[workload.scenario].is_served
    is_one = workload.batch == workload.default_batch and not is_served
    by_drift = held_to.numerics != Level.SAME.in_words and held_to.max_accuracy_loss is None
    as_tuned = Request(
        model="" if request.service else request.model or workload.model,
        service=request.service,
        frameworks=(workload.framework,),
        budget_s=request.seconds,
        batch=workload.batch if is_one and workload.form not in OF_PROGRAMS else None,
        batch_dim=workload.batch_dim,
        inputs=request.inputs,
        tolerance=held_to.max_drift if by_drift else None,
        allows_pickle=request.allows_pickle,
        scenario=workload.scenario,
        callers=workload.callers if workload.callers > 1 else None,
        device=workload.device,
        restrictions=Restrictions(
            numerics="int8" if held_to.numerics == Level.INT8.in_words else "both"
        ),
    )
    try:
        (planned,) = plan(as_tuned, host, listen, is_strict=True, testbed=testbed)
    except UnknownName as error:
        if request.model is not None:
            raise
        raise UsageError(f"{path} is of {workload.model}, which is not built in: name its file or "
                         "folder yourself, as it was tuned, if you trust it, with --model"
                         ) from error  # fmt: skip
    if planned.workload.card.source_sha256 != workload.source_sha256:
        if request.service is not None:
            raise UsageError("the server's files, its --url or its --requests are not those that "
                             "were tuned")  # fmt: skip
        raise UsageError(f"{request.model} is not the model that was tuned (its file differs): "
                         "name that one with --model, or tune this one")  # fmt: skip
    return planned
