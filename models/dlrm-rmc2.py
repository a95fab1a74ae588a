"""DLRM-RMC2: the recommendation model that is bound by embedding look-ups.

Gupta et al., arXiv:1906.03109; sizes as in DeepRecSys's configuration: 32 tables of 500,000 rows
and 64 columns, 120 rows of each summed up, 256 dense features, 128-64 below and 128-64-1 above.
row_scale shortens the tables, 3.8 GiB in full; below about four times the last-level cache the
model stops being bound by memory. skew above 1 draws rows by Zipf's law instead of all alike.
"""

from typing import Any

from tuner.worker.gallery import Features, Lookups, Model

TABLES, ROWS, COLUMNS, LOOKUPS = 32, 500_000, 64, 120
DENSE, BOTTOM, TOP = 256, (128, 64), (128, 64)


def _rows(row_scale: float) -> int:
    if not 0 < row_scale <= 1:
        raise ValueError(f"row_scale={row_scale} is none; it is above 0 and at most 1")
    return max(1, round(ROWS * row_scale))


def model(row_scale: float = 0.0625, skew: float = 0.0) -> Model:
    """Return the statement for tables of row_scale x 500,000 rows."""
    rows = _rows(row_scale)
    wide = COLUMNS * (TABLES + 1)
    sizes = ((DENSE, BOTTOM[0]), BOTTOM, (wide, TOP[0]), TOP, (TOP[1], 1))
    return Model(
        title="DLRM-RMC2",
        task="recommendation",
        kind="recommendation",
        inputs=(Features(DENSE), Lookups(rows, LOOKUPS, TABLES, skew)),
        reference_batch=64,
        batches=(64, 256),
        n_parameters=TABLES * rows * COLUMNS + sum((a + 1) * b for a, b in sizes),
        macs=sum(a * b for a, b in sizes),
        widths={"torch": 32.0, "tensorflow": 32.0},
    )


def torch(row_scale: float = 0.0625) -> Any:
    """Return a torch.nn.Module of (features, rows): the score before the sigmoid."""
    from torch import Tensor, cat, nn

    rows = _rows(row_scale)

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = nn.ModuleList(
                nn.EmbeddingBag(rows, COLUMNS, mode="sum") for _ in range(TABLES)
            )
            self.bottom = nn.Sequential(
                nn.Linear(DENSE, BOTTOM[0]), nn.ReLU(), nn.Linear(*BOTTOM), nn.ReLU()
            )
            self.top = nn.Sequential(
                nn.Linear(COLUMNS * (TABLES + 1), TOP[0]),
                nn.ReLU(),
                nn.Linear(*TOP),
                nn.ReLU(),
                nn.Linear(TOP[1], 1),
            )
            for embedding in self.embeddings:  # sums of 120 rows that vary like a dense feature
                nn.init.uniform_(embedding.weight, -0.15, 0.15)

        def forward(self, features: Tensor, chosen: Tensor) -> Tensor:
            summed = [embed(chosen[:, i]) for i, embed in enumerate(self.embeddings)]
            score: Tensor = self.top(cat([self.bottom(features), *summed], dim=1))
            return score

    return Recommender()


def tensorflow(row_scale: float = 0.0625) -> Any:
    """Return a keras.Model of [features, rows]: the score before the sigmoid."""
    from tensorflow.keras import Input, Model, initializers, layers, ops

    rows = _rows(row_scale)
    features = Input((DENSE,), name="features")
    chosen = Input((TABLES, LOOKUPS), dtype="int64", name="chosen")
    x = features
    for width in BOTTOM:
        x = layers.Dense(width, activation="relu")(x)
    parts = [x]
    for table in range(TABLES):
        embedding = layers.Embedding(
            rows,
            COLUMNS,
            embeddings_initializer=initializers.RandomUniform(-0.15, 0.15),
            name=f"embedding{table}",
        )
        parts.append(ops.sum(embedding(chosen[:, table]), axis=1))
    x = layers.Concatenate()(parts)
    for width in TOP:
        x = layers.Dense(width, activation="relu")(x)
    return Model([features, chosen], layers.Dense(1)(x))
