"""An LSTM tagger: a part of speech for every word, by a bidirectional LSTM of two layers.

Huang et al., arXiv:1508.01991, without its CRF: embeddings of 100 columns, 200 units a direction,
45 tags of the Penn Treebank. Written out for both frameworks.
"""

from typing import Any

from tuner.worker.gallery import Model, Tokens

VOCABULARY, COLUMNS, UNITS, LAYERS, TAGS = 20_000, 100, 200, 2, 45


def model(length: int = 40) -> Model:
    """Return the statement for sentences of `length` words."""
    widths = (COLUMNS, 2 * UNITS)
    return Model(
        title="LSTM tagger",
        task="tagging",
        family="recurrent",
        kind="recurrent",
        inputs=(Tokens((length,), VOCABULARY),),
        reference_batch=8,
        batches=(8, 32),
        n_parameters=VOCABULARY * COLUMNS
        + sum(2 * 4 * UNITS * (width + UNITS + 2) for width in widths)
        + (2 * UNITS + 1) * TAGS,
        macs=length * (sum(2 * 4 * UNITS * (w + UNITS) for w in widths) + 2 * UNITS * TAGS),
        widths={"torch": 1.0, "tensorflow": 1.0},
        follows="Huang et al. 2015, without the CRF",
        small={"length": 10},
        differs="PyTorch's LSTM has two biases that it adds up, Keras's one: 3,200 parameters",
    )


def torch() -> Any:
    """Return a torch.nn.Module over (batch, length): scores (batch, length, tags)."""
    from torch import Tensor, nn

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, COLUMNS)
            self.lstm = nn.LSTM(COLUMNS, UNITS, LAYERS, batch_first=True, bidirectional=True)
            self.tags = nn.Linear(2 * UNITS, TAGS)

        def forward(self, words: Tensor) -> Tensor:
            scores: Tensor = self.tags(self.lstm(self.embedding(words))[0])
            return scores

    return Tagger()


def tensorflow(length: int = 40) -> Any:
    """Return a keras.Model over (batch, length): scores (batch, length, tags)."""
    from tensorflow.keras import Input, Model, layers

    words = Input((length,), dtype="int64", name="words")
    x = layers.Embedding(VOCABULARY, COLUMNS, embeddings_initializer="random_normal")(words)
    for _ in range(LAYERS):
        x = layers.Bidirectional(layers.LSTM(UNITS, return_sequences=True))(x)
    return Model(words, layers.Dense(TAGS)(x))
