"""Files that were altered: what is read is what stands there, or it is one error of ours.

HYPOTHESIS_PROFILE=long python -m pytest tests/fuzz    # ten times as many, anew each time
"""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.fuzz.document import (
    JSON_TOKENS,
    TOML_TOKENS,
    Mutant,
    Seed,
    Token,
    altered,
    as_json,
    as_toml,
    damaged,
)
from tests.fuzz.oracle import CONTROL, assert_carried, read_or_refused
from tests.fuzz.seeds import RESULTS, SPACES, fuzzed, shipped_in
from tuner.app.request import parse_duration
from tuner.deploy.launch_file import read_launch_file
from tuner.errors import TuneError
from tuner.galleries import SEARCH_SPACES
from tuner.host.topology import parse_cpu_list
from tuner.output.report import render
from tuner.record.configuration import Configuration
from tuner.record.files import read_result, write_recommendation, write_result
from tuner.record.integrity import JOURNAL
from tuner.record.journal import (
    EarlierNoted,
    LaunchOpened,
    Phase,
    PhaseDone,
    SessionOpened,
    StudyOpened,
    WarningNoted,
)
from tuner.record.launch import LaunchRequest, Purpose
from tuner.record.lines import LaunchFileLine, NoteLine, read_lines
from tuner.space.profile_file import load_profile
from tuner.space.recommended import read_recommended
from tuner.space.restrictions import parse_restrictions
from tuner.worker.gallery.recorded import recorded_inputs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


# ------------------------------------------------------------------------ result.json


def check_result(folder: Path, data: bytes) -> None:
    path = folder / "result.json"
    found = read_or_refused(read_result, path, data)
    if found is None:
        return
    assert_carried(json.loads(msgspec.json.encode(found)), json.loads(data))
    write_result(path, found)
    first = path.read_bytes()
    assert read_result(path) == found
    write_result(path, read_result(path))
    assert path.read_bytes() == first


@fuzzed(500, mutant=altered(RESULTS, JSON_TOKENS))
def test_an_altered_result_is_read_as_it_stands_or_refused(folder: Path, mutant: Mutant) -> None:
    check_result(folder, as_json(mutant.content))


@pytest.mark.parametrize("token", JSON_TOKENS, ids=lambda token: repr(token.text[:12]))
def test_what_no_writer_writes_is_refused_where_anything_may_stand(
    folder: Path, token: Token
) -> None:
    document = RESULTS[0].document
    host = {**document["host"], "observations": {"x": token}}
    check_result(folder, as_json({**document, "host": host}))
    # what a newer version has added is passed over
    read_or_refused(read_result, folder / "result.json", as_json({**document, "newer": token}))


@fuzzed(250, mutant=damaged(RESULTS))
def test_a_damaged_result_is_read_as_it_stands_or_refused(folder: Path, mutant: Mutant) -> None:
    check_result(folder, mutant.content)


@fuzzed(60, mutant=altered(RESULTS, ()))
def test_whatever_is_read_is_rendered_without_a_control_character(
    folder: Path, mutant: Mutant
) -> None:
    found = read_or_refused(read_result, folder / "result.json", as_json(mutant.content))
    if found is not None:
        assert not CONTROL.search(render(found, "report.md.j2"))


# ------------------------------------------------------------------------ recommended.toml


@pytest.fixture(scope="module")
def shipped(folder: Path) -> Seed:
    return shipped_in(folder)


def check_recommendation(folder: Path, data: bytes) -> None:
    path = folder / "recommended.toml"
    found = read_or_refused(read_recommended, path, data)
    if found is None:
        return
    assert_carried(json.loads(msgspec.json.encode(found)), tomllib.loads(data.decode()))
    write_recommendation(path, found)
    first = path.read_bytes()
    assert read_recommended(path) == found
    write_recommendation(path, read_recommended(path))
    assert path.read_bytes() == first


@fuzzed(800, data=st.data())
def test_an_altered_recommendation_is_read_as_it_stands_or_refused(
    folder: Path, shipped: Seed, data: st.DataObject
) -> None:
    mutant = data.draw(altered([shipped], TOML_TOKENS))
    check_recommendation(folder, as_toml(mutant.content))


@fuzzed(400, data=st.data())
def test_a_damaged_recommendation_is_read_as_it_stands_or_refused(
    folder: Path, shipped: Seed, data: st.DataObject
) -> None:
    check_recommendation(folder, data.draw(damaged([shipped])).content)


