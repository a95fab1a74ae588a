from tuner.study.costs import Budget


def test_earlier_sessions_count() -> None:
    budget = Budget(100.0, used_before_s=60.0)
    assert 60.0 <= budget.used_s() < 61.0
    assert 39.0 < budget.left_s() <= 40.0
    assert Budget(10.0, used_before_s=60.0).left_s() < 0
