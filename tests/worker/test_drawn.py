"""Weights that are drawn once a study: later builds read them, and are the same model."""

from pathlib import Path

import pytest

from tests.worker.workers import Launched, needs
from tuner.record.launch import Checked
from tuner.record.protocol import weights_beside

MODEL = '''
"""A network of what draws weights in many ways; drawing them takes a second and a half."""
import time
from typing import Any
from tuner.worker.gallery import Image, Model

MODEL = Model(
    title="Drawn", task="image classification", kind="cnn", inputs=(Image(8, 8, 3),),
    reference_batch=4, batches=(4,), n_classes=16,
)


def torch() -> Any:
    import torch
    from torch import Tensor, nn

    class Drawn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if torch.zeros(1).normal_():  # left as it is where nothing is drawn
                print("drawn anew", flush=True)
                time.sleep(1.5)
            self.conv = nn.Conv2d(3, 16, 3, padding=1)
            self.norm = nn.BatchNorm2d(16)
            self.lstm = nn.LSTM(16, 16, batch_first=True)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
            self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)
            self.last.weight = self.first.weight
            nn.init.trunc_normal_(self.attention.out_proj.weight, std=0.2)
            nn.init.orthogonal_(self.first.weight)
            STRAY

        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
            y, _ = self.lstm(y)
            y, _ = self.attention(y, y, y, need_weights=False)
            y = self.last(self.first(y).relu()).mean(1)
            return y * getattr(self, "stray", 1.0)

    return Drawn()
'''


@needs("torch")
@pytest.mark.parametrize(
    ("stray", "is_kept"),
    [("pass", True), ("self.stray = torch.randn(16)", False)],
    ids=["parameters alone", "a tensor that is no parameter is drawn after them"],
)
def test_a_later_build_reads_weights_where_it_is_the_same_model(
    tmp_path: Path, stray: str, is_kept: bool
) -> None:
    model = tmp_path / "drawn.py"
    model.write_text(MODEL.replace("STRAY", stray))
    with Launched(tmp_path, "torch", {}, model=str(model)) as launch:
        assert weights_beside(launch.reference).exists() is is_kept
        assert not launch.reference.with_suffix(".tmp").exists()
        launch.prepare()
        checked = launch.checked()
    assert ("drawn anew" in (tmp_path / "worker.log").read_text()) is not is_kept
    assert isinstance(checked, Checked)
    assert checked.check.drift < 1e-6
