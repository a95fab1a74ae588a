"""The explain command: profile the default and a configuration, and say where the time goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tuner.analysis.why import why
from tuner.app.compatibility import the_framework
from tuner.app.plan import Plan, check_budget, plan
from tuner.app.request import Request
from tuner.app.verify import VerifyRequest, plan_as_tuned
from tuner.engines import ENGINES, FRAMEWORK
from tuner.errors import NothingMeasured, UsageError
from tuner.galleries import MODELS
from tuner.host.identity import Host, probe
from tuner.launchers.describe import find_model
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.output.report import write_reports
from tuner.record.configuration import Configuration, Value
from tuner.record.events import Listener
from tuner.record.figures import duration
from tuner.record.files import read_result, write_result
from tuner.record.integrity import RESULT
from tuner.record.load import SCENARIOS
from tuner.record.recommendation import Recommendation
from tuner.record.result import BaselineSection, Result
from tuner.record.why import LEAST_ROUNDS, Why
from tuner.record.workload import CPU, OF_PROGRAMS
from tuner.space.catalogue import KNOBS
from tuner.space.knobs_of.engines import ENGINE
from tuner.space.knobs_of.launch import BATCH
from tuner.space.launching import plan_launch
from tuner.space.recommended import read_recommended
from tuner.space.restrictions import check_known, parse_restrictions
from tuner.study.verify import refused_here
from tuner.study.why_rounds import Compared, Explained, profiled_rounds


class ExplainRequest(msgspec.Struct, frozen=True):
    """What is profiled, and for how long: a recommendation, or a model with settings."""

    path: Path | None
    """A recommended*.toml, or its folder."""
    seconds: float
    """The time limit, preparation included."""
    model: str | None = None
    """The model's path; of a recommendation only if it is not built in."""
    fix: tuple[str, ...] = ()
    """KNOB=VALUE, without a recommendation; empty: the default alone is profiled."""
    framework: str | None = None
    batch: int | None = None
    inputs: Path | None = None
    allows_pickle: bool = False


def run_explain(
    request: ExplainRequest,
    listen: Listener,
    testbed: Testbed = THIS_HOST,
    on_found: Callable[[Why], None] = lambda _: None,
) -> Why:
    """Measure and profile both in rounds; add what they show to a study's result and reports.

    on_found: called with it before anything is written, which may fail.

    Raises UsageError for a file that is invalid, without settings, or of another model, and
    NothingMeasured if fewer rounds than an interval takes were made in time.
    """
    began_s = testbed.clock.now_s()
    host = probe()
    recommendation = None if request.path is None else _recommendation(request, request.path, host)
    name = ""
    if recommendation is None:
        planned, compared = _of_settings(request, host, listen, testbed)
    else:
        assert request.path is not None
        # a damaged one is refused before anything is measured
        baseline = _best_baseline(_result(_folder(request.path)))
        planned, compared = _of_recommendation(request, recommendation, host, listen, testbed)
        if baseline is not None:
            name = baseline.name
            compared = compared._replace(
                baseline=baseline.configuration,
                baseline_batch=int(
                    baseline.configuration.get(BATCH, planned.workload.card.reference_batch)
                ),
            )
    left_s = request.seconds - (testbed.clock.now_s() - began_s)
    seen = profiled_rounds(compared, planned.workload, planned.facts, host, left_s, listen, testbed)
    found = why(
        seen.rounds,
        compared.settings,
        scaling=seen.scaling,
        macs=planned.facts.macs,
        work=seen.work,
        best=seen.best,
        n_cores=seen.n_cores,
        baseline=(name, compared.baseline or {}),
    )
    if found is None:
        raise NothingMeasured(_too_short(request.seconds, seen))
    on_found(found)
    if recommendation is not None:
        assert request.path is not None
        _add(_folder(request.path), recommendation, found)
    return found


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _result(folder: Path) -> Result | None:
    """Return the result in a study's folder; None if there is none."""
    path = folder / RESULT
    return read_result(path) if path.is_file() else None


def _best_baseline(result: Result | None) -> BaselineSection | None:
    """Return the best recommendation of others that a study measured, if a profiler can see it."""
    if result is None:
        return None
    named = (each for each in result.baselines if each.name == result.best_baseline)
    found = next((each for each in named if each.configuration), None)
    is_seen = found is not None and found.configuration.get(ENGINE, FRAMEWORK) == FRAMEWORK
    return found if is_seen else None