# ------------------------------------------------------------------------ search spaces


def load(path: Path) -> Any:
    return load_profile(str(path), SEARCH_SPACES)


@fuzzed(500, mutant=altered(SPACES, TOML_TOKENS))
def test_an_altered_space_is_read_or_refused(folder: Path, mutant: Mutant) -> None:
    found = read_or_refused(load, folder / "space.toml", as_toml(mutant.content))
    if found is not None:
        assert load(folder / "space.toml") == found


@fuzzed(300, mutant=damaged(SPACES))
def test_a_damaged_space_is_read_or_refused(folder: Path, mutant: Mutant) -> None:
    read_or_refused(load, folder / "space.toml", mutant.content)


# ------------------------------------------------------------------------ a study's own lines

_NOTES = (
    StudyOpened("abc", {"space": "1"}, "2026-11-24T00:00:00", "0.1.0"),
    SessionOpened(1, "2026-11-24T00:00:00", 60.0, "tune-framework --model fake"),
    EarlierNoted("other", (Configuration.of({"env.FAKE_THREADS": 4}),), (0.5,)),
    WarningNoted("the host is busy"),
    PhaseDone(Phase.BASELINES, "all measured"),
)
_LAUNCHES = (LaunchOpened(LaunchRequest(1, Configuration(), 4, Purpose.SEARCH)),)


def lines_of(kind: Callable[..., msgspec.Struct], notes: Any) -> list[Seed]:
    encoded = [msgspec.json.encode(kind(1.5, note)) for note in notes]
    return [Seed(type(n).__name__, e, json.loads(e)) for n, e in zip(notes, encoded, strict=True)]


LINES = {
    NoteLine: lines_of(NoteLine, _NOTES),
    LaunchFileLine: lines_of(LaunchFileLine, _LAUNCHES),
}


@pytest.mark.parametrize("kind", LINES, ids=lambda kind: kind.__name__)
@fuzzed(500, data=st.data())
def test_an_altered_line_of_a_study_is_read_as_it_stands_or_refused(
    folder: Path, kind: type[msgspec.Struct], data: st.DataObject
) -> None:
    mutant = data.draw(st.one_of(altered(LINES[kind], JSON_TOKENS), damaged(LINES[kind])))
    is_document = not isinstance(mutant.content, bytes)
    line = as_json(mutant.content) if is_document else mutant.content
    text = line.replace(b"\n", b" ") + b"\n"
    decode = msgspec.json.Decoder(kind).decode
    read = read_or_refused(lambda p: read_lines(p.parent, JOURNAL, decode), folder / JOURNAL, text)
    if read is not None:
        (found,) = read
        assert_carried(json.loads(msgspec.json.encode(found)), json.loads(text))
        assert decode(msgspec.json.encode(found)) == found


# ------------------------------------------------------------------------ inputs


@fuzzed(300, data=st.data())
def test_damaged_inputs_are_read_or_refused(folder: Path, data: st.DataObject) -> None:
    seeds = []
    for name, arrays in (("one", {"x": np.ones((8, 4), np.float32)}),
                         ("two", {"a": np.zeros((8, 2)), "b": np.arange(8)})):  # fmt: skip
        np.savez(folder / f"{name}.npz", **arrays)
        seeds.append(Seed(name, (folder / f"{name}.npz").read_bytes()))
    mutant = data.draw(damaged(seeds))
    read_or_refused(lambda path: recorded_inputs(str(path)), folder / "inputs.npz", mutant.content)


# ------------------------------------------------------------------------ options

WORDS = st.text(max_size=40) | st.sampled_from(
    ("10m", "1h30m", "9" * 400 + "s", "-5", "1e400", "nan", "launch.instances=2", "env.X=1,2",
     "torch.compile.mode=default", 'env.A="b', "=", "a=", "env.OMP_NUM_THREADS=\x1b",
     "workload.batch=0")
)  # fmt: skip


@fuzzed(500, text=WORDS)
def test_a_duration_is_read_or_refused(text: str) -> None:
    try:
        assert 0 < parse_duration(text) < 1e7
    except TuneError as error:
        assert "is not a duration" in str(error)


