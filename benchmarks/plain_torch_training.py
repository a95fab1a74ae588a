"""What a user would write to train a PyTorch classifier: MODEL.py HEIGHT WIDTH BATCH SECONDS.

Measures once for each line that it reads, so that something else may measure in between.
"""

import runpy
import sys
import time

import torch

path, height, width, batch, seconds = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5])
model = runpy.run_path(path)["torch"]().train()
colours = 2 * torch.randn(batch, 3, 2, 2)  # smooth images, as the tool uses: noise is 6 % slower
x = torch.nn.functional.interpolate(colours, (height, width), mode="bilinear", align_corners=True)
y = torch.randint(1000, (batch,))
optimizer = torch.optim.AdamW(model.parameters())


def step() -> None:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


for _ in sys.stdin:
    step()
    steps, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        step()
        steps += 1
    print(steps * batch / elapsed, flush=True)
