"""Each export, checked by what reads it: a shell, systemd, Docker's and Kubernetes's parsers."""

import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest
import yaml
from dockerfile_parse import DockerfileParser

from tests.output.exports.shipped import (
    CODE,
    EVERY,
    HOSTILE,
    IOMP,
    PLACED,
    TCMALLOC,
    TEAM,
    exported,
    shipped,
)
from tests.wants import needs
from tuner.cli import export
from tuner.errors import UsageError
from tuner.output.exports import TARGETS
from tuner.record.configuration import Value
from tuner.record.files import write_recommendation
from tuner.record.load import Slo
from tuner.record.recommendation import Placement, Recommendation

SERVE = ("/usr/bin/python3", "-c", "print('$HOME 100%')")


def each(test: Any) -> Any:
    return pytest.mark.parametrize("r", list(EVERY.values()), ids=list(EVERY))(test)


def each_unplaced(test: Any) -> Any:
    """Of those that are not placed on CPUs which this machine may not have."""
    found = {
        name: r
        for name, r in EVERY.items()
        if r.placements == [Placement()] and not r.packages  # found at start: test_preloads.py
    }
    return pytest.mark.parametrize("r", list(found.values()), ids=list(found))(test)


def in_the_image(r: Recommendation) -> dict[str, str]:
    """Return the variables with the places of what pip installs in an image."""
    places = {IOMP: "/usr/local/lib/libiomp5.so"}
    places |= {file: f"/usr/local/lib/{file}" for file in r.packages}
    parts = r.environment.get("LD_PRELOAD", "").split(":")
    preload = {"LD_PRELOAD": ":".join(places.get(part, part) for part in parts)}
    return r.environment | (preload if parts != [""] else {})


def comments_of(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith("#"))


@each
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_dropped_silently(r: Recommendation, target: str) -> None:
    if target == "tfserving":
        with pytest.raises(UsageError, match="--to torchserve"):
            exported(target, r)
        return
    text = exported(target, r)
    for setting in r.settings:
        if setting.needs_code_change:
            assert setting.how in text
    if target == "python":
        return  # runs under the launch settings, which it names
    for name in r.environment:
        assert name in text
    for placement in r.placements:
        if placement.cpus:
            assert placement.cpus in text
        policy, _, nodes = placement.memory_policy.partition(":")
        forms = (f"--membind={nodes}", f"--interleave={nodes}", f"NUMAMask={nodes}")
        assert policy == "none" or any(form in text for form in (*forms, f"cpuset-mems={nodes}"))


@each
def test_a_shell_sources_the_env_file(r: Recommendation, tmp_path: Path) -> None:
    path = tmp_path / "recommended.env"
    path.write_text(exported("env", r))
    script = f"set -a; . {path}; exec {sys.executable} -c 'import json, os; " \
             "print(json.dumps(dict(os.environ)))'"  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if k not in r.environment}
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    for name, value in r.environment.items():
        if value == HOSTILE or (name == "LD_PRELOAD" and r.packages):
            assert name not in found
            told = [line for line in path.read_text().splitlines() if f"{name}=" in line]
            assert all(line.startswith("# set it where the program is started") for line in told)
            assert len(told) == 1
        else:
            assert found[name] == value
    assert not Path("/tmp/owned").exists()


