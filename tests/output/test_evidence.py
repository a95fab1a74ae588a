"""How far outputs are off, in words."""

import pytest

from tuner.output.evidence import drift
from tuner.record.output_check import OutputCheck

NEW = OutputCheck(
    drift=0.0251,
    n_inputs=128,
    top1_agreement=1.0,
    top1_inputs=69,
    top1_classes=30,
    top1_informative=True,
    top1_all=0.959,
    channel_drift=0.061,
    channel="output 0[:, 3]",
    input_drift=0.03,
)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (None, "-"),
        (
            NEW,
            "0.025 (worst part of an output 0.061), top-1 kept on 95.9% of 128 inputs; on 100.0% "
            "of 69 clear",
        ),
        (OutputCheck(0.02, 32, changed=0.0312), "0.02, 3.1% of the integers changed"),
        (  # of an earlier version
            OutputCheck(0.02, 128, 1.0, 69, 30, True),
            "0.02, top-1 kept on 100.0% of 69 clear inputs",
        ),
    ],
)
def test_a_check_is_told_with_what_its_shares_are_of(check: OutputCheck | None, text: str) -> None:
    assert drift(check) == text
