"""A model from torch.export, whose module refuses eval()."""

# mypy: allow-untyped-defs, allow-untyped-calls
# settings: {"torch.jit.mode": "freeze"}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from torch import nn  # noqa: E402


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)

    def forward(self, x, *, scale):
        return {"y": self.last(x) * scale}


torch.manual_seed(0)
model, x, scale = Scorer().eval(), torch.randn(3, 8), torch.randn(3, 4)
exported = torch.export.export(model, (x,), {"scale": scale}).module()
fast = tuned.prepare(exported)
warnings.simplefilter("error", UserWarning)
for _ in range(2):
    torch.testing.assert_close(fast(x, scale=scale)["y"], model(x, scale=scale)["y"])
assert isinstance(fast, torch.fx.GraphModule)
