"""DistilBERT: BERT-base with half of its layers, without pooler and segments.

Sanh et al., arXiv:1910.01108: 6 layers, 12 heads, width 768. From transformers and from keras_hub,
with random weights.
"""

from typing import Any

from tuner.worker.gallery import Mask, Model, Tokens

VOCABULARY, POSITIONS = 30_522, 512
WIDTH, HEADS, INNER = 768, 12, 3072


def model(layers: int = 6, length: int = 128) -> Model:
    """Return the statement for texts of `length` tokens, at most 512."""
    per_token = layers * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER + 2 * length * WIDTH)
    of_layer = 4 * (WIDTH + 1) * WIDTH + (WIDTH + 1) * INNER + (INNER + 1) * WIDTH + 4 * WIDTH
    return Model(
        title="DistilBERT",
        task="text encoding",
        family="encoder",
        kind="transformer",
        inputs=(Tokens((length,), VOCABULARY), Mask()),
        reference_batch=4,
        batches=(1, 4),
        n_parameters=(VOCABULARY + POSITIONS + 2) * WIDTH + layers * of_layer,
        macs=length * per_token,
        widths={"torch": 2.0, "tensorflow": 1.0},
        follows="Sanh et al. 2019",
        small={"layers": 2, "length": 32},
    )


def torch(layers: int = 6) -> Any:
    """Return a torch.nn.Module of (token ids, mask): the last hidden state."""
    from torch import Tensor, nn
    from transformers import DistilBertConfig, DistilBertModel

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = DistilBertModel(DistilBertConfig(n_layers=layers))

        def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
            hidden: Tensor = self.bert(tokens, attention_mask=mask, return_dict=False)[0]
            return hidden

    return Encoder()


def tensorflow(layers: int = 6, length: int = 128) -> Any:
    """Return a keras.Model of [token ids, mask]: the last hidden state."""
    from keras_hub.models import DistilBertBackbone
    from tensorflow.keras import Input, Model

    tokens = Input((length,), dtype="int32", name="tokens")
    mask = Input((length,), dtype="int32", name="mask")
    backbone = DistilBertBackbone(
        VOCABULARY, layers, HEADS, WIDTH, INNER, max_sequence_length=POSITIONS
    )
    return Model([tokens, mask], backbone({"token_ids": tokens, "padding_mask": mask}))
