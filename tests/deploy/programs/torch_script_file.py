"""Models that were saved: TorchScript, which has classes of its own."""

# settings: {"torch.jit.mode": "optimize"}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from torch import nn  # noqa: E402

warnings.simplefilter("ignore", DeprecationWarning)
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).eval()
images = torch.randn(4, 3, 8, 8)
torch.jit.trace(model, (images,)).save("model.pt")
with torch.no_grad():
    expected = model(images)
fast = tuned.prepare(torch.jit.load("model.pt"))
warnings.simplefilter("error", UserWarning)
for n in (4, 2):
    torch.testing.assert_close(fast(images[:n]), expected[:n], rtol=1e-4, atol=1e-4)
assert isinstance(fast, torch.jit.ScriptModule)
assert len(list(fast.parameters())) == 4
