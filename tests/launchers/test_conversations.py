"""Conversations side by side, over pipes."""

import os
import time
from collections.abc import Iterator

import pytest

from tuner.launchers.conversations import Awaited, Conversation, alone, converse

FAR_S = 60.0


class Pipe:
    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()

    def say(self, text: str) -> None:
        os.write(self.write_end, text.encode())


@pytest.fixture
def pipes() -> Iterator[tuple[Pipe, Pipe]]:
    made = (Pipe(), Pipe())
    yield made
    for pipe in made:
        os.close(pipe.read_end)
        os.close(pipe.write_end)


def hears(pipe: Pipe, n: int, heard: list[str], then: Pipe | None = None) -> Conversation[str]:
    """Hear n times; each time say something into another pipe."""
    for _ in range(n):
        has_come = yield Awaited(pipe.read_end, time.monotonic() + FAR_S)
        assert has_come
        heard.append(os.read(pipe.read_end, 99).decode())
        if then is not None:
            then.say(f"after {heard[-1]}")
    return heard[-1]


def test_each_goes_on_when_what_it_waits_for_has_come(pipes: tuple[Pipe, Pipe]) -> None:
    left, right = pipes
    heard: list[str] = []
    left.say("one")
    # the first waits for the second, which waits for the first: one after another neither would end
    found = converse([hears(right, 1, heard, then=left), hears(left, 2, heard, then=right)])
    assert heard == ["one", "after one", "after after one"]
    assert found == ["after one", "after after one"]


def test_what_does_not_come_is_overdue(pipes: tuple[Pipe, Pipe]) -> None:
    def waits(pipe: Pipe) -> Conversation[bool]:
        has_come = yield Awaited(pipe.read_end, time.monotonic() + 0.05)
        return has_come

    pipes[1].say("there")
    assert converse([waits(pipe) for pipe in pipes]) == [False, True]


def test_what_one_raises_ends_all(pipes: tuple[Pipe, Pipe]) -> None:
    ended = []

    def waits() -> Conversation[None]:
        try:
            yield Awaited(pipes[0].read_end, time.monotonic() + FAR_S)
        finally:
            ended.append("the other")

    def fails() -> Conversation[None]:
        yield Awaited(pipes[1].read_end, time.monotonic() + FAR_S)
        raise OSError("the disk is full")

    pipes[1].say("go on")
    with pytest.raises(OSError, match="disk is full"):
        converse([waits(), fails()])
    assert ended == ["the other"]


def test_who_went_on_meanwhile_is_told_before_one_goes_on(pipes: tuple[Pipe, Pipe]) -> None:
    told: list[list[int]] = []
    left, right = pipes
    left.say("one")
    converse(
        [hears(left, 1, [], then=right), hears(right, 1, [])],
        lambda going: told.append(list(going)),
    )
    assert told[0] == [0, 1]
    assert told[-1] == [1]
    assert [0, 1] in told[1:]  # what passed until the first had ended


def test_one_that_waits_for_nothing_is_led_to_its_end() -> None:
    def says() -> Conversation[int]:
        yield from ()
        return 3

    assert alone(says()) == 3
