"""A whole study of a user's own server: FastAPI under uvicorn, asked over HTTP."""

import json
import sys
from pathlib import Path

import jsonschema
import pytest

from tests.command import MARKER, Here, marked_processes, new_marker, result_of, run
from tests.wants import needs
from tuner.record.files import RESULT_SCHEMA

APP = """
import os

import torch
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

app = FastAPI()
torch.manual_seed(0)
words = torch.nn.EmbeddingBag(1000, 256)
model = torch.nn.Sequential(words, torch.nn.Linear(256, 2048), torch.nn.ReLU(),
                            torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 4))
n = 0


class Text(BaseModel):
    text: str


@app.post("/predict")
def predict(given: Text):
    global n
    n += 1
    if "jemalloc" in os.environ.get("LD_PRELOAD", ""):
        raise HTTPException(500, "no jemalloc for me")
    tokens = torch.tensor([[hash_of(word) for word in given.text.split()]])
    with torch.inference_mode():
        scores = model(tokens)[0].softmax(-1).tolist()
    if os.environ.get("OMP_NUM_THREADS") == "1":
        scores.reverse()
    return {"scores": scores, "number": n}


def hash_of(word):
    return sum(map(ord, word)) % 1000
"""
SERVE = f"{sys.executable} -m uvicorn app:app --port {{port}} --log-level warning"
URL = "http://127.0.0.1:{port}/predict"
ASKED = ("--serve", SERVE, "--url", URL, "--requests", "requests.jsonl")


def write_app(folder: Path) -> None:
    (folder / "app.py").write_text(APP)
    texts = ("the quick brown fox", "jumps", "over the lazy dog again and again")
    lines = [json.dumps({"text": text}) for text in texts]
    (folder / "requests.jsonl").write_text("\n".join(lines))


