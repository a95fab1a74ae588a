"""MobileNet-v1: the small image classifier of MLPerf Inference, 4,231,976 parameters.

Howard et al., arXiv:1704.04861, width 1.0 at 224 x 224. From transformers and from
keras.applications: the same layers, with random weights. Depthwise filters are positive and norms
add one: through 13 random filters in a row noise passes better than images, and 27 norms amplify
it, so that rounding would change the outputs (measured: bf16 by 120 %, like this by 4 %).
"""

from typing import Any

from tuner.worker.gallery import Image, Model

MODEL = Model(
    title="MobileNet-v1 1.0 224",
    task="image classification",
    family="cnn",
    kind="cnn",
    inputs=(Image(224, 224, 3),),
    reference_batch=4,
    batches=(4, 16),
    n_classes=1000,
    n_parameters=4_231_976,
    macs=568_740_352,
    widths={"torch": 1.0, "tensorflow": 1.0},
    follows="Howard et al. 2017; MLPerf Inference 0.5",
    systems=("MLPerf Inference",),
    server_bound_s=0.010,
)


def torch() -> Any:
    """Return a torch.nn.Module over (batch, 3, 224, 224); scores, not probabilities."""
    from torch import Tensor, nn
    from transformers import MobileNetV1Config, MobileNetV1ForImageClassification

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = MobileNetV1ForImageClassification(MobileNetV1Config(num_labels=1000))

        def forward(self, images: Tensor) -> Tensor:
            scores: Tensor = self.model(images, return_dict=False)[0]
            return scores

    model = Classifier()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            if module.groups > 1:
                nn.init.uniform_(module.weight)
            else:
                nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.bias)
    return model


def tensorflow() -> Any:
    """Return a keras.Model over (batch, 224, 224, 3); scores, not probabilities."""
    from tensorflow.keras import layers, ops
    from tensorflow.keras.applications import MobileNet

    model = MobileNet(weights=None, classifier_activation=None)
    for layer in model.layers:
        if isinstance(layer, layers.DepthwiseConv2D):
            layer.kernel.assign(ops.abs(layer.kernel))
        elif isinstance(layer, layers.BatchNormalization):
            layer.beta.assign(ops.ones_like(layer.beta))
    return model
