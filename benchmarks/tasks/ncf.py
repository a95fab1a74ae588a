"""Neural collaborative filtering (He et al., arXiv:1708.05031), small: does a user like an item?

500 users and 300 items have 4 hidden factors each; a user likes an item if the product of
their factors is positive, but for one answer in ten.
"""

from typing import Any

import numpy as np

from tuner.worker.gallery import Integers, Model, Target

USERS, ITEMS, HIDDEN, FACTORS, WIDTHS = 500, 300, 4, 16, (32, 16)
NOISE = 0.1

MODEL = Model(
    title="NCF, small",
    task="recommendation",
    kind="recommendation",
    family="recommendation",
    inputs=(Integers((1,), 0, USERS - 1), Integers((1,), 0, ITEMS - 1)),
    targets=(Integers((), 0, 1),),
    reference_batch=512,
    batches=(512,),
    n_classes=2,
    target=Target("accuracy", 0.82, every=10, most_steps=1500),
    follows="MLPerf EDU, NCF",
)


def _truth() -> tuple[Any, Any]:
    random = np.random.default_rng(11)
    return random.standard_normal((USERS, HIDDEN)), random.standard_normal((ITEMS, HIDDEN))


TRUE_USERS, TRUE_ITEMS = _truth()


def samples(n: int, seed: int) -> Any:
    random = np.random.default_rng([2, seed])
    users, items = random.integers(0, USERS, (n, 1)), random.integers(0, ITEMS, (n, 1))
    likes = (TRUE_USERS[users[:, 0]] * TRUE_ITEMS[items[:, 0]]).sum(axis=1) > 0
    return users, items, (likes ^ (random.random(n) < NOISE)).astype(np.int64)


def held_out() -> Any:
    return samples(8192, 1 << 40)


def quality(outputs: Any, targets: Any) -> float:
    return float(np.mean(outputs[0].argmax(axis=1) == targets[0]))


def torch() -> Any:
    from torch import Tensor, cat, nn

    class Ncf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = nn.Embedding(USERS, FACTORS), nn.Embedding(ITEMS, FACTORS)
            self.deep_users = nn.Embedding(USERS, FACTORS)
            self.deep_items = nn.Embedding(ITEMS, FACTORS)
            first, second = WIDTHS
            self.layers = nn.Sequential(
                nn.Linear(2 * FACTORS, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU()
            )
            self.scores = nn.Linear(FACTORS + second, 2)
            for table in (self.users, self.items, self.deep_users, self.deep_items):
                nn.init.normal_(table.weight, std=0.05)  # as Keras has it

        def forward(self, users: Tensor, items: Tensor) -> Tensor:
            users, items = users[:, 0], items[:, 0]
            product = self.users(users) * self.items(items)
            deep = self.layers(cat([self.deep_users(users), self.deep_items(items)], 1))
            scores: Tensor = self.scores(cat([product, deep], 1))
            return scores

    return Ncf()


def torch_optimizer(parameters: Any) -> Any:
    from torch.optim import Adam

    return Adam(parameters, lr=0.01)


def tensorflow() -> Any:
    from tensorflow.keras import Input, Model, layers

    users, items = Input((1,), dtype="int64"), Input((1,), dtype="int64")

    def rows(given: Any, n: int) -> Any:
        table = layers.Embedding(n, FACTORS, embeddings_initializer="random_normal")
        return layers.Flatten()(table(given))

    product = layers.Multiply()([rows(users, USERS), rows(items, ITEMS)])
    deep = layers.Concatenate()([rows(users, USERS), rows(items, ITEMS)])
    for width in WIDTHS:
        deep = layers.Dense(width, activation="relu")(deep)
    return Model([users, items], layers.Dense(2)(layers.Concatenate()([product, deep])))


def tensorflow_optimizer() -> Any:
    from tensorflow.keras.optimizers import Adam

    return Adam(learning_rate=0.01)
