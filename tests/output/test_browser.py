"""The report in a real browser: on a desk, on a telephone, in the dark, on paper."""

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.output.test_figures import whole
from tests.wants import needs
from tuner.output.compare import StudyFound, compare
from tuner.output.figures import FIGURES
from tuner.output.report import render, write_comparison
from tuner.record.result import Result

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = needs("chromium")

DESK, TELEPHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "report.html"
    path.write_text(render(whole(), "report.html.j2"))
    return path


class Opened:
    """A page, with whatever it complained of and asked for."""

    def __init__(self, browser: Any, path: Path, viewport: dict[str, int], scheme: str) -> None:
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def look(self, script: str) -> Any:
        return self.page.evaluate(script)


def opened(
    browser: Any, path: Path, viewport: dict[str, int] = DESK, scheme: str = "light"
) -> Opened:
    return Opened(browser, path, viewport, scheme)


def test_the_page_is_whole_and_asks_for_nothing_but_itself(browser: Any, report: Path) -> None:
    seen = opened(browser, report)
    assert seen.asked == [report.as_uri()]
    assert seen.said == []
    assert seen.page.locator("h1").inner_text() == "ResNet-50 v1.5 on torch, offline"
    assert "1.71x (1.59 - 1.83)" in seen.page.locator(".verdict").inner_text()
    n_figures = seen.page.locator("figure:visible").count()
    assert n_figures == len(FIGURES)
    for i in range(n_figures):
        box = seen.page.locator("figure:visible").nth(i).locator(".wide svg").bounding_box()
        assert box["width"] > 700
        assert box["height"] > 60


@pytest.mark.slow
@pytest.mark.parametrize("viewport", [DESK, TELEPHONE], ids=["desk", "telephone"])
def test_nothing_makes_the_page_wider_than_the_screen(
    browser: Any, report: Path, viewport: dict[str, int]
) -> None:
    seen = opened(browser, report, viewport)
    assert seen.look("document.scrollingElement.scrollWidth") <= viewport["width"]
    shown, hidden = (".narrow", ".wide") if viewport is TELEPHONE else (".wide", ".narrow")
    assert seen.page.locator(f"{shown} svg:visible").count() == len(FIGURES)
    assert seen.page.locator(f"{hidden} svg:visible").count() == 0
    sizes = seen.look(
        f"[...document.querySelectorAll('{shown} svg text')].map(t => t.getBoundingClientRect())"
        ".filter(r => r.height).map(r => r.height)"
    )
    assert min(sizes) >= 9  # pixels: text of a figure is not shrunk until nobody can read it


@pytest.mark.slow
@pytest.mark.parametrize("width", [1100, 400])
def test_no_table_is_cut_off_nor_scrolls(browser: Any, report: Path, width: int) -> None:
    """On a telephone a row stands below the other, each cell behind the head of its column."""
    seen = opened(browser, report, {"width": width, "height": 900})
    seen.look("document.querySelectorAll('details').forEach(d => d.open = true)")
    script = """[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)
      .map(e => e.getAttribute('aria-label'))"""
    assert seen.look(script) == []
    label = "getComputedStyle(document.querySelector('.stacks td'), '::before').content"
    assert seen.look(label) == ('"winner"' if width == 400 else "none")


