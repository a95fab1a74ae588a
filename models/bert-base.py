"""BERT-base, uncased vocabulary: the text encoder of MLPerf's BERT, at its base size.

Devlin et al., arXiv:1810.04805: 12 layers, 12 heads, width 768, 109,482,240 parameters with the
pooler. From transformers and from keras_hub, with random weights. keras_hub's approximates GELU by
tanh, as the original code does; transformers' is exact.
"""

from typing import Any

from tuner.worker.gallery import Mask, Model, Tokens

VOCABULARY = 30_522
WIDTH, LAYERS, HEADS, INNER = 768, 12, 12, 3072


def model(length: int = 128) -> Model:
    """Return the statement for texts of `length` tokens, at most 512."""
    per_token = LAYERS * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER + 2 * length * WIDTH)
    return Model(
        title="BERT-base",
        task="text encoding",
        kind="transformer",
        inputs=(Tokens((length,), VOCABULARY), Mask()),
        reference_batch=4,
        batches=(1, 4),
        n_parameters=109_482_240,
        macs=length * per_token + WIDTH * WIDTH,
        widths={"torch": 3.0, "tensorflow": 2.0},
    )


def torch() -> Any:
    """Return a torch.nn.Module of (token ids, mask): the last hidden state and the pooled one."""
    from torch import Tensor, nn
    from transformers import BertConfig, BertModel

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel(BertConfig())

        def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            hidden, pooled = self.bert(tokens, attention_mask=mask, return_dict=False)[:2]
            return hidden, pooled

    return Encoder()


def tensorflow(length: int = 128) -> Any:
    """Return a keras.Model of [token ids, mask]: the last hidden state and the pooled one."""
    from keras_hub.models import BertBackbone
    from tensorflow.keras import Input, Model, ops

    tokens = Input((length,), dtype="int32", name="tokens")
    mask = Input((length,), dtype="int32", name="mask")
    given = {"token_ids": tokens, "padding_mask": mask, "segment_ids": ops.zeros_like(tokens)}
    outputs = BertBackbone(VOCABULARY, LAYERS, HEADS, WIDTH, INNER)(given)
    return Model([tokens, mask], [outputs["sequence_output"], outputs["pooled_output"]])
