"""MLPerf's LoadGen in a process of its own: it sends requests to the instances of a server.

    python -P -m tuner.worker.loadgen SOCKET_FD REPLY_FD ORDER

It runs in an empty folder: an audit.config there would override its settings. The instances connect
to a socket that already listens. Each has a thread here, which takes waiting requests from the
queue, has them answered, and waits. Python's lock changes hands every 5 ms by default, which would
be part of every latency.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from tuner.record.load import Batching
from tuner.record.protocol import Asked
from tuner.record.serving import LoadgenOrder, LoadgenWord, Word

_SWITCH_S = 0.0005
_SAMPLES = 1024
_MARK = ":::MLLOG "
# of MLPerf Inference v6.1 (loadgen/mlperf.conf)
_SEEDS = {
    "qsl_rng_seed": 2085463073848966840,
    "sample_index_rng_seed": 2747215439041700203,
    "schedule_rng_seed": 16159082839903944936,
}


class _Line:
    """Requests that wait, oldest first, as (id, shape, moment)."""

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self._waiting: list[tuple[int, int, float]] = []
        self._changed = threading.Condition()
        self._is_over = False

    def add(self, requests: list[tuple[int, int]]) -> None:
        now = time.monotonic()
        with self._changed:
            self._waiting += [(id_, shape, now) for id_, shape in requests]
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def take(self) -> tuple[list[int], int] | None:
        """Wait for requests of one shape; None at the end."""
        batching = self._batching
        with self._changed:
            while True:
                while not self._waiting and not self._is_over:
                    self._changed.wait()
                if not self._waiting:
                    return None
                _, shape, since = self._waiting[0]
                own = [r for r in self._waiting if r[1] == shape][: batching.largest]
                left_s = since + batching.wait_s - time.monotonic()
                if len(own) < batching.largest and left_s > 0 and not self._is_over:
                    self._changed.wait(left_s)
                    continue  # another instance may have taken them
                taken = {id_ for id_, _, _ in own}
                self._waiting = [r for r in self._waiting if r[0] not in taken]
                if self._waiting:
                    self._changed.notify()
                return [id_ for id_, _, _ in own], shape


def run(order: LoadgenOrder, listener: socket.socket) -> LoadgenWord:
    """Send the requests, wait for all answers, and return LoadGen's result."""
    import mlperf_loadgen as lg

    line = _Line(order.batching)
    instances = [listener.accept()[0] for _ in range(order.batching.n_servers)]

    def serve(connection: socket.socket) -> None:
        while (taken := line.take()) is not None:
            ids, shape = taken
            requests = Asked(order.batching.padded(len(ids)), shape)
            connection.sendall(requests.written())
            if not connection.recv(1):
                os._exit(3)  # an instance has died: LoadGen would wait for its answers for ever
            lg.QuerySamplesComplete([lg.QuerySampleResponse(id_, 0, 0) for id_ in ids])
        connection.close()

    def issue(samples: Any) -> None:
        line.add([(sample.id, sample.index % order.n_shapes) for sample in samples])

    threads = [threading.Thread(target=serve, args=(each,)) for each in instances]
    for thread in threads:
        thread.start()
    settings = lg.TestSettings()
    settings.scenario = lg.TestScenario.Server
    settings.mode = lg.TestMode.PerformanceOnly
    settings.server_target_qps = order.rate
    settings.server_target_latency_ns = round(1e9 * order.seconds)
    settings.server_target_latency_percentile = order.quantile
    settings.min_duration_ms = round(1000 * order.duration_s)
    settings.min_query_count = order.n_requests
    for name, seed in _SEEDS.items():
        setattr(settings, name, seed)
    output = lg.LogOutputSettings()
    output.outdir = "."
    output.copy_summary_to_stdout = False
    logs = lg.LogSettings()
    logs.log_output = output
    logs.enable_trace = False
    sut = lg.ConstructSUT(issue, lambda: None)
    samples = lg.ConstructQSL(_SAMPLES, _SAMPLES, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(sut, samples, settings, logs)
    line.end()
    for thread in threads:
        thread.join()
    lg.DestroyQSL(samples)
    lg.DestroySUT(sut)
    return word_of(order, Path("mlperf_log_detail.txt").read_text())


def word_of(order: LoadgenOrder, detail: str) -> LoadgenWord:
    """Read a detail log."""
    lines = [line.removeprefix(_MARK) for line in detail.splitlines() if line.startswith(_MARK)]
    summary = {entry["key"]: entry["value"] for entry in map(json.loads, lines)}
    word: Word = "valid"
    reasons = [summary.get("result_invalid_reason", ""), summary.get("early_stopping_result", "")]
    if summary["result_validity"] != "VALID":
        word = "too_short" if summary["result_perf_constraints_met"] else "too_slow"
    scheduled = float(summary["result_scheduled_samples_per_sec"])
    n_requests = int(summary["result_query_count"])
    at_quantile = summary.get(f"result_{100 * order.quantile:.2f}_percentile_latency_ns")
    return LoadgenWord(
        word=word,
        reason="" if word == "valid" else " ".join(" ".join(filter(None, reasons)).split()),
        rate=order.rate,
        scheduled_rate=scheduled,
        duration_s=n_requests / scheduled,
        n_requests=n_requests,
        n_over=int(summary["result_overlatency_query_count"]),
        latency_s=None if at_quantile is None else 1e-9 * float(at_quantile),
    )


def main() -> None:
    """Run in the current folder, which is empty; write the word to a pipe."""
    socket_fd, reply_fd = int(sys.argv[1]), int(sys.argv[2])
    order = msgspec.json.decode(sys.argv[3], type=LoadgenOrder)
    sys.setswitchinterval(_SWITCH_S)
    word = run(order, socket.socket(fileno=socket_fd))
    os.write(reply_fd, msgspec.json.encode(word))
    os._exit(0)


if __name__ == "__main__":
    main()
