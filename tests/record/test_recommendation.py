"""What cannot be a recommendation of ours is named: it goes into shells, units and manifests."""

import math
from typing import Any

import msgspec
import pytest

from tests.deploy.recommendations import recommendation
from tuner.host.identity import probe
from tuner.record.interval import Interval
from tuner.record.load import Slo, Trace
from tuner.record.objective import Bound
from tuner.record.output_check import OutputCheck
from tuner.record.recommendation import Placement, Recommendation, fault_of

SLO = Slo(0.99, 0.1, "--slo p99=100ms")


@pytest.fixture(scope="module")
def ours() -> Recommendation:
    return recommendation({"env.FAKE_THREADS": 4}, probe(), "fake")


def with_part(found: Recommendation, part: str, **changes: Any) -> Recommendation:
    """Return it with something else in one of its parts; "" is the whole."""
    if not part:
        return msgspec.structs.replace(found, **changes)
    changed = msgspec.structs.replace(getattr(found, part), **changes)
    return msgspec.structs.replace(found, **{part: changed})


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("", {}),
        ("", {"environment": {"_NAME_2": "a b"}}),
        ("", {"packages": {"libtcmalloc.so.4": "tune-allocators==1.0+cpu"}}),
        ("", {"placements": [Placement("0-3,8", "bind:0,1"), Placement("4", "interleave:0")]}),
        ("", {"placements": [Placement(None, "none")]}),
        ("", {"bounds": [Bound("memory", 2.0**40, "--max-memory 1T")], "memory_bytes": 0}),
        ("", {"outputs": OutputCheck(0.1, 3)}),
        ("claim", {"launch_sd": 0.0, "launch_freedom": 0, "n_rounds": 0}),
        ("claim", {"speedup": None, "default_meets_slo": False}),
        ("tolerances", {"max_drift": 1e12}),
    ],
)
def test_what_a_study_may_write_has_no_fault(
    ours: Recommendation, part: str, changes: dict[str, Any]
) -> None:
    assert fault_of(with_part(ours, part, **changes)) is None


@pytest.mark.parametrize(
    ("part", "changes", "fault"),
    [
        ("", {"environment": {"A B": "1"}}, "'A B' is not a variable's name"),
        ("", {"environment": {"A": "1\n2"}}, r"control characters in '1\n2'"),
        ("", {"packages": {"lib/x.so": "a==1"}}, "is not a library's file and its package"),
        ("", {"packages": {"x.so": "a>=1"}}, "is not a library's file and its package"),
        ("", {"placements": [Placement("0-")]}, "'0-' is not a list of CPUs"),
        ("", {"placements": [Placement("0; true")]}, "'0; true' is not a list of CPUs"),
        ("", {"placements": [Placement("0", "bind:")]}, "'bind:' is not a memory policy"),
        ("", {"placements": []}, "it places no instance"),
        ("workload", {"scenario": "batch"}, "its workload.scenario is 'batch'; allowed are: "),
        ("workload", {"form": "pickle"}, "its workload.form is 'pickle'; allowed are: code, "),
        ("claim", {"metric": "speed"}, "its claim.metric is 'speed'; allowed are: throughput"),
        ("tolerances", {"numerics": "any"}, "numerics is 'any'; allowed are: same, reduced"),
        ("host", {"physical_cores": 0}, "its host.physical_cores is 0, which is no number"),
        ("host", {"cpus": 0}, "its host.cpus is 0"),
        ("claim", {"n_rounds": -1}, "its claim.n_rounds is -1"),
        ("claim", {"launch_freedom": 2**63}, f"its claim.launch_freedom is {2**63}"),
        ("", {"memory_bytes": -1}, "its memory_bytes is -1"),
        ("", {"outputs": OutputCheck(0.1, -1)}, "its outputs.n_inputs is -1"),
        ("", {"outputs": OutputCheck(math.nan, 1)}, "which is no such figure"),
        ("workload", {"callers": 2}, "its workload.callers is 2"),
        ("claim", {"speedup": None}, "its claim is 'faster' and has no speedup"),
        ("claim", {"speedup": Interval(1.5, 1.6, 1.4, 0.95)}, "its claim.speedup is no interval"),
        ("claim", {"speedup": Interval(2.0, 1.5, 1e9, 0.95)}, "its claim.speedup.high is 1000"),
        ("claim", {"noise_floor": -0.1}, "its claim.noise_floor is -0.1, which is no such figure"),
        ("claim", {"launch_sd": math.nan}, "its claim.launch_sd is nan"),
        ("claim", {"default_rate": math.inf}, "its claim.default_rate is inf"),
        ("tolerances", {"max_drift": math.nan}, "its tolerances.max_drift is nan"),
        ("", {"bounds": [Bound("memory", 0, "")]}, "its bound on memory is 0, which is invalid"),
        ("", {"bounds": [Bound("memory", 2**63, "")]}, "its bound on memory is"),
        ("", {"slo": SLO}, "it has an slo, and its workload is offline"),
        ("workload", {"scenario": "server"}, "its workload is a server's, and it has no slo"),
    ],
)
def test_what_no_study_writes_is_named(
    ours: Recommendation, part: str, changes: dict[str, Any], fault: str
) -> None:
    found = fault_of(with_part(ours, part, **changes))
    assert found is not None and fault in found


@pytest.mark.parametrize(
    ("slo", "fault"),
    [
        (SLO, None),
        (Slo(0.5, 0.1, ""), None),
        (Slo(0.4, 0.1, ""), "within 0.1 s, which is invalid"),
        (Slo(1.0, 0.1, ""), "within 0.1 s, which is invalid"),
        (Slo(0.99, 0.0, ""), "within 0.0 s, which is invalid"),
        (Slo(0.99, 1e9, ""), "which is invalid"),
        (msgspec.structs.replace(SLO, trace=Trace("a", "", 2, 1.0)), None),
        (msgspec.structs.replace(SLO, trace=Trace("a", "", 1, 1.0)), "its trace is invalid"),
        (msgspec.structs.replace(SLO, trace=Trace("a", "", 2, 0.0)), "its trace is invalid"),
    ],
)
def test_a_servers_bound_is_a_quantile_within_seconds(
    ours: Recommendation, slo: Slo, fault: str | None
) -> None:
    served = msgspec.structs.replace(with_part(ours, "workload", scenario="server"), slo=slo)
    found = fault_of(served)
    assert found is None if fault is None else found is not None and fault in found