def _too_short(seconds: float, seen: Explained) -> str:
    """Say how many rounds there are, and which budget holds enough."""
    n_missing = LEAST_ROUNDS - len(seen.rounds)
    enough = ""
    if seen.rounds:
        minutes = math.ceil((seconds + n_missing * seen.round_s) / 60)
        enough = f": a round takes about {duration(seen.round_s)}, so that {minutes}m should do"
    return (
        f"{len(seen.rounds)} of at least {LEAST_ROUNDS} rounds were made in {duration(seconds)}; "
        f"give a larger --budget{enough}"
    )


def _recommendation(request: ExplainRequest, path: Path, host: Host) -> Recommendation:
    """Read a recommendation; raises UsageError for one that cannot be explained here."""
    if request.fix or request.framework or request.batch:
        raise UsageError(f"{path} says what is profiled: leave out --fix, --framework and --batch")
    recommendation = read_recommended(path)
    workload = recommendation.workload
    if not recommendation.settings:
        raise UsageError(
            f"{path} has nothing that could be explained ({recommendation.nothing_set})"
        )
    if workload.form in OF_PROGRAMS:
        raise UsageError(f"{path} is of a {workload.form} of yours, into which no profiler looks")
    if SCENARIOS[workload.scenario].is_served:
        raise UsageError(
            f"{path} is of a server, whose requests wait for each other: explain the same model "
            "tuned for throughput (--scenario offline)"
        )
    if (refused := refused_here(recommendation, host)) is not None:
        raise UsageError(refused.reason)
    _check_profiled(str(path), {s.knob: s.value for s in recommendation.settings})
    check_budget(request.seconds, [workload.framework])
    return recommendation


def _check_profiled(of: str, settings: Mapping[str, Value]) -> None:
    """Raise UsageError for settings under which another engine carries out the model."""
    if (entry := ENGINES.get(str(settings.get(ENGINE)))) is not None:
        raise UsageError(
            f"{of} has the model carried out by {entry.title}, into which the framework's profiler "
            "does not look"
        )


def _of_recommendation(
    request: ExplainRequest,
    recommendation: Recommendation,
    host: Host,
    listen: Listener,
    testbed: Testbed,
) -> tuple[Plan, Compared]:
    """Return what was tuned, and the default and the recommendation of it."""
    assert request.path is not None
    as_tuned = VerifyRequest(
        request.path, request.seconds, request.model, request.inputs, request.allows_pickle
    )
    planned = plan_as_tuned(as_tuned, recommendation, host, listen, testbed)
    wanted = recommendation.workload
    assert wanted.default_batch is not None
    settings = {s.knob: s.value for s in recommendation.settings}
    return planned, Compared(
        settings, wanted.default_batch, wanted.batch, recommendation.memory_bytes
    )


def _of_settings(
    request: ExplainRequest, host: Host, listen: Listener, testbed: Testbed
) -> tuple[Plan, Compared]:
    """Return a model, and its default and a configuration; raises UsageError for invalid ones."""
    if request.model is None:
        raise UsageError(
            "what is explained? Name a recommended*.toml, or a model, with settings or without: "
            "explain --model resnet50 --fix torch.compile.mode=default"
        )
    restrictions = parse_restrictions([], request.fix, [], "both")
    check_known(restrictions, KNOBS)
    settings = dict(restrictions.fixed)
    _check_profiled("--fix", settings)
    plan_launch(Configuration.of(settings), host)  # what cannot be started is said at once
    wanted = Request(
        model=request.model,
        frameworks=() if request.framework is None else (request.framework,),
        budget_s=request.seconds,
        batch=request.batch,
        inputs=request.inputs,
        allows_pickle=request.allows_pickle,
    )
    _, card = find_model(request.model, MODELS, allows_pickle=request.allows_pickle)
    the_framework(wanted, card, CPU)  # before any is imported
    (planned,) = plan(wanted, host, listen, is_strict=True, testbed=testbed)
    batch = request.batch or max(planned.workload.card.batches)
    return planned, Compared(settings, batch, int(settings.get(BATCH, batch)), None)


def _add(folder: Path, recommendation: Recommendation, found: Why) -> None:
    """Add it to a study's result, if the folder holds that of the recommendation."""
    result = _result(folder)
    if result is None:
        return
    won = result.winners.get(recommendation.winner_class)
    if won is None or Configuration.of(won.configuration) != Configuration.of(found.configuration):
        return
    kept = [each for each in result.why if each.configuration != found.configuration]
    result = msgspec.structs.replace(result, why=[*kept, found])
    write_result(folder / RESULT, result)
    write_reports(folder, result)
