"""A server with threads: each request calls the model."""

# settings: {"torch.jit.mode": "freeze"}

from concurrent.futures import ThreadPoolExecutor

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from torch import nn  # noqa: E402

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
requests = [torch.randn(1 + i % 3, 8) for i in range(60)]
with torch.no_grad():
    expected = [model(x) for x in requests]
model = tuned.prepare(model)
with ThreadPoolExecutor(4) as threads:
    for found, wanted in zip(threads.map(model, requests), expected, strict=True):
        torch.testing.assert_close(found, wanted)
