"""DLRM-RMC1, RMC2 and RMC3: the recommendation models of Facebook's studies.

Gupta et al., arXiv:1906.03109; sizes as in DeepRecSys's configurations (arXiv:2001.02772): rmc1
filters with light layers, rmc2 is bound by embedding look-ups, rmc3 by its dense layers.
row_scale shortens the tables, 3.8, 3.8 and 2.4 GiB in full; below about four times the last-level
cache the model stops being bound by memory. skew above 1 draws rows by Zipf's law instead of all
alike.
"""

from itertools import pairwise
from typing import Any, NamedTuple

from tuner.worker.gallery import Features, Lookups, Model


class Size(NamedTuple):
    """Of a variant: tables, their rows and columns, rows summed up of each; layers."""

    tables: int
    rows: int
    columns: int
    lookups: int
    dense: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]

    def layers(self) -> list[tuple[int, int]]:
        """Return inputs and outputs of every dense layer."""
        wide = self.bottom[-1] + self.tables * self.columns
        return [*pairwise((self.dense, *self.bottom)), *pairwise((wide, *self.top, 1))]


VARIANTS = {
    "rmc1": Size(8, 4_000_000, 32, 80, 128, (64, 32), (256, 64)),
    "rmc2": Size(32, 500_000, 64, 120, 256, (128, 64), (128, 64)),
    "rmc3": Size(10, 2_000_000, 32, 20, 2560, (1024, 256, 32), (512, 256)),
}


def _rows(size: Size, row_scale: float) -> int:
    if not 0 < row_scale <= 1:
        raise ValueError(f"row_scale={row_scale} is none; it is above 0 and at most 1")
    return max(1, round(size.rows * row_scale))


def model(variant: str = "rmc2", row_scale: float = 0.0625, skew: float = 0.0) -> Model:
    """Return the statement for tables of row_scale x their rows."""
    size = VARIANTS[variant]
    rows = _rows(size, row_scale)
    return Model(
        title=f"DLRM-{variant.upper()}",
        task="recommendation",
        family="recommendation",
        kind="recommendation",
        inputs=(Features(size.dense), Lookups(rows, size.lookups, size.tables, skew)),
        reference_batch=64,
        batches=(64, 256),
        n_parameters=size.tables * rows * size.columns + sum((a + 1) * b for a, b in size.layers()),
        macs=sum(a * b for a, b in size.layers()),
        widths={"torch": float(size.tables), "tensorflow": float(size.tables)},
        follows="DeepRecSys, " + variant,
        systems=("DeepRecSys",),
        small={"row_scale": 0.001},
    )


def torch(variant: str = "rmc2", row_scale: float = 0.0625) -> Any:
    """Return a torch.nn.Module of (features, rows): the score before the sigmoid."""
    from torch import Tensor, cat, nn

    size = VARIANTS[variant]
    rows = _rows(size, row_scale)
    n_bottom = len(size.bottom)
    scale = (3 / size.lookups) ** 0.5  # sums of rows vary like a dense feature

    def stack(sizes: list[tuple[int, int]]) -> list[nn.Module]:
        return [part for a, b in sizes for part in (nn.Linear(a, b), nn.ReLU())]

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = nn.ModuleList(
                nn.EmbeddingBag(rows, size.columns, mode="sum") for _ in range(size.tables)
            )
            self.bottom = nn.Sequential(*stack(size.layers()[:n_bottom]))
            self.top = nn.Sequential(*stack(size.layers()[n_bottom:])[:-1])
            for embedding in self.embeddings:
                nn.init.uniform_(embedding.weight, -scale, scale)

        def forward(self, features: Tensor, chosen: Tensor) -> Tensor:
            summed = [embed(chosen[:, i]) for i, embed in enumerate(self.embeddings)]
            score: Tensor = self.top(cat([self.bottom(features), *summed], dim=1))
            return score

    return Recommender()


def tensorflow(variant: str = "rmc2", row_scale: float = 0.0625) -> Any:
    """Return a keras.Model of [features, rows]: the score before the sigmoid."""
    from tensorflow.keras import Input, Model, initializers, layers, ops

    size = VARIANTS[variant]
    rows = _rows(size, row_scale)
    scale = (3 / size.lookups) ** 0.5
    features = Input((size.dense,), name="features")
    chosen = Input((size.tables, size.lookups), dtype="int64", name="chosen")
    x = features
    for width in size.bottom:
        x = layers.Dense(width, activation="relu")(x)
    parts = [x]
    for table in range(size.tables):
        embedding = layers.Embedding(
            rows,
            size.columns,
            embeddings_initializer=initializers.RandomUniform(-scale, scale),
            name=f"embedding{table}",
        )
        parts.append(ops.sum(embedding(chosen[:, table]), axis=1))
    x = layers.Concatenate()(parts)
    for width in size.top:
        x = layers.Dense(width, activation="relu")(x)
    return Model([features, chosen], layers.Dense(1)(x))