@fuzzed(500, **dict.fromkeys(("set_", "fix", "out"), st.lists(WORDS, max_size=2)))
def test_restrictions_are_read_or_refused(set_: list[str], fix: list[str], out: list[str]) -> None:
    try:
        found = parse_restrictions(set_, fix, out, "both")
    except TuneError as error:
        assert str(error).strip()
    else:
        assert set(found.values) == {text.partition("=")[0] for text in set_}
        assert found.excluded == tuple(out)


# ------------------------------------------------------------------------ launch files

_SCRIPT = b"""#!/bin/bash
N=${THREADS:-4}
export LD_PRELOAD=/usr/lib/libjemalloc.so${LD_PRELOAD:+:${LD_PRELOAD}}
if [ -f x ]; then export KMP_AFFINITY="granularity=fine,compact"; fi
cat > y <<EOF
OMP_NUM_THREADS=$N
EOF
OPTIONS="-e OMP_NUM_THREADS=$N --cpus 2"
docker run $OPTIONS --name one image sh -c 'taskset -c 0-3 python'
env $MORE OMP_NUM_THREADS=$((N - 1)) numactl -C 0-1 -m 0 nice -n 5 python serve.py
bash -c "eval 'export MKL_NUM_THREADS=2'" && source ./more.sh
"""
LAUNCH_FILES = {
    "serve.sh": _SCRIPT,
    "Dockerfile": b"ARG A=1\nFROM x AS base\nENV OMP_NUM_THREADS=$A \\\n  KMP_BLOCKTIME=0\n"
    b'FROM base\nRUN echo \'OMP_NUM_THREADS=1\' > x\nCMD ["taskset", "-c", "0", "x"]\n',
    "x.service": b'[Service]\nEnvironment="OMP_NUM_THREADS=8" A=%i\nCPUAffinity=0-1 4\n'
    b"CPUQuota=150%\nExecStart=-/usr/bin/env A=${A} \\\n  taskset -c 0-3 x\n",
    "compose.yaml": b"services:\n  a: &a\n    cpus: 0.5\n    cpuset: '0-3'\n    environment: "
    b"[OMP_NUM_THREADS=${N:-4}]\n  b:\n    <<: *a\n    command: taskset -c 0 x\n",
    "pod.yaml": b"containers:\n- name: a\n  resources: {limits: {cpu: 500m}}\n  env:\n"
    b"  - {name: OMP_NUM_THREADS, value: '$(N)'}\n",
    "x.env": b"OMP_NUM_THREADS=\"2\" # two\nexport KMP_BLOCKTIME=${T:-1}\nA='x\ny'\n",
    "config.properties": b"default_workers_per_model=8\ncpu_launcher_args=--node_id 1\n"
    b'models={\\\n "a": {"1.0": {"minWorkers": 3}}}\n',
}


@pytest.mark.parametrize("name", LAUNCH_FILES)
@fuzzed(150, data=st.data())
def test_a_damaged_launch_file_is_read_or_refused(
    folder: Path, name: str, data: st.DataObject
) -> None:
    mutant = data.draw(damaged([Seed(name, LAUNCH_FILES[name])]))
    found = read_or_refused(read_launch_file, folder / name, mutant.content)
    for launched in [] if found is None else found.launched:
        for each in launched.not_understood:
            assert not CONTROL.search(each.text)
        for place in launched.placements:
            assert parse_cpu_list(place.text) is not None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.sh", "$(" * 20_000),
        ("deep.sh", "if true; then\n" * 5_000),
        ("deep.sh", "export A=" + "${A:-" * 5_000 + "}" * 5_000),
        ("deep.sh", "( " * 5_000 + "export A=1" + " )" * 5_000),
        ("deep.sh", "A=x\n" + "A=$A$A\n" * 60 + "export OMP_NUM_THREADS=$A\n"),
        ("deep.yaml", "a: " + "[" * 5_000),
        ("deep.yaml", "a: &a [x,x]\n" + "".join(f"b{i}: &b{i} [*a,*a]\n" for i in range(50))),
        ("config.properties", "models=" + '{"a":' * 5_000),
        ("Dockerfile", "FROM x\nCMD " + "[" * 5_000),
        ("x.service", "[Service]\nExecStart=taskset " + "f" * 5_000 + " x\n"),
    ],
)
def test_no_launch_file_is_too_deep_or_grows(folder: Path, name: str, text: str) -> None:
    read_or_refused(read_launch_file, folder / name, text.encode())
