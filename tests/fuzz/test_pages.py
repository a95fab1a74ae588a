"""What a reader lets pass is shown: in both reports, in the summary, and beside another study."""

import json

import pytest

from tests.fuzz.document import MARKUP, Mutant, altered, as_json
from tests.fuzz.oracle import CONTROL, read_or_refused
from tests.fuzz.seeds import RESULTS, SAMPLES, fuzzed
from tuner.cli.summary import show
from tuner.output import report
from tuner.output.compare import StudyFound, compare
from tuner.output.figures import FIGURES
from tuner.output.figures.chart import specification
from tuner.output.figures.drawing import NotDrawn
from tuner.record.files import read_result


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages come without drawings, each of which would start a process."""

    def refuse(specifications: object) -> list[str]:
        json.dumps(specifications, allow_nan=False)
        raise NotDrawn("they are not looked at here")

    monkeypatch.setattr(report, "drawings", refuse)


@fuzzed(400, mutant=altered(RESULTS, ()))
def test_whatever_is_read_is_shown_without_markup_or_control_characters_of_its_own(
    tmp_path_factory: pytest.TempPathFactory,
    undrawn: None,
    capsys: pytest.CaptureFixture[str],
    mutant: Mutant,
) -> None:
    folder = tmp_path_factory.getbasetemp()
    found = read_or_refused(read_result, folder / "result.json", as_json(mutant.content))
    if found is None:
        return
    page = report.render(found, "report.html.j2")
    assert MARKUP[: MARKUP.index("(")] not in page
    assert not CONTROL.search(page)
    beside = StudyFound("beside", read_result(SAMPLES[-1]))
    compare([beside, StudyFound("altered", found), beside])
    show(found, folder)
    assert not CONTROL.search(capsys.readouterr().out)
    charts = [chart for make in FIGURES.values() if (chart := make(found)) is not None]
    assert all(specification(chart, 340) for chart in charts)
