"""Wide & Deep: linear weights of every category beside layers over embeddings.

Cheng et al., arXiv:1606.07792: embeddings of 32 columns, about 1,200 numbers in all, layers
1024-512-256. Here 13 numbers and 37 categories of 100,000 values, 0.5 GB, and none of the paper's
cross products, which are categories more; row_scale shortens the tables. skew above 1 draws values
by Zipf's law instead of all alike.
"""

from itertools import pairwise
from typing import Any

from tuner.worker.gallery import Features, Lookups, Model

DENSE, CATEGORIES, ROWS, COLUMNS = 13, 37, 100_000, 32
LAYERS = (DENSE + CATEGORIES * COLUMNS, 1024, 512, 256)
PAIRS = tuple(pairwise(LAYERS))


def _rows(row_scale: float) -> int:
    if not 0 < row_scale <= 1:
        raise ValueError(f"row_scale={row_scale} is none; it is above 0 and at most 1")
    return max(1, round(ROWS * row_scale))


def model(row_scale: float = 1.0, skew: float = 0.0) -> Model:
    """Return the statement for tables of row_scale x 100,000 rows."""
    rows = _rows(row_scale)
    deep = sum((a + 1) * b for a, b in PAIRS) + LAYERS[-1] + 1
    return Model(
        title="Wide & Deep",
        task="recommendation",
        family="recommendation",
        kind="recommendation",
        inputs=(Features(DENSE), Lookups(rows, 1, CATEGORIES, skew)),
        reference_batch=256,
        batches=(256, 1024),
        n_parameters=CATEGORIES * rows * (COLUMNS + 1) + deep,
        macs=sum(a * b for a, b in PAIRS) + LAYERS[-1],
        widths={"torch": 2.0 * CATEGORIES, "tensorflow": 2.0 * CATEGORIES},
        follows="Cheng et al. 2016",
        systems=("DeepRecSys",),
        small={"row_scale": 0.01},
    )


def torch(row_scale: float = 1.0) -> Any:
    """Return a torch.nn.Module of (features, categories): the score before the sigmoid."""
    from torch import Tensor, cat, nn

    rows = _rows(row_scale)

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.ModuleList(nn.Embedding(rows, 1) for _ in range(CATEGORIES))
            self.embeddings = nn.ModuleList(nn.Embedding(rows, COLUMNS) for _ in range(CATEGORIES))
            self.deep = nn.Sequential(
                *(part for a, b in PAIRS for part in (nn.Linear(a, b), nn.ReLU()))
            )
            self.score = nn.Linear(LAYERS[-1], 1)
            for embedding in self.wide:
                nn.init.normal_(embedding.weight, std=CATEGORIES**-0.5)

        def forward(self, features: Tensor, chosen: Tensor) -> Tensor:
            values = [chosen[:, i, 0] for i in range(CATEGORIES)]
            wide = cat([w(v) for w, v in zip(self.wide, values, strict=True)], dim=1)
            embedded = [e(v) for e, v in zip(self.embeddings, values, strict=True)]
            deep = self.deep(cat([features, *embedded], dim=1))
            score: Tensor = self.score(deep) + wide.sum(dim=1, keepdim=True)
            return score

    return Recommender()


def tensorflow(row_scale: float = 1.0) -> Any:
    """Return a keras.Model of [features, categories]: the score before the sigmoid."""
    from tensorflow.keras import Input, Model, initializers, layers, ops

    rows = _rows(row_scale)
    features = Input((DENSE,), name="features")
    chosen = Input((CATEGORIES, 1), dtype="int64", name="chosen")

    def looked_up(columns: int, std: float, name: str) -> list[Any]:
        return [
            layers.Embedding(
                rows,
                columns,
                embeddings_initializer=initializers.RandomNormal(stddev=std),
                name=f"embedding_{name}{i}",
            )(chosen[:, i, 0])
            for i in range(CATEGORIES)
        ]

    wide = layers.Concatenate()(looked_up(1, CATEGORIES**-0.5, "wide"))
    x = layers.Concatenate()([features, *looked_up(COLUMNS, 1.0, "deep")])
    for width in LAYERS[1:]:
        x = layers.Dense(width, activation="relu")(x)
    score = layers.Add()([layers.Dense(1)(x), ops.sum(wide, axis=1, keepdims=True)])
    return Model([features, chosen], score)
