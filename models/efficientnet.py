"""EfficientNet: efficientnet-b0, found by a search for accuracy per multiplication.

Tan and Le, arXiv:1905.11946: depthwise convolutions with squeeze and excitation. From transformers
and from keras.applications, with random weights.
"""

from typing import Any

from tuner.worker.gallery import Image, Model

VARIANTS = ("b0",)


def model(variant: str = "b0") -> Model:
    """Return the statement."""
    return Model(
        title=f"EfficientNet-{variant.upper()}",
        task="image classification",
        family="cnn",
        kind="cnn",
        inputs=(Image(224, 224, 3),),
        reference_batch=4,
        batches=(4, 16),
        n_classes=1000,
        damped_norms=r"(project_bn|projection\.project_bn)$",
        n_parameters=5_288_548,
        macs=385_000_000,
        widths={"torch": 1.0, "tensorflow": 1.0},
        follows="Tan and Le 2019",
        differs="Keras's scales its images inside the model; transformers' does not",
    )


def torch() -> Any:
    """Return a torch.nn.Module over (batch, 3, 224, 224); scores, not probabilities."""
    from torch import Tensor, nn
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(
        image_size=224,
        width_coefficient=1.0,
        depth_coefficient=1.0,
        hidden_dim=1280,
        dropout_rate=0.2,
        num_labels=1000,
    )

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = EfficientNetForImageClassification(config)

        def forward(self, images: Tensor) -> Tensor:
            scores: Tensor = self.model(images, return_dict=False)[0]
            return scores

    model = Classifier()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
    return model


def tensorflow() -> Any:
    """Return a keras.Model over (batch, 224, 224, 3); scores, not probabilities."""
    from tensorflow.keras.applications import EfficientNetB0

    return EfficientNetB0(weights=None, classifier_activation=None)
