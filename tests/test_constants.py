"""Every number that decides something says what it means, and stands on the page of constants."""

from benchmarks.constants import PAGE, constants, page


def test_every_constant_says_what_it_means() -> None:
    assert [f"{each.module}: {each.name}" for each in constants() if not each.meaning] == []


def test_the_page_of_constants_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page(), "run: python -m benchmarks.constants"
