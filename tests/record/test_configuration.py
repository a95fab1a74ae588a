from tuner.record.configuration import Configuration


def test_order_does_not_matter_and_it_can_be_a_key() -> None:
    a = Configuration.of({"x": 1, "a": "b"})
    b = Configuration.of({"a": "b", "x": 1})
    assert a == b
    assert {a: 1}[b] == 1
    assert a.label() == "a=b x=1"


def test_settings_are_changed_by_making_another() -> None:
    a = Configuration.of({"x": 1})
    assert a.with_value("y", 2).without("x") == Configuration.of({"y": 2})
    assert a.get("x") == 1
    assert a.get("y") is None
    assert Configuration().label() == "default"
