"""How the time of a run is shared among its studies, and what goes on with a finished one."""

import msgspec
import pytest

from tuner.errors import UsageError
from tuner.grants import Account, Shares, check_round, extension_s, going_on
from tuner.request import Request

DONE = Account(used_s=280.0, began_at_s=0.0, budget_s=300.0, extension_s=None, is_finished=True)
"""The first of two frameworks, in ten minutes: it left 20 s to the other."""
ALSO = msgspec.structs.replace(DONE, used_s=315.0, budget_s=320.0)
NEW = Account(0.0, 0.0, 0.0, None, False)


def budget(seconds: float) -> Request:
    return Request("fake", budget_s=seconds)


def extend(seconds: float) -> Request:
    return Request("fake", budget_s=seconds, extends=True)


def opened(account: Account, seconds: float) -> Account:
    return msgspec.structs.replace(
        account, began_at_s=account.used_s, extension_s=seconds, is_finished=False
    )


def test_what_a_study_leaves_is_the_next_ones() -> None:
    shares = Shares(budget(600), [NEW, NEW])
    assert shares.total_s(0) == 300
    shares.use(0, 280)
    assert shares.total_s(1) == 320


def test_the_same_budget_opens_no_extension_and_a_larger_one_does() -> None:
    assert extension_s(budget(600), [DONE, ALSO]) is None
    assert extension_s(budget(500), [DONE, ALSO]) is None
    assert extension_s(budget(1200), [DONE, ALSO]) == 1200 - 595
    assert extension_s(extend(100), [DONE, ALSO]) == 100


def test_while_one_is_not_finished_a_larger_budget_is_for_that_one() -> None:
    stopped = msgspec.structs.replace(ALSO, used_s=100.0, is_finished=False)
    assert extension_s(budget(1200), [DONE, stopped]) is None
    shares = Shares(budget(1200), [DONE, stopped])
    shares.use(0, DONE.used_s)
    assert shares.total_s(1) == 1200 - 280


@pytest.mark.parametrize("is_last", [True, False])
def test_a_framework_that_always_fails_holds_up_no_other(*, is_last: bool) -> None:
    """It is tried again in each extension, and resumed in one that was stopped."""
    failed = Account(20.0, 0.0, 320.0 if is_last else 300.0, 100.0, False, has_failed=True)
    other = DONE if is_last else msgspec.structs.replace(DONE, budget_s=580.0)
    accounts = [other, failed] if is_last else [failed, other]
    assert extension_s(extend(100), accounts) == 100
    assert extension_s(budget(600), accounts) is None
    assert extension_s(budget(1200), accounts) == 1200 - 300
    stopped = opened(other, 100)
    assert extension_s(extend(100), [stopped, failed]) is None


def test_of_a_budget_that_is_used_already_nothing_is_left() -> None:
    overdrawn = msgspec.structs.replace(DONE, used_s=400.0)
    with pytest.raises(UsageError, match="has used 400 s already"):
        extension_s(budget(350), [overdrawn])


@pytest.mark.parametrize("request_", [extend(100), budget(695)])
def test_both_frameworks_share_an_extension(request_: Request) -> None:
    """Also where it is resumed after the first of them has ended."""
    accounts = [opened(DONE, 100), opened(ALSO, 100)]
    assert extension_s(request_, accounts) is None
    shares = Shares(request_, accounts)
    assert shares.total_s(0) == 280 + 50
    shares.use(0, 280 + 30)
    assert shares.total_s(1) == 315 + 70
    ended = msgspec.structs.replace(accounts[0], used_s=310.0, is_finished=True)
    again = Shares(request_, [ended, accounts[1]])
    again.use(0, 310)
    assert again.total_s(1) == 315 + 70


def test_another_extension_is_not_the_same_one_resumed() -> None:
    stopped = msgspec.structs.replace(opened(DONE, 100), used_s=330.0)
    assert extension_s(extend(100), [stopped]) is None
    assert extension_s(extend(200), [stopped]) == 200
    again = Shares(extend(200), [opened(stopped, 200)])
    assert again.total_s(0) == 330 + 200


def test_resumed_by_the_first_command_an_extension_keeps_its_time() -> None:
    stopped = msgspec.structs.replace(opened(DONE, 100), used_s=330.0)
    assert extension_s(budget(300), [stopped]) is None
    assert Shares(budget(300), [stopped]).total_s(0) == 280 + 100


def test_a_time_that_holds_no_round_is_refused_with_one_that_does() -> None:
    with pytest.raises(UsageError, match=r"--budget 30s .* give at least 42s") as refused:
        check_round(budget(30), None, 10.0, [6.0, 8.0])
    assert "\n" not in str(refused.value)
    check_round(budget(58), None, 10.0, [6.0, 8.0])
    check_round(budget(30), None, 10.0, [])  # resumed: nothing is begun
    with pytest.raises(UsageError, match=r"--extend 9s .* give at least 14s"):
        check_round(extend(9), 9.0, 2.0, [5.0])
    with pytest.raises(UsageError, match=r"--budget 309s .* give at least 314s"):
        check_round(budget(309), 9.0, 2.0, [5.0])  # 300 of them are used


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("tune-framework --model m --budget 10m --out o", "tune-framework --model m --out o"),
        ("tune-framework --budget=10m --model m", "tune-framework --model m"),
        ("tune-framework --model m --extend 5m", "tune-framework --model m"),
        ("tune-framework --model 'a b'", "tune-framework --model 'a b'"),
    ],
)
def test_the_command_that_goes_on_has_one_time(command: str, expected: str) -> None:
    assert going_on(command) == f"{expected} --extend 10m"


def test_of_a_python_call_it_is_an_argument() -> None:
    assert "extend='10m'" in going_on("tuner.tune('fake', budget='30s')")
