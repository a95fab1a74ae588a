from pathlib import Path

import pytest

from tests.worker.workers import TINY
from tuner.errors import UsageError
from tuner.record.workload import ModelRef
from tuner.worker import gallery


def test_the_reference_batch_is_always_one_of_the_batches(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from tuner.worker.gallery import Features, Model\n"
        "MODEL = Model('t', 'k', 'mlp', (Features(3),), 2, (8,))\n"
        "def torch(): ...\n"
    )
    card = gallery.card_of(str(path))
    assert (card.batches, card.frameworks, card.fault) == ((2, 8), ("torch",), "")


def test_a_changed_source_is_another_model(tmp_path: Path) -> None:
    path = tmp_path / "tiny.py"
    path.write_text(Path(TINY).read_text())
    first = gallery.card_of(str(path)).source_sha256
    path.write_text(path.read_text() + "\n")
    assert gallery.card_of(str(path)).source_sha256 != first


def test_a_framework_that_the_model_lacks(tmp_path: Path) -> None:
    module = gallery.load(TINY)
    with pytest.raises(UsageError, match="not there for fake"):
        gallery.build(module, "fake", ModelRef("tiny", TINY))
