"""Tune servers as people write them, from outside.

    python -m benchmarks.own_server FOLDER classifier --slo p95=60ms --budget 14m
    python -m benchmarks.own_server FOLDER mobilenet --slo p95=150ms --budget 13m

classifier: FastAPI under uvicorn, PyTorch. mobilenet: LitServe, TensorFlow (extra `peers`). A
study lies in FOLDER/NAME/out afterwards and goes on there; arguments that are not known here are
the command's own. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

SERVED = Path(__file__).with_name("served")
STARTED = {
    "classifier": ("-m uvicorn classifier:app --port {port} --log-level warning", "/predict"),
    "mobilenet": ("mobilenet.py {port}", "/v1/models/mobilenet:predict"),
}
REVIEWS = (
    "this film was good",
    "the story is poor and the acting is bad",
    "a great film with great acting for it was in the story of this",
)


def _reviews() -> Iterator[dict[str, Any]]:
    yield from ({"text": review} for review in REVIEWS)


def _images() -> Iterator[dict[str, Any]]:
    import tensorflow as tf

    draw = np.random.default_rng(0)
    for _ in range(40):
        coarse = draw.integers(0, 256, (14, 14, 3))
        image = tf.clip_by_value(tf.image.resize(coarse, (224, 224), "bicubic"), 0, 255)
        jpeg = tf.io.encode_jpeg(tf.cast(image, tf.uint8)).numpy()
        yield {"instances": [{"b64": base64.b64encode(jpeg).decode()}]}


REQUESTS = {"classifier": _reviews, "mobilenet": _images}


def main() -> None:
    """Write the requests, then tune."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", choices=STARTED)
    given, others = parser.parse_known_args()
    folder = given.folder / given.name
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(SERVED / f"{given.name}.py", folder)
    requests = folder / "requests.jsonl"
    if not requests.exists():
        lines = map(json.dumps, REQUESTS[given.name]())
        requests.write_text("".join(f"{line}\n" for line in lines))
    program, path = STARTED[given.name]
    tuned = subprocess.run(
        [sys.executable, "-m", "tuner.cli.main", "--serve", f"{sys.executable} {program}",
         "--url", f"http://127.0.0.1:{{port}}{path}", "--requests", requests.name,
         "--hw", "auto", "--out", "out", *others],
        cwd=folder, check=False,
    )  # fmt: skip
    raise SystemExit(tuned.returncode)


if __name__ == "__main__":
    main()
