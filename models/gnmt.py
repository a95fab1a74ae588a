"""GNMT: translation by LSTMs with attention, the recurrent model of MLPerf.

Wu et al., arXiv:1609.08144, at the sizes of MLPerf: four layers of 1,024 units read the source (the
first in both directions), four write the target, with residuals from the third on; one vocabulary
of 32,000 for both languages; normalised additive attention by the first writing layer, whose result
all others get. A call is one pass over the source and the target so far, and scores the token that
follows: a search would keep what it has read. Written out for both frameworks.
"""

from typing import Any

from tuner.worker.gallery import Model, Tokens

VOCABULARY, UNITS, LAYERS = 32_000, 1024, 4
READ_FROM = (UNITS, 2 * UNITS, UNITS, UNITS)
"""What the layers that read take; the first in either direction."""


def model(length: int = 32) -> Model:
    """Return the statement for sources of `length` tokens, and targets of as many so far."""
    reads = [UNITS, UNITS, *READ_FROM[1:]]  # the first layer in either direction
    writes = [UNITS] + [2 * UNITS] * (LAYERS - 1)
    lstm = sum(4 * UNITS * (n + UNITS) for n in (*reads, *writes))
    biases = 2 * 4 * UNITS * len((*reads, *writes))
    attention = 2 * UNITS * UNITS
    return Model(
        title="GNMT",
        task="translation",
        family="translation",
        kind="recurrent",
        inputs=(Tokens((length,), VOCABULARY), Tokens((length,), VOCABULARY)),
        reference_batch=4,
        batches=(1, 4),
        n_classes=VOCABULARY,
        n_parameters=VOCABULARY * UNITS
        + lstm
        + biases
        + attention
        + 2 * UNITS
        + 1
        + (UNITS + 1) * VOCABULARY,
        macs=length * (lstm + attention + 2 * length * UNITS) + UNITS * VOCABULARY,
        widths={"torch": 2.0, "tensorflow": 2.0},
        follows="MLPerf Inference 0.5 and MLPerf Training 0.5 to 0.7, one pass",
        systems=("MLPerf Inference", "MLPerf Training"),
        server_bound_s=0.250,
        small={"length": 8},
        differs="PyTorch's LSTMs have two biases that they add up, Keras's one: 36,864 parameters",
    )


def torch() -> Any:
    """Return a torch.nn.Module of (source, target so far): scores of the next token."""
    from torch import Tensor, bmm, cat, nn, ones, rand, softmax, tanh, zeros

    class Attention(nn.Module):
        """Additive, with a normalised vector (Bahdanau et al., as in MLPerf's reference)."""

        def __init__(self) -> None:
            super().__init__()
            self.query = nn.Linear(UNITS, UNITS, bias=False)
            self.key = nn.Linear(UNITS, UNITS, bias=False)
            self.vector = nn.Parameter(rand(UNITS) - 0.5)
            self.bias = nn.Parameter(zeros(UNITS))
            self.scale = nn.Parameter(ones(1))

        def forward(self, queries: Tensor, memory: Tensor) -> Tensor:
            sums = self.query(queries)[:, :, None] + self.key(memory)[:, None] + self.bias
            vector = self.vector / self.vector.norm() * self.scale
            weights = softmax(tanh(sums) @ vector, dim=-1)
            return bmm(weights, memory)

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, UNITS)
            self.both_ways = nn.LSTM(UNITS, UNITS, batch_first=True, bidirectional=True)
            self.reading = nn.ModuleList(nn.LSTM(n, UNITS, batch_first=True) for n in READ_FROM[1:])
            self.first = nn.LSTM(UNITS, UNITS, batch_first=True)
            self.attention = Attention()
            self.writing = nn.ModuleList(
                nn.LSTM(2 * UNITS, UNITS, batch_first=True) for _ in range(LAYERS - 1)
            )
            self.scores = nn.Linear(UNITS, VOCABULARY)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            x = self.both_ways(self.embedding(source))[0]
            for i, lstm in enumerate(self.reading):
                y = lstm(x)[0]
                x = y if i == 0 else x + y
            y = self.first(self.embedding(target))[0]
            context = self.attention(y, x)
            for i, lstm in enumerate(self.writing):
                z = lstm(cat([y, context], dim=-1))[0]
                y = z if i == 0 else y + z
            scores: Tensor = self.scores(y[:, -1])
            return scores

    return Translator()


def tensorflow(length: int = 32) -> Any:
    """Return a keras.Model of [source, target so far]: scores of the next token."""
    from tensorflow.keras import Input, Model, layers, ops

    class Attention(layers.Layer):
        """Additive, with a normalised vector (Bahdanau et al., as in MLPerf's reference)."""

        def build(self, _: Any) -> None:
            self.query = layers.Dense(UNITS, use_bias=False, name="query")
            self.key = layers.Dense(UNITS, use_bias=False, name="key")
            self.query.build((None, length, UNITS))
            self.key.build((None, length, UNITS))
            self.vector = self.add_weight(
                shape=(UNITS,), initializer="random_uniform", name="vector"
            )
            self.bias = self.add_weight(shape=(UNITS,), initializer="zeros", name="bias")
            self.scale = self.add_weight(shape=(1,), initializer="ones", name="scale")

        def call(self, queries: Any, memory: Any) -> Any:
            sums = self.query(queries)[:, :, None] + self.key(memory)[:, None] + self.bias
            vector = self.vector / ops.norm(self.vector) * self.scale
            weights = ops.softmax(ops.sum(ops.tanh(sums) * vector, axis=-1))
            return ops.matmul(weights, memory)

    def lstm(x: Any) -> Any:
        return layers.LSTM(UNITS, return_sequences=True)(x)

    source = Input((length,), dtype="int64", name="source")
    target = Input((length,), dtype="int64", name="target")
    embedding = layers.Embedding(VOCABULARY, UNITS, embeddings_initializer="random_normal")
    x = layers.Bidirectional(layers.LSTM(UNITS, return_sequences=True))(embedding(source))
    for i in range(LAYERS - 1):
        y = lstm(x)
        x = y if i == 0 else layers.Add()([x, y])
    y = lstm(embedding(target))
    context = Attention()(y, x)
    for i in range(LAYERS - 1):
        z = lstm(layers.Concatenate()([y, context]))
        y = z if i == 0 else layers.Add()([y, z])
    return Model([source, target], layers.Dense(VOCABULARY)(y[:, -1]))
