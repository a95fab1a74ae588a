from pathlib import Path

import pytest

from tests.worker.workers import TINY
from tuner.errors import UsageError
from tuner.galleries import MODELS
from tuner.record.workload import ModelCard, ModelRef
from tuner.worker.gallery.python_file import PythonFile
from tuner.worker.gallery.sources import card_of


def card(path: Path) -> ModelCard:
    return card_of(ModelRef(path.stem, str(path)))


def test_the_reference_batch_is_always_one_of_the_batches(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from tuner.worker.gallery import Features, Model\n"
        "MODEL = Model('t', 'k', 'mlp', (Features(3),), 2, (8,))\n"
        "def torch(): ...\n"
    )
    found = card(path)
    assert (found.batches, found.frameworks, found.fault) == ((2, 8), ("torch",), "")


def test_a_changed_source_is_another_model(tmp_path: Path) -> None:
    path = tmp_path / "tiny.py"
    path.write_text(Path(TINY).read_text())
    first = card(path).source_sha256
    path.write_text(path.read_text() + "\n")
    assert card(path).source_sha256 != first


def test_a_framework_that_the_model_lacks(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not there for fake"):
        PythonFile(ModelRef("tiny", TINY)).build("fake")


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ("'t', 'k', 'banana', (Features(3),), 2, (8,)", "allowed are cnn, transformer"),
        ("'t', 'k', 'mlp', (Features(3),), 2, (0, 8)", "batch 0 is invalid"),
    ],
)
def test_what_a_model_states_is_checked(tmp_path: Path, model: str, fault: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        f"from tuner.worker.gallery import Features, Model\nMODEL = Model({model})\n"
        "def torch(): ...\n"
    )
    assert fault in card(path).fault


def test_what_lies_beside_a_model_file_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "beside_mine.py").write_text("SIZE = 3\n")
    path = tmp_path / "mine.py"
    path.write_text(
        "from beside_mine import SIZE\n"
        "from tuner.worker.gallery import Features, Model\n"
        "MODEL = Model('t', 'k', 'mlp', (Features(SIZE),), 2, (8,))\n"
        "def torch(): ...\n"
    )
    assert card(path).fault == ""


@pytest.mark.parametrize("stated", ["(1, 2)", "3"])
def test_variants_that_are_no_names_are_refused(tmp_path: Path, stated: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text((MODELS / "fake.py").read_text() + f"\nVARIANTS = {stated}\n")
    card = card_of(ModelRef("mine", str(path)))
    assert "VARIANTS is" in card.fault
    assert "names of variants" in card.fault
