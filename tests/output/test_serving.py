"""A server's rates in words."""

from tests.study.loadgen_words import STOLEN, said
from tuner.output.serving import loadgen_in_words


def test_all_that_was_said_is_told_and_the_last_reason() -> None:
    told = [said("too_slow", disturbed=STOLEN), said("too_slow"), said("valid", 90.0)]
    text = loadgen_in_words(told)
    assert text == (
        "too slow at 100/s: 40 of 2000 late in 20 s, while the hypervisor stole 3% of the CPU "
        "time; then too slow at 100/s: 40 of 2000 late in 20 s; then VALID at 90/s: 0 of 2000 "
        "late in 20 s"
    )
    assert loadgen_in_words([said("too_slow")]).endswith("(Reduce target QPS to improve latency.)")
    assert loadgen_in_words([]) == "not asked"
