"""A model whose outputs no trace can hold: it is served all the same, and the log says how."""

# mypy: allow-untyped-defs, allow-untyped-calls
# settings: {"torch.jit.mode": "freeze"}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from torch import nn  # noqa: E402


class Counting(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y, int((y > 0).sum())


torch.manual_seed(0)
model = Counting(8, 4)
inputs = [torch.randn(3, 8) for _ in range(4)]
with torch.no_grad():
    expected = [model(x) for x in inputs]
fast = tuned.prepare(model)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found = [fast(x) for x in inputs]
for one, other in zip(found, expected, strict=True):
    torch.testing.assert_close(one[0], other[0])
    assert one[1] == other[1]
said = [str(w.message) for w in caught if "in the model as it was given" in str(w.message)]
assert len(said) == 1, said
assert "not be built: UsageError: the model returns a value of type int" in said[0]
