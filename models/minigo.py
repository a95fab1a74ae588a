"""MiniGo: which move, and who wins, on a board of 19 x 19; MLPerf Training's reinforcement learner.

After AlphaGo Zero (Silver et al. 2017): 13 planes, residual blocks of 64 channels, 6 of them as in
MLPerf. This is the network alone, which self-play calls for thousands of positions. Written out for
both frameworks from one table: the same model.
"""

from typing import Any

from tuner.worker.gallery import Image, Model

SIDE, PLANES, WIDTH, HIDDEN, EPSILON = 19, 13, 64, 64, 1e-5
PLACES = SIDE * SIDE


def model(blocks: int = 6) -> Model:
    """Return the statement for so many residual blocks."""
    conv = 9 * WIDTH * WIDTH
    heads = (2 * PLACES + 1) * (PLACES + 1) + (PLACES + 1) * HIDDEN + HIDDEN + 1
    return Model(
        title="MiniGo 19 x 19",
        task="reinforcement learning",
        family="game",
        kind="cnn",
        inputs=(Image(SIDE, SIDE, PLANES),),
        reference_batch=16,
        batches=(16, 64),
        n_classes=PLACES + 1,
        damped_norms=r"norm2$",
        n_parameters=9 * PLANES * WIDTH
        + 2 * WIDTH
        + blocks * 2 * (conv + 2 * WIDTH)
        + 3 * WIDTH
        + 6
        + heads,
        macs=PLACES * (9 * PLANES * WIDTH + blocks * 2 * conv + 3 * WIDTH)
        + 2 * PLACES * (PLACES + 1)
        + PLACES * HIDDEN
        + HIDDEN,
        widths=dict.fromkeys(("torch", "tensorflow"), (2 * blocks + 6) / (2 * blocks + 4)),
        follows="MLPerf Training 0.7, network of minigo",
        systems=("MLPerf Training",),
        small={"blocks": 2},
    )


def torch(blocks: int = 6) -> Any:
    """Return a torch.nn.Module over (batch, 13, 19, 19): scores of 362 moves, and the value."""
    from torch import Tensor, nn, relu, tanh

    def conv(n_in: int, n_out: int, size: int) -> nn.Conv2d:
        made = nn.Conv2d(n_in, n_out, size, padding=size // 2, bias=False)
        nn.init.kaiming_normal_(made.weight, nonlinearity="relu")
        return made

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.norm1 = conv(WIDTH, WIDTH, 3), nn.BatchNorm2d(WIDTH, eps=EPSILON)
            self.conv2, self.norm2 = conv(WIDTH, WIDTH, 3), nn.BatchNorm2d(WIDTH, eps=EPSILON)

        def forward(self, x: Tensor) -> Tensor:
            y = relu(self.norm1(self.conv1(x)))
            return relu(x + self.norm2(self.conv2(y)))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(
                conv(PLANES, WIDTH, 3), nn.BatchNorm2d(WIDTH, eps=EPSILON), nn.ReLU()
            )
            self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
            self.policy = nn.Sequential(
                conv(WIDTH, 2, 1), nn.BatchNorm2d(2, eps=EPSILON), nn.ReLU(), nn.Flatten()
            )
            self.move = nn.Linear(2 * PLACES, PLACES + 1)
            self.worth = nn.Sequential(
                conv(WIDTH, 1, 1), nn.BatchNorm2d(1, eps=EPSILON), nn.ReLU(), nn.Flatten()
            )
            self.hidden = nn.Linear(PLACES, HIDDEN)
            self.value = nn.Linear(HIDDEN, 1)

        def forward(self, board: Tensor) -> tuple[Tensor, Tensor]:
            x = self.blocks(self.stem(board))
            value = tanh(self.value(relu(self.hidden(self.worth(x)))))
            return self.move(self.policy(x)), value

    return Network()


def tensorflow(blocks: int = 6) -> Any:
    """Return a keras.Model over (batch, 19, 19, 13): scores of 362 moves, and the value."""
    from tensorflow.keras import Input, Model, layers

    def conv_norm(x: Any, width: int, size: int, name: str | None = None) -> Any:
        x = layers.Conv2D(
            width, size, padding="same", use_bias=False, kernel_initializer="he_normal"
        )(x)
        return layers.BatchNormalization(epsilon=EPSILON, name=name)(x)

    def flat(x: Any, width: int) -> Any:
        x = layers.ReLU()(conv_norm(x, width, 1))
        if width > 1:  # PyTorch flattens channels first
            x = layers.Permute((3, 1, 2))(x)
        return layers.Flatten()(x)

    board = Input((SIDE, SIDE, PLANES))
    x = layers.ReLU()(conv_norm(board, WIDTH, 3))
    for b in range(blocks):
        y = layers.ReLU()(conv_norm(x, WIDTH, 3, f"block{b}_norm1"))
        x = layers.ReLU()(layers.Add()([x, conv_norm(y, WIDTH, 3, f"block{b}_norm2")]))
    policy = flat(x, 2)
    move = layers.Dense(PLACES + 1)(policy)
    worth = flat(x, 1)
    hidden = layers.Dense(HIDDEN, activation="relu")(worth)
    return Model(board, [move, layers.Dense(1, activation="tanh")(hidden)])
