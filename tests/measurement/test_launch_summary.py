"""What is told of a launch that has ended."""

import msgspec
import pytest

from tuner.measurement.bench import launch_summary
from tuner.measurement.queueing import with_sustained
from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, LaunchRequest, Purpose, Slice, packed
from tuner.record.load import Batching, Slo
from tuner.record.objective import Objective
from tuner.record.serving import Served

P99 = Slo(0.99, 0.1, "")


@pytest.mark.parametrize(("call_s", "is_late"), [(0.02, False), (0.15, True)])
def test_a_server_whose_single_requests_exceed_the_bound_is_said_to_be_late(
    call_s: float, is_late: bool
) -> None:
    calls = packed([call_s] * 20)
    taken = Slice(1, 1, 20, 20 * call_s, 0.5, packed_calls=calls, served=Served(Batching((1,)), 20))
    record = LaunchRecord(
        LaunchRequest(1, Configuration(), 1, Purpose.SEARCH), slices=[with_sustained(taken, P99)]
    )
    served = msgspec.structs.replace(Objective.of("rate_within"), slo=P99)
    told = launch_summary(record, served, None)
    assert told.is_late is is_late
    assert told.value is not None
    assert told.unit == "requests/s, expected"
    assert not launch_summary(msgspec.structs.replace(record, slices=[]), served, None).is_late
