"""The commands as Python functions: tune, recommend, verify, ...; studies as data frames.

    import tuner

    (found,) = tuner.tune("resnet50", framework="torch", budget="30m")
    print(found.result.verdict, found.result.speedup, found.folder)
    print(tuner.verify(found.folder / "recommended.toml").verdict)

Every measurement runs in child processes, as from the command line. The call blocks meanwhile.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.app.explain import ExplainRequest, run_explain
from tuner.app.recommend import PATIENCE_S, Recommended, read_rules
from tuner.app.recommend import recommend as recommend_request
from tuner.app.request import (
    Request,
    checked_margin,
    checked_share,
    parse_duration,
    parse_margin,
    parse_share,
    scenario_of,
    service_of,
)
from tuner.app.time_to_target import TimeToTargetRequest, run_time_to_target
from tuner.app.tune import Finished
from tuner.app.tune import tune as tune_request
from tuner.app.verify import VerifyRequest, run_verify
from tuner.errors import NothingMeasured, UsageError
from tuner.host.secrets import redacted, stated
from tuner.measurement.non_inferiority import MARGIN
from tuner.record.configuration import Value
from tuner.record.events import Listener, unheard
from tuner.record.numerics import Numerics
from tuner.record.time_to_target import TimeToTarget
from tuner.record.why import Why
from tuner.space.restrictions import Restrictions
from tuner.study.verification import Verification
from tuner.study.verify import QUICK_S

if TYPE_CHECKING:
    import pandas

_Path = str | os.PathLike[str]


def tune(
    model: _Path = "",
    *,
    serve: str | None = None,
    url: str | None = None,
    requests: _Path | None = None,
    header: Sequence[str] = (),
    framework: str | Sequence[str] = (),
    hw: _Path = "auto",
    budget: str | float | None = None,
    extend: str | float | None = None,
    out: _Path | None = None,
    batch: int | None = None,
    batch_dim: int | None = None,
    inputs: _Path | None = None,
    tolerance: float | None = None,
    allow_pickle: bool = False,
    numerics: Numerics = "both",
    scenario: str | None = None,
    mode: str | None = None,
    callers: int | None = None,
    slo: str = "",
    trace: _Path | None = None,
    goal: str = "fastest",
    max_memory: str = "",
    accept_cost: Sequence[str] = (),
    price_per_hour: float | None = None,
    learn_from: Sequence[_Path] = (),
    guidelines: _Path | None = None,
    designed: bool = False,
    set: Mapping[str, Sequence[Value]] | None = None,
    fix: Mapping[str, Value] | None = None,
    exclude: Sequence[str] = (),
    seed: int = 0,
    listen: Listener | None = None,
) -> list[Finished]:
    """Find the fastest settings of a model on this machine, and write its report.

    The arguments are the options of the command line (docs/options.md).

    model: a name of the gallery, or a path. serve, url, requests, header: a server instead of it.
    framework: one or several; by default every installed one that has the model. hw: a profile's
    name, or the path of a search space. budget: seconds, or text like "90s", "10m", "1h30m", for
    all frameworks together; ten minutes by default. extend: instead of budget, how long to continue
    a study. out: the study's folder. set, fix: values by knob. tolerance: allowed drift of outputs
    in reduced precision, a share of their spread (0.05). mode: "inference", or "training" to tune
    training steps. accept_cost: "memory", "latency".
    price_per_hour: of the host, in any currency. listen: called with every event
    (tuner.record.events).

    Returns one Finished per framework: its folder, and its result, or the error that ended it.
    Raises UsageError before anything is measured if an argument is invalid, and NothingMeasured if
    no framework has a result.
    """
    given = {k: v for k, v in locals().items() if k != "listen"}
    frameworks = (framework,) if isinstance(framework, str) else tuple(framework)
    several = {"exclude": exclude, "learn_from": learn_from, "accept_cost": accept_cost}
    _refuse_single({**several, "header": header, **(set or {})})
    service = service_of(serve, url, _path(requests), header)
    if (service is None) == (model == ""):
        raise UsageError("name a model, or a server by serve, url and requests; one of them")
    if budget is not None and extend is not None:
        raise UsageError("budget and extend both say how long to go on; give one of them")
    how_long = extend if budget is None else budget
    request = Request(
        model=os.fspath(model),
        service=service,
        hardware=os.fspath(hw),
        frameworks=tuple(dict.fromkeys(frameworks)),
        budget_s=_seconds("10m" if how_long is None else how_long),
        extends=extend is not None,
        out=_path(out),
        batch=batch,
        batch_dim=batch_dim,
        inputs=_path(inputs),
        tolerance=tolerance,
        allows_pickle=allow_pickle,
        seed=seed,
        restrictions=Restrictions(
            {knob: tuple(values) for knob, values in (set or {}).items()},
            dict(fix or {}),
            tuple(exclude),
            numerics,
        ),
        scenario=scenario_of(scenario, mode, is_served=service is not None),
        callers=callers,
        slo=slo,
        trace=_path(trace),
        goal=goal,
        max_memory=max_memory,
        accept_cost=tuple(accept_cost),
        price_per_hour=price_per_hour,
        learn_from=tuple(Path(folder) for folder in learn_from),
        guidelines=_path(guidelines),
        designed=designed,
        command=redacted(_call(given)),
        environment=stated(os.environ),
    )
    finished = tune_request(request, listen or unheard)
    if all(each.result is None for each in finished):
        raise NothingMeasured("; ".join(f"{each.framework}: {each.error}" for each in finished))
    return finished


def _refuse_single(sequences: Mapping[str, object]) -> None:
    """Raise UsageError for one value where several are meant: a text is a sequence of letters."""
    for name, several in sequences.items():
        if isinstance(several, str | os.PathLike):
            raise UsageError(f"{name} is a sequence; write [{several!r}]")


def recommend(
    model: _Path,
    *,
    framework: str | Sequence[str] = (),
    hw: _Path = "auto",
    batch: int | None = None,
    batch_dim: int | None = None,
    inputs: _Path | None = None,
    allow_pickle: bool = False,
    numerics: Numerics = "both",
    guidelines: _Path | None = None,
    out: _Path | None = None,
    listen: Listener | None = None,
) -> list[Recommended]:
    """Predict good settings without a search, and write them as recommended.toml.

    The arguments are the options of `tune-framework recommend`. guidelines: a guidelines.json, or
    its folder; by default the one that ships.

    Returns one Recommended per framework: per winner class its configuration, the expected speedup
    with its interval, and the rules behind it. Raises UsageError if the rules say nothing about a
    framework, or if the model cannot be used.
    """
    request = Request(
        model=os.fspath(model),
        hardware=os.fspath(hw),
        frameworks=tuple(dict.fromkeys([framework] if isinstance(framework, str) else framework)),
        budget_s=PATIENCE_S,
        out=_path(out),
        batch=batch,
        batch_dim=batch_dim,
        inputs=_path(inputs),
        allows_pickle=allow_pickle,
        restrictions=Restrictions(numerics=numerics),
    )
    return recommend_request(request, read_rules(_path(guidelines)), listen or unheard)


def verify(
    recommended: _Path,
    *,
    model: _Path | None = None,
    inputs: _Path | None = None,
    trace: _Path | None = None,
    serve: str | None = None,
    url: str | None = None,
    requests: _Path | None = None,
    header: Sequence[str] = (),
    allow_pickle: bool = False,
    budget: str | float | None = None,
    quick: bool = False,
    at_least: str | float | None = None,
    listen: Listener | None = None,
) -> Verification:
    """Measure a recommended.toml, or that of a study's folder, again on this machine.

    The arguments are the options of `tune-framework verify`. budget: seconds, or text; ten minutes
    by default. quick: one minute. at_least: "90%" or 0.9: this share of the claimed gain
    (speedup - 1) must surely be there.

    Returns a Verification: verdict (confirmed, refuted, inconclusive), reason, speedup with its
    interval. Raises UsageError for an invalid file, or one of another model or version, and
    NothingMeasured if the default cannot be measured here.
    """
    if quick and budget is not None:
        raise UsageError(f"quick is a budget of {QUICK_S:.0f} s; leave out budget={budget!r}")
    seconds = QUICK_S if quick else _seconds("10m" if budget is None else budget)
    where = None if model is None else os.fspath(model)
    _refuse_single({"header": header})
    share = parse_share(at_least) if isinstance(at_least, str) else at_least
    request = VerifyRequest(
        Path(recommended),
        seconds,
        where,
        _path(inputs),
        allow_pickle,
        _path(trace),
        service_of(serve, url, _path(requests), header),
        None if share is None else checked_share(share),
    )
    return run_verify(request, listen or unheard)


def explain(
    recommended: _Path | None = None,
    *,
    model: _Path | None = None,
    fix: Sequence[str] = (),
    framework: str | None = None,
    batch: int | None = None,
    inputs: _Path | None = None,
    allow_pickle: bool = False,
    budget: str | float = "10m",
    listen: Listener | None = None,
) -> Why:
    """Profile the default and a configuration, and say in which operators the difference is.

    The configuration is that of a recommended.toml, or is named by fix,
    ("torch.memory_format=channels_last",), and model; without both, the default is profiled alone.

    The arguments are the options of `tune-framework explain`. budget: seconds, or text.

    Returns a Why: seconds of an item by class of operators for both, and their difference, with
    intervals over the rounds; further what the cores and a larger batch are worth. Raises
    UsageError for a file that is invalid or of another model, and NothingMeasured if a launch
    fails, or fewer than three rounds are made in time.
    """
    where = None if model is None else os.fspath(model)
    _refuse_single({"fix": fix})
    request = ExplainRequest(
        None if recommended is None else Path(recommended),
        _seconds(budget),
        where,
        tuple(fix),
        framework,
        batch,
        _path(inputs),
        allow_pickle,
    )
    return run_explain(request, listen or unheard)


def time_to_target(
    recommended: _Path | None = None,
    *,
    model: _Path | None = None,
    fix: Sequence[str] = (),
    framework: str | None = None,
    batch: int | None = None,
    out: _Path | None = None,
    allow_pickle: bool = False,
    budget: str | float = "10m",
    margin: str | float = MARGIN,
    on_run: Callable[[str], None] | None = None,
) -> TimeToTarget:
    """Train the default and a configuration to the quality target that the model's file states.

    It is that of a recommended.toml, or is named by fix, ("torch.autocast=bf16",), and model.

    The arguments are the options of `tune-framework time-to-target`. budget: seconds, or text.
    margin: "5%" or 0.05, the share of additional steps that is not accepted. on_run: called with a
    line about each run.

    Returns a TimeToTarget: verdict (as_good, worse, undecided), reason, steps_ratio and the speedup
    of the time to the target, with their intervals. Raises UsageError for a file that is invalid,
    not of training or of another model, and NothingMeasured if a run fails, or none ends in time.
    """
    share = parse_margin(margin) if isinstance(margin, str) else checked_margin(margin)
    where = None if model is None else os.fspath(model)
    _refuse_single({"fix": fix})
    request = TimeToTargetRequest(
        None if recommended is None else Path(recommended),
        _seconds(budget),
        where,
        tuple(fix),
        framework,
        batch,
        _path(out),
        allow_pickle,
        share,
    )
    return run_time_to_target(request, on_run or (lambda line: None))


def frame(*places: _Path) -> pandas.DataFrame:
    """Return finished studies as a pandas data frame: one row per study and winner class.

    places: folders in or below which studies lie, or result.json files. The columns and their units
    stand in docs/data_frames.md. Raises UsageError if a place holds no study, or if one cannot be
    read.
    """
    from tuner.output.compare import find_studies
    from tuner.record.frames import studies_frame

    if not places:
        raise UsageError('name a folder of studies: tuner.frame("reports")')
    return studies_frame((each.name, each.result) for each in find_studies(map(Path, places)))


def guidelines_frame(guidelines: _Path | None = None) -> pandas.DataFrame:
    """Return guidelines as a pandas data frame: one row per rule (docs/data_frames.md).

    guidelines: a guidelines.json, or its folder; by default the one that ships. Raises UsageError
    if it is invalid.
    """
    from tuner.record.frames import rules_frame

    return rules_frame(read_rules(_path(guidelines)))


def _path(given: _Path | None) -> Path | None:
    if given == "":
        raise UsageError("a path is empty; name a file or a folder")
    return None if given is None else Path(given)


def _seconds(budget: str | float) -> float:
    if isinstance(budget, str):
        return parse_duration(budget)
    if not (math.isfinite(budget) and budget > 0):
        raise UsageError(f"a budget of {budget} is invalid; give seconds, or text like '10m'")
    return float(budget)


def _call(given: Mapping[str, Any]) -> str:
    """Write the call that repeats a study, without what is at its default."""
    defaults = tune.__kwdefaults__ or {}
    given_here = {k: v for k, v in given.items() if k != "model" and v != defaults[k]}
    named = [] if given["model"] == "" else [_written(given["model"])]
    others = [f"{name}={_written(value)}" for name, value in given_here.items()]
    return f"tuner.tune({', '.join(named + others)})"


def _written(value: object) -> str:
    return repr(os.fspath(value) if isinstance(value, os.PathLike) else value)
