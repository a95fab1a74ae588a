"""The time-to-target command: train the default and a recommendation with paired seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from tuner.analysis.time_to_target import Speed, conclude
from tuner.app.compatibility import the_framework
from tuner.app.plan import safe_name
from tuner.app.request import Request
from tuner.errors import NothingMeasured, UnknownName, UsageError
from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.launchers.describe import find_model
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.measurement.non_inferiority import FIRST_PAIRS, MARGIN
from tuner.output.report import write_reports
from tuner.record.configuration import Configuration
from tuner.record.figures import duration
from tuner.record.files import make_folder, read_result, write_result
from tuner.record.integrity import RESULT
from tuner.record.load import TRAINING
from tuner.record.recommendation import Recommendation, RecommendedWorkload
from tuner.record.time_to_target import Pair, TimeToTarget
from tuner.record.workload import CPU, OF_PROGRAMS
from tuner.space.catalogue import KNOBS
from tuner.space.knobs_of.launch import BATCH
from tuner.space.recommended import read_recommended
from tuner.space.restrictions import check_known, parse_restrictions
from tuner.study.paired_runs import PairedRuns, TrainedModel


class TimeToTargetRequest(msgspec.Struct, frozen=True):
    """What is trained, and for how long: a recommendation, or a model and settings."""

    path: Path | None
    """A recommended*.toml, or its folder."""
    seconds: float
    """The time limit."""
    model: str | None = None
    """The model's path; of a recommendation only if it is not built in."""
    fix: tuple[str, ...] = ()
    """KNOB=VALUE, without a recommendation."""
    framework: str | None = None
    batch: int | None = None
    out: Path | None = None
    """Where runs are kept without a recommendation."""
    allows_pickle: bool = False
    margin: float = MARGIN
    """The share of additional steps that is not accepted."""


class _Question(NamedTuple):
    """Which model is trained, and how."""

    trained: TrainedModel
    tuned: Configuration
    folder: Path
    """Of the runs."""
    speed: Speed
    recommendation: Recommendation | None


def run_time_to_target(
    request: TimeToTargetRequest, on_run: Callable[[str], None], testbed: Testbed = THIS_HOST
) -> TimeToTarget:
    """Train pairs of runs until they decide, or the time is up; say what they show.

    Each run is stored as soon as it has ended, and not made again: a further call goes on. A
    study's result and reports are written anew. on_run: called with a line about each run.

    Raises UsageError for a recommendation that says nothing of training, a model without a target
    or another model, and NothingMeasured if no pair was made in time.
    """
    began_s = testbed.clock.now_s()
    question = _of_settings(request) if request.path is None else _of_recommendation(request)
    trained, tuned, folder = question.trained, question.tuned, question.folder

    def left_s() -> float:
        return request.seconds - (testbed.clock.now_s() - began_s)

    def so_far(pairs: Mapping[int, Pair]) -> TimeToTarget:
        return conclude(pairs, tuned.as_dict(), request.margin, question.speed)

    def is_enough(pairs: Mapping[int, Pair]) -> bool:
        return bool(pairs) and has_enough(so_far(pairs))

    runs = PairedRuns(trained, tuned, folder, probe(), left_s, on_run, testbed)
    pairs = runs.train(is_enough)
    if not pairs:
        raise NothingMeasured(
            "no pair of runs was made in time; what was trained is kept: give a larger --budget "
            f"than {duration(request.seconds)}"
        )
    found = so_far(pairs)
    if not has_enough(found):
        goes_on = f"a pair takes about {duration(runs.pair_s)}: the same command goes on"
        found = msgspec.structs.replace(found, reason=f"{found.reason}; {goes_on}")
    if question.recommendation is not None:
        _write(folder, question.recommendation, found)
    return found


def has_enough(found: TimeToTarget) -> bool:
    """Tell whether no further pair is made.

    There are as many as the first ones ask for: to stop earlier, or to add some where these did not
    decide, would let chance decide. A target that the default misses is no use.
    """
    if None in found.default.steps:
        return True
    return len(found.seeds) >= (found.n_needed or FIRST_PAIRS)


