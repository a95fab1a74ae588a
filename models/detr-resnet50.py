"""DETR on ResNet-50: objects as 100 queries to a transformer, images of 800 x 1066.

Carion et al., arXiv:2005.12872. Stands where MLPerf Training had Mask R-CNN: none of this package's
libraries builds that one, and this detector has the same backbone, image size and purpose, with a
fixed number of detections. From transformers, with random weights.
"""

from typing import Any

from tuner.worker.gallery import Image, Model

# (blocks, width of the 3x3 convolution, stride of the first block); a block's output is 4x as wide
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
WIDTH, INNER, LAYERS, QUERIES, LABELS = 256, 2048, 6, 100, 92
"""Of the transformer; a label more than there are classes stands for nothing."""


def _macs(height: int, width: int) -> int:
    def halved(at: tuple[int, int]) -> tuple[int, int]:
        return (at[0] + 1) // 2, (at[1] + 1) // 2

    at = halved((height, width))
    total = at[0] * at[1] * 49 * 3 * 64
    at, n_in = halved(at), 64
    for blocks, middle, stride in STAGES:
        for block in range(blocks):
            total += at[0] * at[1] * n_in * middle
            at = halved(at) if stride == 2 and block == 0 else at
            shortcut = n_in * 4 * middle if block == 0 else 0
            total += at[0] * at[1] * (9 * middle * middle + middle * 4 * middle + shortcut)
            n_in = 4 * middle
    places = at[0] * at[1]
    products, inner = 4 * WIDTH * WIDTH, 2 * WIDTH * INNER
    encoder = places * (products + inner + 2 * places * WIDTH)
    own = QUERIES * (products + 2 * QUERIES * WIDTH)
    cross = 2 * WIDTH * WIDTH * (QUERIES + places) + 2 * QUERIES * places * WIDTH
    heads = QUERIES * (WIDTH * LABELS + 2 * WIDTH * WIDTH + 4 * WIDTH)
    decoder = own + cross + QUERIES * inner
    return total + places * n_in * WIDTH + LAYERS * (encoder + decoder) + heads


def model(height: int = 800, width: int = 1066) -> Model:
    """Return the statement for images of height x width."""
    return Model(
        title=f"DETR ResNet-50 {height} x {width}",
        task="object detection",
        family="detection",
        kind="cnn",
        inputs=(Image(height, width, 3),),
        reference_batch=1,
        batches=(1,),
        n_parameters=41_524_768,
        macs=_macs(height, width),
        widths={"torch": 1.34},
        follows="Carion et al. 2020; in the place of MLPerf Training's Mask R-CNN",
        small={"height": 128, "width": 160},
    )


def torch() -> Any:
    """Return a torch.nn.Module over (batch, 3, height, width).

    Outputs: scores (batch, 100, 92) and boxes (batch, 100, 4).
    """
    from torch import Tensor, nn
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=ResNetConfig(out_features=["stage4"]),
        num_labels=LABELS - 1,
    )

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = DetrForObjectDetection(config)

        def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
            made = self.model(images)
            return made.logits, made.pred_boxes

    model = Detector()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model
