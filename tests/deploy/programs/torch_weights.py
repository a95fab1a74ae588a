"""Changes weights in ways that pass the prepared model by: no call computes with old ones."""

# settings: {"torch.jit.mode": "optimize"}

import os
import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from torch import nn  # noqa: E402


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.conv(x)).mean((2, 3)))


def zeros(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(value) for name, value in module.state_dict().items()}


def in_place(model: Model) -> None:
    with torch.no_grad():
        model.last.weight.zero_()


CHANGES = (
    lambda fast: nn.Sequential(fast).load_state_dict(zeros(nn.Sequential(fast))),
    lambda fast: fast.last.load_state_dict(zeros(fast.last)),
    lambda fast: fast.last.load_state_dict(zeros(fast.last), assign=True),
    in_place,
    lambda fast: fast.norm.running_mean.fill_(7.0),
    lambda fast: fast.last.register_parameter("bias", nn.Parameter(torch.ones(2))),
    lambda fast: setattr(fast, "last", nn.Linear(4, 2)),
)
x = torch.randn(2, 3, 8, 8)
for i, change in enumerate(CHANGES):
    for in_inference_mode in (False, True)[: 1 + (i in (5, 6))]:
        if os.fork() == 0:  # a process serves one tuned model
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with torch.inference_mode(in_inference_mode):
                    model = Model().eval()
                fast = tuned.prepare(model)
                before = [fast(x), fast(x), fast(x[:1])][0]
                assert not caught, caught[0].message
                change(fast)  # type: ignore[no-untyped-call]
                with torch.no_grad():
                    expected = model(x)
                    assert not torch.allclose(expected, before)
                    torch.testing.assert_close(fast(x), expected)
            assert "weights may have changed" in str(caught[-1].message)
            os._exit(0)
        assert os.wait()[1] == 0, (i, in_inference_mode)