def _of_settings(request: TimeToTargetRequest) -> _Question:
    """Return what a model and settings ask for; raises UsageError for invalid ones."""
    if request.model is None or not request.fix:
        raise UsageError(
            "what is trained? Name a recommended*.toml, or a model and its settings: "
            "time-to-target --model mine.py --fix torch.autocast=bf16"
        )
    restrictions = parse_restrictions([], request.fix, [], "both")
    check_known(restrictions, KNOBS)
    ref, card = find_model(request.model, MODELS, allows_pickle=request.allows_pickle)
    wanted = Request(
        model=request.model,
        frameworks=() if request.framework is None else (request.framework,),
    )
    framework = the_framework(wanted, card, CPU)
    batch = request.batch or max(card.batches)
    name = safe_name(f"{ref.label()}-{framework}-time-to-target")
    folder = request.out or Path("reports", name)
    make_folder(folder)
    tuned = Configuration.of({k: v for k, v in restrictions.fixed.items() if k != BATCH})
    trained = TrainedModel(ref, card.source_sha256, framework, batch)
    return _Question(trained, tuned, folder, Speed(), None)


def _of_recommendation(request: TimeToTargetRequest) -> _Question:
    """Return what a recommendation asks for; raises UsageError if it cannot be trained."""
    path = request.path
    assert path is not None
    if request.fix or request.framework or request.batch or request.out:
        raise UsageError(
            f"{path} says what is trained: leave out --fix, --framework, --batch and --out"
        )
    recommendation = read_recommended(path)
    workload, tuned = recommendation.workload, _settings(recommendation)
    if workload.mode != TRAINING:
        raise UsageError(
            f"{path} is of inference, which has no target to reach: tune with --mode training"
        )
    if workload.form in OF_PROGRAMS:
        raise UsageError(
            f"{path} is of a {workload.form} of yours, of which only the speed is known: a target "
            "is stated in a model's file"
        )
    if not tuned.settings:
        why = recommendation.nothing_set or "it sets the batch alone"
        raise UsageError(
            f"{path} has nothing to be compared with the default ({why}): go on with the study "
            "(--extend 10m), or name settings: time-to-target --model M --fix KNOB=VALUE"
        )
    trained, is_as_tuned = _model(request, path, workload)
    folder = path if path.is_dir() else path.parent
    claim, speed = recommendation.claim, Speed(price_per_hour=_price(folder))
    if is_as_tuned and claim.verdict == "faster" and claim.default_rate:
        step_s = trained.batch / claim.default_rate
        speed = Speed(step_s, claim.speedup, speed.price_per_hour)
    return _Question(trained, tuned, folder, speed, recommendation)


def _model(
    request: TimeToTargetRequest, path: Path, workload: RecommendedWorkload
) -> tuple[TrainedModel, bool]:
    """Find the model that was tuned, and tell whether its file is as it was then.

    Raises UsageError if it is another.
    """
    named = workload.model.partition("@")[0]
    if request.model is None and ("/" in named or Path(named).suffix):
        raise UsageError(
            f"{path} names a file, {named}, which would be loaded and run: name it yourself, if "
            f"you trust it: --model {named}"
        )
    try:
        ref, card = find_model(
            request.model or workload.model,
            MODELS,
            allows_pickle=request.allows_pickle,
            batch_dim=workload.batch_dim,
        )
    except UnknownName as error:
        if request.model is not None:
            raise
        raise UsageError(
            f"{path} is of {workload.model}, which is not built in: name its file yourself, as it "
            "was tuned, if you trust it, with --model"
        ) from error
    is_as_tuned = card.source_sha256 == workload.source_sha256
    (_, _, own), (_, _, tuned) = ref.label().partition("@"), workload.model.partition("@")
    if own != tuned or (ref.name != named and not is_as_tuned):
        raise UsageError(
            f"{path} is of {workload.model}, and --model names {ref.label()}: name the model that "
            "was tuned, with the same parameters"
        )
    device = workload.device
    trained = TrainedModel(ref, card.source_sha256, workload.framework, workload.batch, device)
    return trained, is_as_tuned


def _settings(recommendation: Recommendation) -> Configuration:
    """Return what is set, without the batch: both are trained with the same."""
    return Configuration.of({s.knob: s.value for s in recommendation.settings if s.knob != BATCH})


def _price(folder: Path) -> float | None:
    path = folder / RESULT
    return read_result(path).price_per_hour if path.is_file() else None


def _write(folder: Path, recommendation: Recommendation, found: TimeToTarget) -> None:
    """Add it to a study's result, if the folder holds that of the recommendation."""
    path = folder / RESULT
    if not path.is_file():
        return
    result = read_result(path)
    won = result.winners.get(recommendation.winner_class)
    if won is None or _without_batch(won.configuration) != found.tuned.configuration:
        return
    kept = [e for e in result.time_to_target if e.tuned.configuration != found.tuned.configuration]
    result = msgspec.structs.replace(result, time_to_target=[*kept, found])
    write_result(path, result)
    write_reports(folder, result)


def _without_batch(configuration: Mapping[str, object]) -> dict[str, object]:
    return {knob: value for knob, value in configuration.items() if knob != BATCH}
