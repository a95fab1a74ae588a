"""NCF (NeuMF): MLPerf Training's first recommender, 31,832,577 parameters.

He et al., arXiv:1708.05031, at the sizes of MovieLens-20M in MLPerf: 138,493 users, 26,744 items,
64 factors, layers 256-256-128-64.
"""

from itertools import pairwise
from typing import Any

from tuner.worker.gallery import Lookups, Model

USERS, ITEMS = 138_493, 26_744
FACTORS, LAYERS = 64, (256, 256, 128, 64)
HALF = LAYERS[0] // 2
PAIRS = tuple(pairwise(LAYERS))

MODEL = Model(
    title="NCF (NeuMF), MovieLens-20M",
    task="recommendation",
    family="recommendation",
    kind="recommendation",
    inputs=(Lookups(USERS, 1), Lookups(ITEMS, 1)),
    reference_batch=256,
    batches=(256, 2048),
    n_parameters=(USERS + ITEMS) * (FACTORS + HALF)
    + sum((a + 1) * b for a, b in PAIRS)
    + FACTORS
    + LAYERS[-1]
    + 1,
    macs=sum(a * b for a, b in PAIRS) + FACTORS + LAYERS[-1],
    widths={"torch": 4.0, "tensorflow": 4.0},
    follows="MLPerf Training 0.5, MovieLens-20M",
    systems=("MLPerf Training", "TBD", "DeepRecSys", "Wang et al. 2019"),
)


def torch() -> Any:
    """Return a torch.nn.Module of (users, items), (batch, 1) each: the score."""
    from torch import Tensor, cat, nn

    class NeuMF(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user_factors = nn.Embedding(USERS, FACTORS)
            self.item_factors = nn.Embedding(ITEMS, FACTORS)
            self.user_half = nn.Embedding(USERS, HALF)
            self.item_half = nn.Embedding(ITEMS, HALF)
            self.layers = nn.Sequential(
                *(part for a, b in PAIRS for part in (nn.Linear(a, b), nn.ReLU()))
            )
            self.score = nn.Linear(FACTORS + LAYERS[-1], 1)

        def forward(self, users: Tensor, items: Tensor) -> Tensor:
            users, items = users[:, 0], items[:, 0]
            product = self.user_factors(users) * self.item_factors(items)
            deep = self.layers(cat([self.user_half(users), self.item_half(items)], dim=1))
            score: Tensor = self.score(cat([product, deep], dim=1))
            return score

    return NeuMF()


def tensorflow() -> Any:
    """Return a keras.Model of [users, items], (batch, 1) each: the score."""
    from tensorflow.keras import Input, Model, layers

    users = Input((1,), dtype="int64", name="users")
    items = Input((1,), dtype="int64", name="items")

    def looked_up(chosen: Any, rows: int, columns: int, name: str) -> Any:
        table = layers.Embedding(
            rows, columns, embeddings_initializer="random_normal", name=f"embedding_{name}"
        )
        return layers.Flatten()(table(chosen))

    product = layers.Multiply()(
        [
            looked_up(users, USERS, FACTORS, "user_factors"),
            looked_up(items, ITEMS, FACTORS, "item_factors"),
        ]
    )
    x = layers.Concatenate()(
        [looked_up(users, USERS, HALF, "user_half"), looked_up(items, ITEMS, HALF, "item_half")]
    )
    for width in LAYERS[1:]:
        x = layers.Dense(width, activation="relu")(x)
    return Model([users, items], layers.Dense(1)(layers.Concatenate()([product, x])))
