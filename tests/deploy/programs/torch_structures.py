"""A detector of one's own: dictionaries in and out, hooks around it."""

# mypy: allow-any-generics, allow-untyped-defs, allow-untyped-calls
# settings: {"torch.jit.mode": "freeze"}

import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from torch import nn  # noqa: E402


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.boxes, self.scores = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(16, 1)

    def forward(self, sample, sizes=None, *, threshold=None):
        x = torch.relu(self.body(sample["image"]))
        found = {"boxes": self.boxes(x), "scores": [self.scores(x)], "masks": None}
        if sizes is not None:
            found["scaled"] = (found["boxes"] * sizes[0], found["boxes"] * sizes[1])
        if threshold is not None:
            found["kept"] = self.scores(x) > threshold
        return found

    def names(self):
        return ["left", "top", "right", "bottom"]


warnings.simplefilter("error", UserWarning)
torch.manual_seed(0)
model = Detector().eval()
model.register_forward_hook(lambda module, given, found: {**found, "hooked": found["boxes"] + 1})
sample = {"image": torch.randn(3, 8), "name": "a.png"}
sizes = (torch.ones(3, 1) * 2, torch.ones(3, 1) * 3)
cases: tuple[tuple[tuple, dict], ...] = (
    ((sample,), {}),
    ((sample, sizes), {"threshold": 0.1}),
    ((), {"sample": sample}),
)
with torch.no_grad():
    expected = [model(*args, **kwargs) for args, kwargs in cases]
fast = tuned.prepare(model)
for _ in range(2):
    for (args, kwargs), wanted in zip(cases, expected, strict=True):
        found = fast(*args, **kwargs)
        assert list(found) == list(wanted)
        assert found["masks"] is None
        torch.testing.assert_close(found["boxes"], wanted["boxes"])
        torch.testing.assert_close(found["hooked"], wanted["hooked"])
        torch.testing.assert_close(found["scores"][0], wanted["scores"][0])
found = fast(sample, sizes, threshold=0.1)
torch.testing.assert_close(found["scaled"][1], expected[1]["scaled"][1])
assert torch.equal(found["kept"], expected[1]["kept"])
assert fast.names()[0] == "left"