@each_unplaced
def test_the_script_sets_what_is_recommended_whatever_the_values(
    r: Recommendation, tmp_path: Path
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(exported("shell", r))
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    done = subprocess.run(
        ["/bin/sh", str(path), sys.executable, "-c", show],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert {name: found[name] for name in r.environment} == r.environment
    assert not Path("/tmp/owned").exists()


@each
def test_a_dockerfile_parser_reads_the_lines(r: Recommendation) -> None:
    text = "FROM python:3.11-slim\n" + exported("docker", r, SERVE)
    parser = DockerfileParser(fileobj=io.BytesIO())
    parser.content = text
    kinds = {line["instruction"] for line in parser.structure}
    assert kinds <= {"FROM", "RUN", "ENV", "CMD", "COMMENT"}
    (command,) = [line["value"] for line in parser.structure if line["instruction"] == "CMD"]
    assert tuple(json.loads(command)) == SERVE
    assert dict(parser.envs) == in_the_image(r)


def test_the_image_gets_what_is_preloaded_or_is_not_built() -> None:
    text = exported("docker", shipped({**CODE}, {"LD_PRELOAD": f"{IOMP}:{TCMALLOC}"}))
    assert "--no-install-recommends libtcmalloc-minimal4 g++" in text
    assert "pip install --no-cache-dir intel-openmp" in text
    assert "test -e /usr/local/lib/libiomp5.so || ln -s" in text
    assert f"RUN test -e /usr/local/lib/libiomp5.so && test -e {TCMALLOC}" in text
    assert text.index("RUN test") < text.index("ENV LD_PRELOAD")


def test_containers_are_placed_by_docker_run() -> None:
    text = exported("docker", shipped(placements=TEAM))
    assert "# run 2 containers, one instance each:\n" in text
    assert "#   docker run --cpuset-cpus=0-3 --cpuset-mems=0 ...\n" in text
    assert "#   docker run --cpuset-cpus=4-7 --cpuset-mems=1 ...\n" in text
    assert "TUNE_FRAMEWORK_RANK" in text


def test_a_librarys_name_runs_nothing_when_the_image_is_built() -> None:
    hostile = "/opt/libiomp5.so;touch owned"
    text = "FROM python:3.11-slim\n" + exported(
        "docker", shipped(environment={"LD_PRELOAD": hostile}), ()
    )
    parser = DockerfileParser(fileobj=io.BytesIO())
    parser.content = text
    runs = [line["value"] for line in parser.structure if line["instruction"] == "RUN"]
    assert runs
    for value in runs:
        words = list(shlex.shlex(value, posix=True, punctuation_chars=True))
        assert "touch" not in words
    assert any("/usr/local/lib/libiomp5.so;touch owned" in shlex.split(value) for value in runs)


@pytest.mark.parametrize("target", ["env", "torchserve", "python"])
def test_a_program_is_refused_where_none_is_started(target: str) -> None:
    with pytest.raises(UsageError, match="starts no program"):
        exported(target, shipped(), SERVE)


def test_a_comment_never_goes_on_in_the_next_line() -> None:
    text = exported("env", shipped(environment={"A": "b\\", "ZZ": "1"}))
    assert not any(line.endswith("\\") for line in text.splitlines())
    assert "ZZ=1" in text.splitlines()


@each
def test_kubernetes_schema_accepts_the_manifest(r: Recommendation) -> None:
    text = exported("kubernetes", r, SERVE)
    manifest = yaml.safe_load(text)
    kubernetes_validate.validate(manifest, "1.30", strict=True)
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    # Kubernetes turns $$ into $, and would take $(NAME) for a variable
    assert all("$(" not in e["value"].replace("$$", "") for e in container["env"])
    assert tuple(word.replace("$$", "$") for word in container["command"]) == SERVE
    variables = {e["name"]: e["value"].replace("$$", "$") for e in container["env"]}
    assert variables == in_the_image(r)
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert manifest["spec"]["replicas"] == len(r.placements)
    n_cpus = {None: "16", "0-3": "4", "0-7": "16"}[r.placements[0].cpus]  # of 8 cores, whole ones
    assert container["resources"]["requests"]["cpu"] == n_cpus
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", container["name"])
    assert "cpuManagerPolicy: static" in comments_of(text)
    if r.placements[0].memory_policy == "interleave:0,1":
        assert "numactl --interleave=0,1" in comments_of(text)
    elif r.placements[0].memory_policy == "bind:0":
        assert "topologyManagerPolicy: single-numa-node" in comments_of(text)


def test_memory_is_what_was_seen_with_room_and_a_guess_is_called_one() -> None:
    def memory(r: Recommendation) -> str:
        text = exported("kubernetes", r)
        (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
        return str(container["resources"]["limits"]["memory"])

    assert memory(shipped(memory_bytes=700 << 20)) == "1024Mi"
    assert memory(shipped(memory_bytes=700 << 20, placements=TEAM)) == "512Mi"  # each of two
    unknown = shipped(memory_bytes=None)
    assert memory(unknown) == "4096Mi"
    assert "is a guess" in exported("kubernetes", unknown)


def test_reserved_huge_pages_are_asked_for_and_the_node_is_told() -> None:
    r = shipped(environment={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"})
    text = exported("kubernetes", r)
    manifest = yaml.safe_load(text)
    kubernetes_validate.validate(manifest, "1.30", strict=True)
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["hugepages-2Mi"] == "1024Mi"
    assert "vm.nr_hugepages" in comments_of(text)


@needs("systemd")
@each
def test_systemd_accepts_the_unit(r: Recommendation, tmp_path: Path) -> None:
    command: tuple[str, ...] = SERVE
    if len(r.placements) > 1 or r.packages:
        command = ("/usr/bin/env", *SERVE)
    unit = tmp_path / "tuned.service"
    text = exported("systemd", r, command)
    unit.write_text(text.replace("/usr/local/bin/run.sh", "/usr/bin/env"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if "tuned.service" in line]
    assert (done.returncode, complaints) == (0, []), done.stderr


def test_a_word_of_the_program_is_no_line_of_the_unit(tmp_path: Path) -> None:
    words = ("/usr/bin/python3", "-c", "print(1)\nExecStartPre=/bin/false\t\x1b")
    text = exported("systemd", shipped(launched=False), words)
    lines = [line for line in text.splitlines() if line.startswith("Exec")]
    assert lines == [
        r'ExecStart="/usr/bin/python3" "-c" "print(1)\x0aExecStartPre=/bin/false\x09\x1b"'
    ]


def test_the_unit_places_and_quotes() -> None:
    text = exported("systemd", shipped(placements=PLACED, environment={"X": HOSTILE}), SERVE)
    lines = text.splitlines()
    assert "CPUAffinity=0-3" in lines
    assert "NUMAPolicy=bind" in lines
    assert "NUMAMask=0" in lines
    assert 'ExecStart="/usr/bin/python3" "-c" "print(\'$$HOME 100%%\')"' in lines
    (hostile,) = [line for line in lines if line.startswith('Environment="X=')]
    assert "%%n" in hostile
    assert "\\\\" in hostile
    team = exported("systemd", shipped(placements=TEAM), SERVE)
    assert 'ExecStart="/usr/local/bin/run.sh" "/usr/bin/python3"' in team


@each
def test_torchserve_is_told_workers_batch_and_compiler(r: Recommendation) -> None:
    text = exported("torchserve", r)
    config = yaml.safe_load(text)
    assert config["minWorkers"] == config["maxWorkers"] == len(r.placements)
    assert config["batchSize"] == 16
    is_compiled = any(s.knob == "torch.compile.mode" for s in r.settings)
    assert (
        config.get("pt2") == {"compile": {"enable": True, "backend": "inductor"}}
    ) is is_compiled


def test_the_servers_of_other_frameworks_are_named() -> None:
    with pytest.raises(UsageError, match="--to tfserving"):
        exported("torchserve", shipped(framework="tensorflow"))


def python_file(r: Recommendation, folder: Path) -> Path:
    program = folder / "serve.py"
    program.write_text(exported("python", r) + "print(BATCH)\n")
    write_recommendation(folder / "recommended.toml", r)
    return program


def check_what_it_printed(r: Recommendation, said: str) -> None:
    *missing, batch = said.splitlines()
    assert batch == "16"
    for name in r.environment:
        assert any(name in line for line in missing), missing


@each
def test_the_python_file_runs_beside_its_recommendation(
    r: Recommendation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "\n" in r.workload.model:  # a study never writes one that cannot be read
        compile(exported("python", r), "serve.py", "exec")
        return
    for name in r.environment:
        monkeypatch.delenv(name, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it was not started under: it prints it as well
        runpy.run_path(str(python_file(r, tmp_path)), run_name="__main__")
    check_what_it_printed(r, capsys.readouterr().out)


@pytest.mark.slow
def test_the_python_file_is_a_program(tmp_path: Path) -> None:
    r = EVERY["in the program"]
    environment = {k: v for k, v in os.environ.items() if k not in r.environment}
    done = subprocess.run(
        [sys.executable, str(python_file(r, tmp_path))],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    check_what_it_printed(r, done.stdout)


def test_a_python_file_written_elsewhere_says_what_belongs_next_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "recommended.reduced_precision.toml"
    write_recommendation(kept, next(iter(EVERY.values())))
    (tmp_path / "app").mkdir()
    export.main(kept, "python", tmp_path / "serve.py", ())
    assert capsys.readouterr().err == ""
    elsewhere = tmp_path / "app" / "serve.py"
    export.main(kept, "python", elsewhere, ())
    assert f"{elsewhere} reads {kept.name}: copy {kept} next to it" in capsys.readouterr().err


def batching_parameters() -> Any:
    """Return the message that TensorFlow Serving reads, as far as it concerns the file.

    session_bundle_config.proto of tensorflow/serving 2.19: its fields are wrapped numbers.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name="batching.proto", syntax="proto3", dependency=[wrappers_pb2.DESCRIPTOR.name]
    )
    message = file.message_type.add(name="BatchingParameters")
    fields = ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads")
    for number, name in enumerate(fields, start=1):
        message.field.add(name=name, number=number, type=11, label=1,
                          type_name=".google.protobuf.Int64Value")  # fmt: skip
    message.field.add(name="allowed_batch_sizes", number=6, type=3, label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("BatchingParameters"))()


def as_server(r: Recommendation) -> Recommendation:
    """Return it as that of a server, whose line was measured."""
    workload = msgspec.structs.replace(r.workload, scenario="server")
    return msgspec.structs.replace(r, workload=workload, slo=Slo(0.99, 0.015, "--slo p99=15ms"))


def test_what_a_server_lacks_in_a_manifest_is_said_and_of_no_other() -> None:
    ports = "ports: add yours; the program must listen on 0.0.0.0"
    assert ports in exported("kubernetes", as_server(shipped()))
    assert ports not in exported("kubernetes", shipped())
    assert "# WorkingDirectory: systemd starts programs in /" in exported("systemd", shipped())


@needs("tensorflow")
def test_batching_that_was_measured_goes_into_the_server_s_own_configuration() -> None:
    from google.protobuf import text_format

    settings: dict[str, Value] = {"server.max_wait_ms": 5}
    script = exported("tfserving", as_server(shipped(settings, framework="tensorflow")))
    written = script.partition("<<END\n")[2].partition("END\n")[0]
    found = text_format.Parse(written, batching_parameters())
    assert found.batch_timeout_micros.value == 5000
    assert list(found.allowed_batch_sizes) == [1, 2, 4, 8, 16]
    assert "not measured" not in script
    config = yaml.safe_load(exported("torchserve", as_server(shipped(settings))))
    assert (config["batchSize"], config["maxBatchDelay"]) == (16, 5)
    without = exported("torchserve", as_server(shipped()))
    assert yaml.safe_load(without)["maxBatchDelay"] == 0
    assert "not measured" not in without


@needs("tensorflow")
def test_tensorflow_serving_is_started_with_flags_variables_and_batching(tmp_path: Path) -> None:
    r = shipped(
        {"tensorflow.frozen": True},
        {"TF_NUM_INTRAOP_THREADS": "3", "TF_NUM_INTEROP_THREADS": "1", "LD_PRELOAD": "",
         "MALLOC_CONF": HOSTILE},
        framework="tensorflow", batch=32,
    )  # fmt: skip
    script, server = tmp_path / "serve.sh", tmp_path / "tensorflow_model_server"
    script.write_text(exported("tfserving", r))
    server.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        "flags = dict(a.partition('=')[::2] for a in sys.argv[1:])\n"
        "batching = open(flags['--batching_parameters_file']).read()\n"
        "print(json.dumps([flags, batching, dict(os.environ)]))\n"
    )
    server.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", str(script), "/models/mine", "--port=8500"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    flags, batching, environment = json.loads(done.stdout)
    assert flags["--tensorflow_intra_op_parallelism"] == "3"
    assert flags["--tensorflow_inter_op_parallelism"] == "1"
    assert flags["--model_base_path"] == "/models/mine"
    assert flags["--port"] == "8500"
    assert flags["--enable_batching"] == "true"
    from google.protobuf import text_format

    parameters = text_format.Parse(batching, batching_parameters())
    assert parameters.max_batch_size.value == 32
    assert parameters.num_batch_threads.value == 1
    assert environment["OMP_NUM_THREADS"] == "4"
    assert environment["MALLOC_CONF"] == HOSTILE
    assert "TF_NUM_INTRAOP_THREADS" not in environment
    assert "tensorflow.frozen=True" in comments_of(script.read_text())
    assert not Path("/tmp/owned").exists()


def on_a_card(r: Recommendation) -> Recommendation:
    gpus = [{"name": "NVIDIA H100 80GB HBM3"}]
    return msgspec.structs.replace(
        r,
        workload=msgspec.structs.replace(r.workload, device="cuda"),
        host=msgspec.structs.replace(r.host, identity={"gpus": gpus}),
    )


@pytest.mark.parametrize("target", TARGETS)
def test_a_card_is_named_wherever_one_computed(target: str) -> None:
    plain = shipped()
    if target == "tfserving":
        plain = shipped(framework="tensorflow")
    text = exported(target, on_a_card(plain))
    assert "measured on NVIDIA H100 80GB HBM3 beside A Xeon" in text
    assert "needs an NVIDIA GPU and its driver" in text
    assert "NVIDIA H100" not in exported(target, plain)


def test_a_card_is_asked_for_where_a_target_can() -> None:
    assert "docker run --gpus 1 ..." in exported("docker", on_a_card(shipped()))
    manifest = yaml.safe_load(exported("kubernetes", on_a_card(shipped())))
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert "nvidia.com/gpu" not in container["resources"]["requests"]
    team = comments_of(exported("kubernetes", on_a_card(shipped(placements=TEAM))))
    assert "each replica asks for a GPU of its own" in team


@pytest.mark.parametrize("target", TARGETS)
def test_every_export_names_the_file_that_it_exports(target: str, tmp_path: Path) -> None:
    code: dict[str, Value] = {"tensorflow.frozen": True} if target == "tfserving" else CODE
    framework = "tensorflow" if target == "tfserving" else "torch"
    path, out = tmp_path / "recommended.reduced_precision.toml", tmp_path / "out"
    write_recommendation(path, shipped(code, {"LD_PRELOAD": TCMALLOC}, TEAM, framework=framework))
    export.main(path, target, out, ())
    text = out.read_text()
    assert "recommended.reduced_precision.toml" in text
    assert "recommended.toml" not in text


def test_the_program_applies_the_file_that_was_exported_and_no_other_beside_it(
    tmp_path: Path,
) -> None:
    """A study's files lie side by side: that of the whole study may keep the default."""
    write_recommendation(tmp_path / "recommended.toml", shipped(launched=False))
    path = tmp_path / "recommended.reduced_precision.toml"
    settings: dict[str, Value] = {"fake.layout": "packed"}
    write_recommendation(path, shipped(settings, framework="fake", launched=False))
    export.main(path, "python", tmp_path / "serve.py", ())
    with (tmp_path / "serve.py").open("a") as program:
        program.write("print(tuned.settings)\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(tmp_path / "serve.py")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["{'fake.layout': 'packed'}"]


def test_what_apply_cannot_do_is_not_promised_of_it() -> None:
    r = as_server(shipped({"server.max_wait_ms": 5}))
    assert "the program itself must: server.max_wait_ms=5: answer at the" in exported("env", r)
    assert "tuner.apply" not in exported("env", r)
    assert "tuner.apply" in exported("env", as_server(shipped(CODE)))


def test_a_program_is_told_what_apply_does_not_set() -> None:
    text = exported("python", shipped({**CODE, "server.max_wait_ms": 5}))
    done = text.partition("# what apply and prepare do here, by hand:\n")[2]
    assert "torch.memory_format=channels_last" in done
    assert "server.max_wait_ms" not in done
    assert "# the program itself must: server.max_wait_ms=5: " in text
    assert "the program itself must: torch" not in text


def test_the_script_tells_a_program_that_its_launch_settings_are_in_force(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(exported("shell", shipped(launched=False)))
    done = subprocess.run(
        ["/bin/sh", path, "printenv", "TUNE_FRAMEWORK_INSTANCES"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "1\n"
