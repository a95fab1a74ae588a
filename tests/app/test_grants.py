"""How the time of a run is shared among its studies, and what goes on with a finished one."""

import msgspec
import pytest

from tuner.app.grants import Account, Shares, check_round, grant
from tuner.app.plan import check_budget
from tuner.app.request import Request, given_in
from tuner.errors import UsageError
from tuner.record.journal import Added, Extended

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
        account,
        began_at_s=account.used_s,
        budget_s=0.0,
        extension_s=seconds,
        is_finished=False,
        asked_s=seconds,
    )


def test_what_a_study_leaves_is_the_next_ones() -> None:
    shares = Shares(budget(600), [NEW, NEW])
    assert shares.total_s(0) == 300
    shares.use(0, 280)
    assert shares.total_s(1) == 320


def test_the_same_budget_opens_no_extension_and_a_larger_one_does() -> None:
    assert grant(budget(600), [DONE, ALSO]) is None
    assert grant(budget(500), [DONE, ALSO]) is None
    assert grant(budget(1200), [DONE, ALSO]) == Extended(1200 - 595)
    assert grant(extend(100), [DONE, ALSO]) == Extended(100)


def test_while_one_is_not_finished_a_larger_budget_is_for_that_one() -> None:
    stopped = msgspec.structs.replace(ALSO, used_s=100.0, is_finished=False)
    assert grant(budget(1200), [DONE, stopped]) is None
    shares = Shares(budget(1200), [DONE, stopped])
    shares.use(0, DONE.used_s)
    assert shares.total_s(1) == 1200 - 280


@pytest.mark.parametrize("is_last", [True, False])
def test_a_framework_that_always_fails_holds_up_no_other(*, is_last: bool) -> None:
    """It is tried again in each extension, and resumed in one that was stopped."""
    failed = Account(20.0, 0.0, 320.0 if is_last else 300.0, 100.0, False, has_failed=True)
    other = DONE if is_last else msgspec.structs.replace(DONE, budget_s=580.0)
    accounts = [other, failed] if is_last else [failed, other]
    assert grant(extend(100), accounts) == Extended(100)
    assert grant(budget(600), accounts) is None
    assert grant(budget(1200), accounts) == Extended(1200 - 300)
    stopped = opened(other, 100)
    assert grant(extend(100), [stopped, failed]) is None


def test_of_a_budget_that_is_used_already_nothing_is_left() -> None:
    overdrawn = msgspec.structs.replace(DONE, used_s=400.0)
    with pytest.raises(UsageError, match="has used 400 s already"):
        grant(budget(350), [overdrawn])


@pytest.mark.parametrize("request_", [extend(100), budget(695)])
def test_both_frameworks_share_an_extension(request_: Request) -> None:
    """Also where it is resumed after the first of them has ended."""
    accounts = [opened(DONE, 100), opened(ALSO, 100)]
    assert grant(request_, accounts) is None
    shares = Shares(request_, accounts)
    assert shares.total_s(0) == 280 + 50
    shares.use(0, 280 + 30)
    assert shares.total_s(1) == 315 + 70
    ended = msgspec.structs.replace(accounts[0], used_s=310.0, is_finished=True)
    again = Shares(request_, [ended, accounts[1]])
    again.use(0, 310)
    assert again.total_s(1) == 315 + 70


def granted(accounts: list[Account], added: Added) -> list[Account]:
    """Return the accounts after more time was added."""
    more = {"extension_s": added.seconds, "asked_s": added.added_s}
    return [msgspec.structs.replace(each, **more) for each in accounts]


STOPPED = msgspec.structs.replace(DONE, used_s=100.0, is_finished=False)
"""The first of two frameworks, in ten minutes: 200 s of its share are left."""
STOPPED_LATER = msgspec.structs.replace(ALSO, used_s=100.0, is_finished=False)


@pytest.mark.parametrize(
    ("accounts", "left_s"),
    [
        pytest.param([STOPPED], 200, id="one framework"),
        pytest.param([STOPPED, NEW], 200 + 300, id="the second was not begun"),
        pytest.param([DONE, STOPPED_LATER], 220, id="the first is finished"),
        pytest.param([STOPPED, ALSO], 200, id="the second is finished"),
        pytest.param([msgspec.structs.replace(STOPPED, used_s=310.0)], 0, id="overdrawn"),
        pytest.param([opened(DONE, 600)], 600, id="an extension that was not begun"),
        pytest.param(
            [msgspec.structs.replace(opened(DONE, 600), used_s=380.0)], 500, id="an extension"
        ),
    ],
)
def test_time_is_added_to_what_a_stopped_study_has_left(
    accounts: list[Account], left_s: float
) -> None:
    """And added once: the same command resumes it."""
    added = grant(extend(150), accounts)
    assert isinstance(added, Added)
    after = granted(accounts, added)
    shares = Shares(extend(150), after)
    seconds = []
    for i, each in enumerate(after):
        if not each.is_finished:
            seconds.append(shares.total_s(i) - each.used_s)
            shares.use(i, shares.total_s(i))
    assert sum(seconds) == pytest.approx(left_s + 150)
    assert grant(extend(150), after) is None
    assert grant(budget(600), after) is None
    again = grant(extend(60), after)
    assert isinstance(again, Added)
    assert again.seconds == pytest.approx(added.seconds + 60)


def test_resumed_by_the_first_command_an_extension_keeps_its_time() -> None:
    stopped = msgspec.structs.replace(opened(DONE, 100), used_s=330.0)
    assert grant(budget(300), [stopped]) is None
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


def test_a_time_in_which_nothing_is_imported_is_refused_by_the_option_that_gave_it() -> None:
    with pytest.raises(UsageError, match="--extend 20s is too short to measure anything"):
        check_budget(20.0, ["torch"], given_in(extend(20)))
