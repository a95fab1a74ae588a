"""An LSTM that tags each of 40 words with the last marker that was seen: memory over a distance."""

from typing import Any

import numpy as np

from tuner.worker.gallery import Integers, Model, Target

WORDS, LENGTH, MARKERS, COLUMNS, UNITS = 100, 40, 8, 32, 64

MODEL = Model(
    title="LSTM tagger, small",
    task="tagging",
    kind="recurrent",
    family="recurrent",
    inputs=(Integers((LENGTH,), 0, WORDS - 1),),
    targets=(Integers((LENGTH,), 0, MARKERS),),
    reference_batch=32,
    batches=(32,),
    target=Target("accuracy", 0.98, every=10, most_steps=1500),
    follows="Fathom, seq2seq",
)


def samples(n: int, seed: int) -> Any:
    random = np.random.default_rng([6, seed])
    words = random.integers(0, WORDS, (n, LENGTH))
    tags = np.empty_like(words)
    last = np.full(n, MARKERS)
    for place in range(LENGTH):
        last = np.where(words[:, place] < MARKERS, words[:, place], last)
        tags[:, place] = last
    return words, tags


def held_out() -> Any:
    return samples(512, 1 << 40)


def quality(outputs: Any, targets: Any) -> float:
    return float(np.mean(outputs[0].argmax(axis=2) == targets[0]))


def torch() -> Any:
    from torch import Tensor, nn

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, COLUMNS)
            self.lstm = nn.LSTM(COLUMNS, UNITS, batch_first=True)
            self.tags = nn.Linear(UNITS, MARKERS + 1)

        def forward(self, words: Tensor) -> Tensor:
            tags: Tensor = self.tags(self.lstm(self.words(words))[0])
            return tags

    return Tagger()


def tensorflow() -> Any:
    from tensorflow.keras import Input, Model, layers

    words = Input((LENGTH,), dtype="int64")
    x = layers.Embedding(WORDS, COLUMNS, embeddings_initializer="random_normal")(words)
    return Model(words, layers.Dense(MARKERS + 1)(layers.LSTM(UNITS, return_sequences=True)(x)))


def torch_optimizer(parameters: Any) -> Any:
    from torch.optim import Adam

    return Adam(parameters, lr=2e-3)


def tensorflow_optimizer() -> Any:
    from tensorflow.keras.optimizers import Adam

    return Adam(learning_rate=2e-3)