LUMINANCE = """selector => {
  const style = getComputedStyle(document.querySelector(selector));
  const parts = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number)
    .map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = c => 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
  const ground = getComputedStyle(document.body).backgroundColor;
  const [a, b] = [light(parts(style.color)), light(parts(ground))];
  return {ground: b, contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)};
}"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_the_light_and_in_the_dark(
    browser: Any, report: Path, scheme: str
) -> None:
    """Contrast of 4.5:1 (WCAG 2.2, 1.4.3)."""
    page = opened(browser, report, scheme=scheme).page
    for selector in ("body", "figcaption", ".source", "nav a"):
        seen = page.evaluate(LUMINANCE, selector)
        assert (seen["ground"] < 0.1) == (scheme == "dark"), selector
        assert seen["contrast"] >= 4.5, selector


@pytest.mark.slow
def test_axes_take_the_colour_of_the_page(browser: Any, report: Path) -> None:
    fill = "getComputedStyle(document.querySelector('.wide svg text')).fill"
    assert opened(browser, report).look(fill) == "rgb(0, 0, 0)"
    assert opened(browser, report, scheme="dark").look(fill) == "rgb(255, 255, 255)"


@pytest.mark.slow
def test_everything_is_reached_by_keyboard(browser: Any, report: Path) -> None:
    seen = opened(browser, report)
    reached = []
    for _ in range(60):
        seen.page.keyboard.press("Tab")
        active = seen.look(
            "(e => e.getAttribute('aria-label') || e.textContent)(document.activeElement)"
        )
        reached.append(str(active))
    for wanted in ("Winners", "The three winners", "Baselines", "Trials", "The confirmation"):
        assert wanted in reached
    seen.page.locator("summary", has_text="Trials").focus()
    assert not seen.page.get_by_role("region", name="Trials").is_visible()
    seen.page.keyboard.press("Enter")
    assert seen.page.get_by_role("region", name="Trials").is_visible()


@pytest.mark.slow
def test_a_screen_reader_finds_headings_tables_and_what_each_figure_says(
    browser: Any, report: Path
) -> None:
    page = opened(browser, report).page
    levels = [int(h.evaluate("e => e.tagName[1]")) for h in page.get_by_role("heading").all()]
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("columnheader", name="speedup").count() >= 3
    assert page.locator("figure figcaption").count() == page.locator("figure").count()
    labels = page.locator(".wide svg [role='graphics-symbol']").evaluate_all(
        "marks => marks.map(m => m.getAttribute('aria-label'))"
    )
    assert any(label and label.startswith("bf16, torch_guide_bf16: ") for label in labels)


@pytest.mark.slow
def test_on_paper_nothing_is_hidden(browser: Any, report: Path, tmp_path: Path) -> None:
    seen = opened(browser, report, scheme="dark")
    seen.page.emulate_media(media="print")
    assert seen.look("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    assert seen.page.locator(".wide svg:visible").count() == len(FIGURES)
    assert not seen.page.locator("nav").is_visible()
    seen.page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").read_bytes().count(b"/Type /Page\n") >= 3


@pytest.mark.slow
def test_hostile_text_does_nothing(browser: Any, tmp_path: Path) -> None:
    bad = "</style></title><script>alert(1)</script><img src=http://127.0.0.1/x onerror=alert(2)>"
    data: dict[str, Any] = json.loads(msgspec.json.encode(whole()))
    for field in ("model", "model_title", "command", "framework", "tool_version"):
        data[field] = bad
    data["warnings"] = [bad]
    for row in (*data["baselines"], *data["trials"]):
        row["source"] = row["reason"] = bad
    for winner in data["winners"].values():
        winner["reason"] = bad
        for item in winner["read_back"]:
            item["how"] = item["observed"] = bad
    data["default"]["profile"]["operators"][0]["name"] = bad
    path = tmp_path / "report.html"
    path.write_text(render(msgspec.convert(data, Result), "report.html.j2"))
    seen = opened(browser, path)
    assert seen.asked == [path.as_uri()]
    assert seen.said == []
    assert seen.page.locator("script, img").count() == 0
    assert bad in seen.page.locator("h1").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("viewport", [DESK, TELEPHONE], ids=["desk", "telephone"])
def test_compared_studies_stand_on_one_page_with_names_that_do_nothing(
    browser: Any, tmp_path: Path, viewport: dict[str, int]
) -> None:
    bad = "<img src=x onerror=alert(1)>"
    later = msgspec.structs.replace(whole(), created="9", versions={"torch": bad})
    comparison = compare([StudyFound("one", whole()), StudyFound(bad, later)])
    path = tmp_path / "compare.html"
    write_comparison(path, comparison)
    seen = opened(browser, path, viewport)
    assert seen.asked == [path.as_uri()]
    assert seen.said == []
    assert seen.page.locator("script, img").count() == 0
    assert seen.look("document.scrollingElement.scrollWidth") <= viewport["width"]
    assert bad in seen.page.locator("h3").inner_text()
    assert seen.page.locator("figure svg:visible").count() == 1
    assert "torch: 2.13.0+cpu -> <img" in seen.page.locator("main").inner_text()
