"""What a server's slices hold, read back from a file."""

import msgspec
import pytest

from tuner.record.launch import packed
from tuner.record.load import Batching
from tuner.record.serving import Level, Served


def read(served: Served) -> Served:
    return msgspec.json.decode(msgspec.json.encode(served), type=Served)


def test_a_single_request_of_a_single_caller_is_enough() -> None:
    level = Level(1, 20.0, packed([0.05]))
    served = Served(Batching((1,)), 1, levels=(level,))
    assert read(served) == served
    assert read(served).levels[0].took_s == pytest.approx([0.05])


@pytest.mark.parametrize(
    "damaged",
    [
        Served(Batching((1,)), 0),
        Served(Batching((1,)), 1, levels=(Level(0, 20.0, packed([0.05])),)),
    ],
)
def test_a_slice_without_a_request_or_a_caller_is_damaged(damaged: Served) -> None:
    with pytest.raises(msgspec.ValidationError, match=">= 1"):
        read(damaged)
