"""What a user would write to time a PyTorch model: MODEL.py HEIGHT WIDTH BATCH SECONDS.

Measures once for each line that it reads, so that something else may measure in between.
"""

import runpy
import sys
import time

import torch

path, height, width, batch, seconds = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5])
model = runpy.run_path(path)["torch"]().eval()
colours = 2 * torch.randn(batch, 3, 2, 2)  # smooth images, as the tool uses: noise is 6 % slower
x = torch.nn.functional.interpolate(colours, (height, width), mode="bilinear", align_corners=True)
with torch.inference_mode():
    for _ in sys.stdin:
        model(x)
        calls, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            model(x)
            calls += 1
        print(calls * batch / elapsed, flush=True)
