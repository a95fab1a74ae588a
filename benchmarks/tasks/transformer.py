"""A character-level transformer, as nanoGPT's: two layers of width 64 over 64 characters.

The next of 16 characters follows from the two before it, but for one in ten.
"""

from typing import Any

import numpy as np

from tuner.worker.gallery import Integers, Model, Target

CHARACTERS, LENGTH, WIDTH, HEADS, LAYERS, NOISE = 16, 64, 64, 4, 2, 0.1

MODEL = Model(
    title="character transformer",
    task="language modelling",
    kind="transformer",
    family="decoder",
    inputs=(Integers((LENGTH,), 0, CHARACTERS - 1),),
    targets=(Integers((LENGTH,), 0, CHARACTERS - 1),),
    reference_batch=16,
    batches=(16,),
    target=Target("accuracy", 0.86, every=20, most_steps=1500),
    follows="MLPerf EDU, nanoGPT",
)

FOLLOWS = np.random.default_rng(13).integers(0, CHARACTERS, (CHARACTERS, CHARACTERS))


def samples(n: int, seed: int) -> Any:
    random = np.random.default_rng([4, seed])
    text = random.integers(0, CHARACTERS, (n, LENGTH + 1))
    is_random = random.random((n, LENGTH + 1)) < NOISE
    for place in range(2, LENGTH + 1):
        following = FOLLOWS[text[:, place - 2], text[:, place - 1]]
        text[:, place] = np.where(is_random[:, place], text[:, place], following)
    return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])


def held_out() -> Any:
    return samples(128, 1 << 40)


def quality(outputs: Any, targets: Any) -> float:
    return float(np.mean(outputs[0].argmax(axis=2) == targets[0]))


def torch() -> Any:
    from torch import Tensor, arange, nn
    from torch.nn.functional import scaled_dot_product_attention

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.all, self.mixed = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.deep = nn.Sequential(
                nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
            )

        def forward(self, x: Tensor) -> Tensor:
            n, length, _ = x.shape
            q, k, v = self.all(self.first(x)).view(n, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            y = scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.mixed(y.transpose(1, 2).flatten(2))
            return x + self.deep(self.second(x))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.characters = nn.Embedding(CHARACTERS, WIDTH)
            self.places = nn.Embedding(LENGTH, WIDTH)
            self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)), nn.LayerNorm(WIDTH))
            self.scores = nn.Linear(WIDTH, CHARACTERS)

        def forward(self, given: Tensor) -> Tensor:
            x = self.characters(given) + self.places(arange(LENGTH, device=given.device))
            scores: Tensor = self.scores(self.layers(x))
            return scores

    return Transformer()


def tensorflow() -> Any:
    from tensorflow.keras import Input, Model, layers

    class Placed(layers.Layer):
        def build(self, shape: Any) -> None:
            self.places = self.add_weight((LENGTH, WIDTH), "random_normal")

        def call(self, x: Any) -> Any:
            return x + self.places

    given = Input((LENGTH,), dtype="int64")
    x = Placed()(layers.Embedding(CHARACTERS, WIDTH)(given))
    for _ in range(LAYERS):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        x = x + attention(y, y, use_causal_mask=True)
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        y = layers.Dense(4 * WIDTH, activation="gelu")(y)
        x = x + layers.Dense(WIDTH)(y)
    return Model(given, layers.Dense(CHARACTERS)(layers.LayerNormalization(epsilon=1e-5)(x)))


def torch_optimizer(parameters: Any) -> Any:
    from torch.optim import AdamW

    return AdamW(parameters, lr=3e-3)


def tensorflow_optimizer() -> Any:
    from tensorflow.keras.optimizers import AdamW

    return AdamW(learning_rate=3e-3)
