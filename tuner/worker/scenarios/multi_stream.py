"""Multi-stream: one caller sends several samples at once, waits for the answer, sends the next.

The samples of a request are one batch of the model (MLPerf Inference's rules leave it to the system
how a query is cut). Where inputs have several shapes, the samples of one request share theirs.
Otherwise it is single-stream.
"""

from __future__ import annotations

from tuner.worker.scenarios.single_stream import serve

__all__ = ["serve"]
