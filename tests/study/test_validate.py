"""About which rates LoadGen is asked, and what is made of its words."""

import pytest

from tests.study.loadgen_words import STOLEN, said
from tuner.findings.serving import too_slow
from tuner.record.serving import Validation
from tuner.study.validate import next_asked


def test_what_was_kept_is_not_asked_about_again() -> None:
    assert next_asked([]) is None  # the first time is another's
    for word in ("valid", "too_short"):
        assert next_asked([said(word)]) is None
        assert next_asked([said(word, disturbed=STOLEN)]) is None
    assert next_asked([Validation(100.0, None, "LoadGen failed")]) is None


def test_what_was_too_slow_is_asked_about_again_where_it_was_disturbed() -> None:
    disturbed = said("too_slow", disturbed=STOLEN)
    assert next_asked([disturbed]) == next_asked([disturbed] * 2) == 100.0
    assert next_asked([disturbed] * 3) == pytest.approx(90.0)
    assert next_asked([disturbed, said("too_slow")]) == pytest.approx(90.0)
    assert next_asked([disturbed, said("valid")]) is None


def test_lower_rates_are_asked_about_down_to_a_half() -> None:
    told = [said("too_slow")]
    while rate := next_asked(told):
        told.append(said("too_slow", rate))
    rates = [100, 90, 81, 72.9, 65.61, 59.05, 53.14]
    assert [each.rate for each in told] == pytest.approx(rates, rel=1e-3)
    assert next_asked([said("too_slow"), said("valid", 90.0)]) is None


def test_a_reader_is_warned_of_a_rate_that_was_never_kept() -> None:
    late, disturbed = said("too_slow"), said("too_slow", disturbed=STOLEN)
    assert too_slow("x", []) == too_slow("x", [disturbed, said("valid")]) == []
    (text,) = too_slow("x", [disturbed, late, said("valid", 90.0)])
    assert "too late at 100 requests/s" in text and "in time at 90:" in text
    assert "disturbed" not in text
    (text,) = too_slow("x", [late, said("too_short", 90.0)])
    assert text.endswith("; at 90 its run was too short to say (0 of 2000 late)")
    (text,) = too_slow("x", [disturbed] * 3)
    assert text.endswith("while something disturbed it")
