"""Scores a data set, batch by batch; the last batch is smaller."""

# settings: {"torch.jit.mode": "freeze", "torch.memory_format": "channels_last"}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

warnings.simplefilter("error")
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).eval()
images = torch.randn(21, 8, 8, 3).permute(0, 3, 1, 2)
labels = torch.arange(21) % 4
with torch.no_grad():
    expected = model(images)

model = tuned.prepare(model)
scores, loss = [], 0.0
with torch.no_grad():
    for batch, wanted in DataLoader(TensorDataset(images, labels), batch_size=8):
        found = model(batch)
        loss += float(nn.functional.cross_entropy(found, wanted, reduction="sum"))
        scores.append(found)
torch.testing.assert_close(torch.cat(scores), expected, rtol=1e-4, atol=1e-4)
assert abs(loss - float(nn.functional.cross_entropy(expected, labels, reduction="sum"))) < 1e-2
