"""ResNet-50 v1.5 is one model in two frameworks."""

import subprocess
import sys

from tests.wants import needs

# In one child, so that both frameworks' threads end with it.
SAME_MODEL = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import re
import numpy as np
import torch
from tuner.galleries import MODELS
from tuner.record.workload import ModelRef
from tuner.worker import inputs
from tuner.worker.frameworks.torch import Torch
from tuner.worker.gallery.python_file import PythonFile

path = str(MODELS / "resnet50.py")
source = PythonFile(ModelRef("resnet50", path))
adapter = Torch()
adapter.build.start({})
adapter.build.seed(0)
adapter.build.adopt(source.build("torch"))
stated = source.state()
images = inputs.generate(stated.inputs, 2000, 16, 0, channels_first=True)
adapter.build.condition(images, stated.damped_norms)
ours, theirs = adapter.build.model, source.build("tensorflow")
state = {name: value.detach().numpy() for name, value in ours.state_dict().items()}

def twin(layer):
    # stage0_block1_conv2 is stage0_block1.conv2; stage0_block0_shortcut_norm ...shortcut.norm
    name = re.sub(r"^(stage\\d+_block\\d+)_", r"\\1.", layer.name)
    return name.replace("shortcut_", "shortcut.")

for layer in theirs.layers:
    kind, name = type(layer).__name__, twin(layer)
    if kind == "Conv2D":
        layer.set_weights([state[f"{name}.weight"].transpose(2, 3, 1, 0)])
    elif kind == "BatchNormalization":
        parts = ("weight", "bias", "running_mean", "running_var")
        layer.set_weights([state[f"{name}.{part}"] for part in parts])
    elif kind == "Dense":
        layer.set_weights([state[f"{name}.weight"].T, state[f"{name}.bias"]])

(x,) = inputs.generate(stated.inputs, 0, 4, 0)
with torch.inference_mode():
    a = ours(torch.from_numpy(x).permute(0, 3, 1, 2)).numpy()
b = theirs(x, training=False).numpy()
count = sum(p.numel() for p in ours.parameters())
print(count, sum(int(np.prod(v.shape)) for v in theirs.trainable_variables))
print(float(np.linalg.norm(a - b) / np.linalg.norm(a - a.mean(axis=0))))
block = "stage1_block0.conv"
strides = [(m.kernel_size, m.stride) for n, m in ours.named_modules() if n.startswith(block)]
print(strides)
"""


@needs("torch")
@needs("tensorflow")
def test_both_frameworks_hold_the_same_model() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", SAME_MODEL], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    counts, difference, strides = done.stdout.splitlines()
    assert counts == "25557032 25557032"
    assert float(difference) < 1e-4
    # version 1.5: the 3x3 convolution has the stride
    assert strides == "[((1, 1), (1, 1)), ((3, 3), (2, 2)), ((1, 1), (1, 1))]"
