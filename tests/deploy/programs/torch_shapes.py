"""Texts of ever new lengths: forms are built for the first lengths alone."""

# settings: {"torch.jit.mode": "freeze"}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from torch import nn  # noqa: E402

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 4)).eval()
texts = [torch.randint(0, 30, (2, length)) for length in range(3, 23)]
with torch.no_grad():
    expected = [model(text) for text in texts]
fast = tuned.prepare(model)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        for text, wanted in zip(texts, expected, strict=True):
            torch.testing.assert_close(fast(text), wanted)
    for wrong in (torch.randn(2, 3), None):
        try:
            fast(wrong)
        except (RuntimeError, TypeError):
            continue
        raise AssertionError("wrong inputs are refused as the model refuses them")
said = [w for w in caught if "in the model as it was given" in str(w.message)]
assert len(said) == 1, said
assert "8 kinds of inputs" in str(said[0].message)
assert said[0].filename == __file__
