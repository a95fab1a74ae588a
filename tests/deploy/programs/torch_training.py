"""Goes on with training, and loads other weights, after prepare: nothing computes with old ones."""

# settings: {"torch.jit.mode": "freeze"}

import copy
import pickle
import warnings

import tuner

tuned = tuner.apply("recommended.toml")

import torch  # noqa: E402
from torch import nn  # noqa: E402

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4)).eval()
saved = copy.deepcopy(model.state_dict())
x = torch.randn(5, 8)
fast = tuned.prepare(model)
before = fast(x)
assert not before.requires_grad
alone = copy.deepcopy(fast)
stored = pickle.loads(pickle.dumps(fast))

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    optimizer = torch.optim.SGD(fast.parameters(), lr=0.5)
    fast.train()
    assert fast[1].training
    fast(x).square().sum().backward()
    optimizer.step()
    fast.eval()
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
    assert not torch.allclose(fast(x), before)
    fast.load_state_dict(saved)
    torch.testing.assert_close(fast(x), before)
said = [str(w.message) for w in caught if "in the model as it was given" in str(w.message)]
assert len(said) == 2, said
assert "training mode" in said[0]
assert "weights may have changed" in said[1]
for other in (alone, stored):  # models like any
    assert type(other) is nn.Sequential
    torch.testing.assert_close(other(x), before)
    assert other(x).requires_grad
