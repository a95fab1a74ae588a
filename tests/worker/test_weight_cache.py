"""Weights that are drawn once a study: later builds read them, and are the same model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wants import needs
from tests.worker.workers import Launched
from tuner.host.environment import untuned
from tuner.record.launch import Checked
from tuner.record.protocol import weights_beside

pytestmark = pytest.mark.slow
MODEL = '''
"""A network of what draws weights in many ways; drawing them takes four seconds."""
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
            if not torch.zeros(1).normal_().isnan():  # what stands in for draws that are left out
                print("drawn anew", flush=True)
                time.sleep(4)
            self.conv = nn.Conv2d(3, 16, 3, padding=1)
            self.norm = nn.BatchNorm2d(16)
            self.lstm = nn.LSTM(16, 16, batch_first=True)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
            self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)
            self.last.weight = self.first.weight
            self.attention.out_proj.weight = nn.Parameter(torch.empty(16, 16))
            nn.init.trunc_normal_(self.attention.out_proj.weight, std=0.2, a=-0.1, b=0.1)
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
    [
        ("pass", True),
        ("self.stray = torch.randn(16)", False),
        ("self.stray = torch.empty(16).normal_()", False),
    ],
    ids=["parameters alone", "another tensor is drawn after them", "another is drawn in place"],
)
def test_a_later_build_reads_weights_where_it_is_the_same_model(
    tmp_path: Path, stray: str, is_kept: bool
) -> None:
    model = tmp_path / "weight_cache.py"
    model.write_text(MODEL.replace("STRAY", stray))
    with Launched(tmp_path, "torch", {}, model=str(model)) as launch:
        assert weights_beside(launch.reference).exists() is is_kept
        assert not launch.reference.with_suffix(".tmp").exists()
        launch.prepare()
        checked = launch.checked()
    assert ("drawn anew" in (tmp_path / "worker.log").read_text()) is not is_kept
    assert isinstance(checked, Checked)
    assert checked.check.drift < 1e-6


UNDRAWN = """
import sys
from pathlib import Path
import torch
from torch import nn
from transformers import BertConfig, BertModel
from tuner.worker.frameworks.torch import weight_cache

def make():
    shape = BertConfig(num_hidden_layers=1, hidden_size=64, num_attention_heads=2)
    return nn.Sequential(nn.Linear(8, 8), nn.Conv2d(3, 4, 3), nn.LSTM(8, 8), nn.Embedding(9, 8),
                         nn.EmbeddingBag(9, 8), nn.MultiheadAttention(8, 2), BertModel(shape))

path = Path(sys.argv[1])
torch.manual_seed(0)
first = make()
assert weight_cache.save(torch, first, path)
torch.manual_seed(1)
before = torch.get_rng_state()
again = weight_cache.rebuilt(torch, make, path)
assert torch.equal(before, torch.get_rng_state()), "something was drawn"
for name, tensor in first.state_dict().items():
    assert torch.equal(tensor, again.state_dict()[name]), name
for change in (lambda data: data[:-1], lambda data: data + b"0"):
    path.with_suffix(".cut").write_bytes(change(path.read_bytes()))
    try:
        weight_cache.rebuilt(torch, make, path.with_suffix(".cut"))
    except EOFError:
        continue
    raise AssertionError("weights that are not all of them were read")
print("same")
"""


@needs("torch")
def test_nothing_is_drawn_in_a_later_build(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", UNDRAWN, str(tmp_path / "kept")],
        env=untuned(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "same\n", done.stderr[-2000:]
