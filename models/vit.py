"""Vision Transformer: vit-base, an image of 224 x 224 as 196 patches of 16 x 16.

Dosovitskiy et al., arXiv:2010.11929: 12 layers, 12 heads, width 768. From transformers and from
keras_hub, with random weights.
"""

from typing import Any

from tuner.worker.gallery import Image, Model

VARIANTS = ("base",)
WIDTH, HEADS, INNER, PATCH, SIDE, CLASSES = 768, 12, 3072, 16, 224, 1000
EPSILON = 1e-12
PLACES = (SIDE // PATCH) ** 2 + 1
"""Patches, and one for the class."""


def model(variant: str = "base", layers: int = 12) -> Model:
    """Return the statement for so many layers."""
    per_place = layers * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER + 2 * PLACES * WIDTH)
    of_layer = 4 * (WIDTH + 1) * WIDTH + (WIDTH + 1) * INNER + (INNER + 1) * WIDTH + 4 * WIDTH
    patch = 3 * PATCH * PATCH
    return Model(
        title=f"ViT-{variant}/16 224",
        task="image classification",
        family="vision transformer",
        kind="transformer",
        inputs=(Image(SIDE, SIDE, 3),),
        reference_batch=4,
        batches=(1, 4),
        n_classes=CLASSES,
        n_parameters=(patch + 1) * WIDTH
        + (PLACES + 1) * WIDTH
        + layers * of_layer
        + 2 * WIDTH
        + (WIDTH + 1) * CLASSES,
        macs=PLACES * per_place + (PLACES - 1) * patch * WIDTH + WIDTH * CLASSES,
        widths={"torch": (7 * layers + 2) / (5 * layers + 2), "tensorflow": 2.0},
        follows="Dosovitskiy et al. 2020",
        small={"layers": 2},
    )


def torch(layers: int = 12) -> Any:
    """Return a torch.nn.Module over (batch, 3, 224, 224); scores, not probabilities."""
    from torch import Tensor, nn
    from transformers import ViTConfig, ViTForImageClassification

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = ViTForImageClassification(
                ViTConfig(num_hidden_layers=layers, num_labels=CLASSES, layer_norm_eps=EPSILON)
            )

        def forward(self, images: Tensor) -> Tensor:
            scores: Tensor = self.model(images, return_dict=False)[0]
            return scores

    return Classifier()


def tensorflow(layers: int = 12) -> Any:
    """Return a keras.Model over (batch, 224, 224, 3); scores, not probabilities."""
    from keras_hub.models import ViTBackbone
    from tensorflow.keras import Input, Model
    from tensorflow.keras import layers as made_of

    images = Input((SIDE, SIDE, 3))
    backbone = ViTBackbone(
        (SIDE, SIDE, 3), (PATCH, PATCH), layers, HEADS, WIDTH, INNER, layer_norm_epsilon=EPSILON
    )
    return Model(images, made_of.Dense(CLASSES, name="classifier")(backbone(images)[:, 0]))