@pytest.mark.alone
@needs("torch")
def test_a_server_of_the_users_own_is_tuned_by_its_launch(tmp_path: Path) -> None:
    write_app(tmp_path)
    marker = new_marker()
    done = run(
        *ASKED, "--hw", "auto", "--slo", "p99=250ms", "--budget", "110s", "--out", "out", "--json",
        "--exclude", "launch.openmp", "--set", "env.OMP_NUM_THREADS=1,2",
        "--set", "launch.allocator=glibc,jemalloc", "--set", "launch.instances=1,2",
        cwd=tmp_path, environment={MARKER: marker},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert marked_processes(marker) == []
    result = result_of(done.stdout)
    jsonschema.validate(result, json.loads(RESULT_SCHEMA.read_text()))
    told = (result["model"], result["scenario"], result["framework"])
    assert told == ("app", "server", "torch")
    assert result["objective"]["slo"]["asked"] == "--slo p99=250ms"
    default = next(t for t in result["trials"] if not t["configuration"])
    assert default["outcome"] == "measured"
    outcomes = {json.dumps(t["configuration"]): t for t in result["trials"]}
    of_threads = [t for t in outcomes.values()
                  if t["configuration"].get("env.OMP_NUM_THREADS") == 1
                  and "launch.allocator" not in t["configuration"]]  # fmt: skip
    of_jemalloc = [t for t in outcomes.values()
                   if t["configuration"].get("launch.allocator") == "jemalloc"]  # fmt: skip
    for trial in of_threads:
        assert trial["outcome"] == "wrong_output" and "scores.0 is" in trial["reason"]
    for trial in of_jemalloc:
        assert trial["outcome"] == "crashed" and "answered 500" in trial["reason"]
    assert of_threads or of_jemalloc
    assert not [t for t in outcomes.values() if t["outcome"] == "not_applicable"]
    report = (tmp_path / "out/report.md").read_text()
    assert "uvicorn" in report
    assert ("posted from beside the server" in report) == ("## Under load" in report)

    path = str(tmp_path / "out/recommended.toml")
    if result["verdict"] == "faster":
        done = run("verify", path, "--budget", "20s", cwd=tmp_path)
        assert done.returncode == 2 and "name it yourself" in done.stderr


FORKED = """
import json, mmap, os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

with open("libtorch_cpu.so", "wb+") as library:  # the name by which a framework is known
    library.write(bytes(4096))
    library.flush()
    held = mmap.mmap(library.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        if os.environ.get("OMP_NUM_THREADS") != "1":
            threading.Event().wait()  # as OpenMP's pool after a fork
        self.rfile.read(int(self.headers["Content-Length"]))
        print("asked with", self.headers["X-Key"], flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"42")


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
if os.fork():
    threading.Event().wait()
server.serve_forever()
"""


@pytest.mark.slow
def test_a_server_that_is_silent_by_default_gets_rates_and_keeps_its_secret(
    tmp_path: Path,
) -> None:
    """Under the real supervisor, which leaves nothing of what hangs."""
    (tmp_path / "forked.py").write_text(FORKED)
    (tmp_path / "requests.jsonl").write_text("{}\n")
    marker, key = new_marker(), "open sesame 1001"
    done = run(
        "--serve", f"{sys.executable} forked.py {{port}}", *ASKED[2:],
        "--header", "X-Key: env:SHOP", "--hw", "auto", "--framework", "torch",
        "--slo", "p99=250ms", "--budget", "45s",
        "--out", "out", "--json", "--set", "env.OMP_NUM_THREADS=1,2",
        cwd=tmp_path, environment={MARKER: marker, "SHOP": key},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert marked_processes(marker) == []
    result = result_of(done.stdout)
    jsonschema.validate(result, json.loads(RESULT_SCHEMA.read_text()))
    assert (result["default_meets_slo"], result["speedup"]) == (False, None)
    assert "threads do not survive a fork" in result["default_silence"]
    outcomes = {json.dumps(t["configuration"]): t["outcome"] for t in result["trials"]}
    assert outcomes["{}"] == "timed_out"
    assert outcomes['{"env.OMP_NUM_THREADS": 1}'] == "measured"
    report = (tmp_path / "out/report.md").read_text()
    assert "answers no request" in report
    assert "1.00x" not in report.partition("## ")[0]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"asked with *** (SHOP)" in path.read_bytes() for path in files)
    for path in files:
        assert key.encode() not in path.read_bytes(), path
    assert key not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--serve", "server"), "not given: --url and --requests"),
        (("--url", URL), "not given: --serve and --requests"),
        ((*ASKED, "--model", "resnet50"), "exclude each other"),
        ((*ASKED, "--batch", "4"), "the program of --serve has its own"),
        ((*ASKED, "--scenario", "single-stream"), "--scenario server"),
        ((*ASKED, "--scenario", "offline"), "and not --scenario offline: leave it out"),
        ((*ASKED[:3], "http://10.0.0.1:{port}/", *ASKED[4:]), "10.0.0.1 is not the loopback"),
        ((*ASKED[:3], "http://example.com:{port}/", *ASKED[4:]), "is not the loopback"),
        ((*ASKED[:3], "https://127.0.0.1:{port}/", *ASKED[4:]), "is asked over plain HTTP"),
        ((*ASKED[:3], "http://127.0.0.1:8000/", *ASKED[4:]), "write {port} in the place"),
        ((*ASKED[:3], "http://[::1/", *ASKED[4:]), "cannot be read"),
        (("--serve", "no-such-program", *ASKED[2:]), "there is no program no-such-program"),
        (("--serve", "", *ASKED[2:]), "--serve is empty"),
        ((*ASKED[:5], "none.jsonl"), "none.jsonl cannot be read"),
        ((*ASKED, "--header", "X-Key: env:NOWHERE_SET"), "NOWHERE_SET is not set"),
        (("--model", "resnet50", "--header", "A: b"), "not given: --serve and --url"),
        (
            ("--serve", f"{sys.executable} -c 'print(1)'", *ASKED[2:]),
            "is to stay in the foreground",
        ),
    ],
)
def test_what_is_no_server_is_said(here: Here, arguments: tuple[str, ...], told: str) -> None:
    Path("requests.jsonl").write_text("{}\n")
    done = here("--hw", "auto", "--dry-run", *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_server_is_started_and_asked_before_a_study(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What framework it has, it shows itself; studies of servers are slow."""
    Path("forked.py").write_text(FORKED)
    Path("requests.jsonl").write_text("{}\n")
    monkeypatch.setenv("SHOP", "open sesame 1001")
    server = f"env OMP_NUM_THREADS=1 {sys.executable} forked.py {{port}}"
    done = here("--serve", server, *ASKED[2:], "--header", "X-Key: env:SHOP", "--hw", "auto",
                "--slo", "p99=250ms", "--dry-run")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "-torch-server: env OMP_NUM_THREADS=1" in done.stdout
    assert "by its launch settings alone" in done.stdout
    assert "open sesame" not in done.stdout + done.stderr
