"""BERT, uncased vocabulary: bert-base encodes texts, bert-large answers questions as in MLPerf.

Devlin et al., arXiv:1810.04805: 12 layers of width 768 with the pooler, or 24 of width 1024 with a
score per token for the answer's beginning and end, texts of 384 tokens. From transformers and from
keras_hub, with random weights.
"""

from typing import Any, NamedTuple

from tuner.worker.gallery import Mask, Model, Tokens

VOCABULARY, POSITIONS, SEGMENTS = 30_522, 512, 2


class Size(NamedTuple):
    """Of a variant; a text has `length` tokens unless the user says otherwise."""

    layers: int
    heads: int
    width: int
    length: int


VARIANTS = {"base": Size(12, 12, 768, 128), "large": Size(24, 16, 1024, 384)}


def _size(variant: str, layers: int, length: int) -> Size:
    size = VARIANTS[variant]
    return size._replace(layers=layers or size.layers, length=length or size.length)


def model(variant: str = "base", layers: int = 0, length: int = 0) -> Model:
    """Return the statement; layers and length: 0 for the variant's own, a length of at most 512."""
    size = _size(variant, layers, length)
    width, inner = size.width, 4 * size.width
    per_token = size.layers * (4 * width * width + 2 * width * inner + 2 * size.length * width)
    answers = variant == "large"
    head = 2 * size.length * width if answers else width * width
    of_layer = 4 * (width + 1) * width + (width + 1) * inner + (inner + 1) * width + 4 * width
    embeddings = (VOCABULARY + POSITIONS + SEGMENTS) * width + 2 * width
    of_head = 2 * (width + 1) if answers else (width + 1) * width
    return Model(
        title=f"BERT-{variant}",
        task="question answering" if answers else "text encoding",
        family="encoder",
        kind="transformer",
        inputs=(Tokens((size.length,), VOCABULARY), Mask()),
        reference_batch=1 if answers else 4,
        batches=(1, 4),
        n_parameters=embeddings + size.layers * of_layer + of_head,
        macs=size.length * per_token + head,
        widths={"torch": 3.0, "tensorflow": 2.0},
        follows="MLPerf Inference, SQuAD 1.1" if answers else "Devlin et al. 2018",
        systems=("MLPerf Inference", "MLPerf Training", "TBD") if answers else ("TBD",),
        server_bound_s=0.130 if answers else None,
        small={"layers": 2, "length": 32},
        differs="GELU is exact in PyTorch (transformers), by tanh in Keras (keras_hub)",
    )


def torch(variant: str = "base", layers: int = 0, length: int = 0) -> Any:
    """Return a torch.nn.Module of (token ids, mask).

    base: the last hidden state and the pooled one; large: scores (batch, length, 2).
    """
    from torch import Tensor, nn
    from transformers import BertConfig, BertForQuestionAnswering, BertModel

    size = _size(variant, layers, length)
    config = BertConfig(
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        hidden_size=size.width,
        intermediate_size=4 * size.width,
    )

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel(config)

        def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            hidden, pooled = self.bert(tokens, attention_mask=mask, return_dict=False)[:2]
            return hidden, pooled

    class Answerer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertForQuestionAnswering(config)

        def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            first, last = self.bert(tokens, attention_mask=mask, return_dict=False)[:2]
            return first, last

    return Answerer() if variant == "large" else Encoder()


def tensorflow(variant: str = "base", layers: int = 0, length: int = 0) -> Any:
    """Return a keras.Model of [token ids, mask], with outputs as in PyTorch."""
    from keras_hub.models import BertBackbone
    from tensorflow.keras import Input, Model, ops
    from tensorflow.keras import layers as made_of

    size = _size(variant, layers, length)
    tokens = Input((size.length,), dtype="int32", name="tokens")
    mask = Input((size.length,), dtype="int32", name="mask")
    given = {"token_ids": tokens, "padding_mask": mask, "segment_ids": ops.zeros_like(tokens)}
    backbone = BertBackbone(
        VOCABULARY, size.layers, size.heads, size.width, 4 * size.width,
        max_sequence_length=POSITIONS, num_segments=SEGMENTS,
    )  # fmt: skip
    made = backbone(given)
    if variant == "large":
        scores = made_of.Dense(2)(made["sequence_output"])
        return Model([tokens, mask], [scores[..., 0], scores[..., 1]])
    return Model([tokens, mask], [made["sequence_output"], made["pooled_output"]])
