"""Transformer (big): translation, as in MLPerf Training.

Vaswani et al., arXiv:1706.03762: 6 + 6 layers, 16 heads, width 1024, one vocabulary of 33,708 for
both languages. A call is one pass over the source and the target so far, and scores the token that
follows: a search would keep what it has encoded. torch.nn.Transformer, and layers of keras_hub,
with random weights.
"""

from typing import Any

from tuner.worker.gallery import Model, Tokens

VOCABULARY = 33_708
WIDTH, HEADS, INNER, EPSILON = 1024, 16, 4096, 1e-5


def model(layers: int = 6, length: int = 32) -> Model:
    """Return the statement for sources of `length` tokens, and targets of as many so far."""
    attention, inner = 4 * WIDTH * WIDTH, 2 * WIDTH * INNER
    of_attention = 4 * (WIDTH + 1) * WIDTH
    of_inner = (WIDTH + 1) * INNER + (INNER + 1) * WIDTH
    norm = 2 * WIDTH
    per_token = 3 * (attention + 2 * length * WIDTH) + 2 * inner
    return Model(
        title="Transformer (big), translation",
        task="translation",
        family="translation",
        kind="transformer",
        inputs=(Tokens((length,), VOCABULARY), Tokens((length,), VOCABULARY)),
        reference_batch=4,
        batches=(1, 4),
        n_classes=VOCABULARY,
        n_parameters=VOCABULARY * WIDTH
        + layers * (3 * of_attention + 2 * of_inner + 5 * norm)
        + 2 * norm,
        macs=length * layers * per_token + WIDTH * VOCABULARY,
        widths={"torch": 2.0, "tensorflow": 2.0},
        follows="MLPerf Training 0.5 to 0.7, one pass",
        systems=("MLPerf Training", "TBD"),
        small={"layers": 1, "length": 8},
    )


def torch(layers: int = 6, length: int = 32) -> Any:
    """Return a torch.nn.Module of (source, target so far): scores of the next token."""
    from torch import Tensor, arange, cos, nn, sin, zeros

    def places() -> Tensor:
        """Return sines and cosines of every place, (length, width)."""
        rate = 10_000.0 ** (-(arange(WIDTH) // 2 * 2) / WIDTH)
        angles = arange(length)[:, None] * rate
        made = zeros(length, WIDTH)
        made[:, 0::2], made[:, 1::2] = sin(angles[:, 0::2]), cos(angles[:, 1::2])
        return made

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, WIDTH)
            nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5)
            self.transformer = nn.Transformer(
                WIDTH, HEADS, layers, layers, INNER, layer_norm_eps=EPSILON, batch_first=True
            )
            self.register_buffer("places", places(), persistent=False)
            mask = nn.Transformer.generate_square_subsequent_mask(length)
            self.register_buffer("mask", mask, persistent=False)

        def embed(self, tokens: Tensor) -> Tensor:
            return self.embedding(tokens) * WIDTH**0.5 + self.places

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            made = self.transformer(
                self.embed(source), self.embed(target), tgt_mask=self.mask, tgt_is_causal=True
            )
            return made[:, -1] @ self.embedding.weight.T

    return Translator()


def tensorflow(layers: int = 6, length: int = 32) -> Any:
    """Return a keras.Model of [source, target so far]: scores of the next token."""
    from keras_hub.layers import (
        ReversibleEmbedding,
        SinePositionEncoding,
        TransformerDecoder,
        TransformerEncoder,
    )
    from tensorflow.keras import Input, Model
    from tensorflow.keras import layers as made_of

    embedding = ReversibleEmbedding(
        VOCABULARY, WIDTH, embeddings_initializer="random_normal", name="embedding"
    )
    source = Input((length,), dtype="int32", name="source")
    target = Input((length,), dtype="int32", name="target")

    def embed(tokens: Any) -> Any:
        x = embedding(tokens) * WIDTH**0.5
        return x + SinePositionEncoding()(x)

    x = embed(source)
    for i in range(layers):
        x = TransformerEncoder(
            INNER, HEADS, activation="relu", layer_norm_epsilon=EPSILON, name=f"encoder{i}"
        )(x)
    memory = made_of.LayerNormalization(epsilon=EPSILON, name="encoder_norm")(x)
    y = embed(target)
    for i in range(layers):
        y = TransformerDecoder(
            INNER, HEADS, activation="relu", layer_norm_epsilon=EPSILON, name=f"decoder{i}"
        )(y, memory)
    y = made_of.LayerNormalization(epsilon=EPSILON, name="decoder_norm")(y)
    return Model([source, target], embedding(y[:, -1], reverse=True))
