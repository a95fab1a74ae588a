"""What a launch file sets, without executing any of it."""

from pathlib import Path

import pytest

from tuner.deploy.launch_file import read_launch_file
from tuner.deploy.launched import Gap, Launched, LaunchFile, Scope, bytes_of
from tuner.errors import UsageError


def read(tmp_path: Path, text: str, name: str = "serve.sh") -> LaunchFile:
    path = tmp_path / name
    path.write_text(text)
    return read_launch_file(path)


def one(found: LaunchFile) -> Launched:
    """What is started: the container, where a script starts one and sets nothing itself."""
    return [each for each in found.launched if not each.is_empty or each.assignments][-1]


def values(found: LaunchFile) -> dict[str, str]:
    every = [each for launched in found.launched for each in launched.assignments]
    return {each.name: each.value for each in every}


def known(found: LaunchFile) -> dict[str, str]:
    every = [each for launched in found.launched for each in launched.assignments]
    return {each.name: each.value for each in every if each.gap is None}


def listed(found: LaunchFile) -> list[tuple[int, str, Gap]]:
    entries = [each for launched in found.launched for each in launched.not_understood]
    return sorted((each.line, each.text, each.gap) for each in entries)


FOUR_AND_ONE = {"OMP_NUM_THREADS": "4", "KMP_BLOCKTIME": "1"}
JEMALLOC = "/usr/lib/libjemalloc.so.2"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("OMP_NUM_THREADS=4", {"OMP_NUM_THREADS": "4"}),
        ("export OMP_NUM_THREADS=4 KMP_BLOCKTIME=1", FOUR_AND_ONE),
        ("export A='x y' # OMP_NUM_THREADS=9", {"A": "x y"}),
        ("OMP_NUM_THREADS=4 python serve.py", {"OMP_NUM_THREADS": "4"}),
        ("exec env OMP_NUM_THREADS=4 python serve.py --n=3", {"OMP_NUM_THREADS": "4"}),
        ("docker run -e OMP_NUM_THREADS=4 --env KMP_BLOCKTIME=1 image", FOUR_AND_ONE),
        ("bash -eo pipefail -c 'OMP_NUM_THREADS=4 prog'", {"OMP_NUM_THREADS": "4"}),
        ("mpirun -x OMP_NUM_THREADS=4 prog", {"OMP_NUM_THREADS": "4"}),
        (f"export LD_PRELOAD=$LD_PRELOAD:{JEMALLOC}", {"LD_PRELOAD": f":{JEMALLOC}"}),
        ("export LD_PRELOAD=/x.so${LD_PRELOAD:+:${LD_PRELOAD}}", {"LD_PRELOAD": "/x.so"}),
        ("export A=1 \\\n  B=2", {"A": "1", "B": "2"}),
        ("python serve.py --threads=4", {}),
        ("# OMP_NUM_THREADS=4", {}),
        ("# see \\\nexport OMP_NUM_THREADS=4", {"OMP_NUM_THREADS": "4"}),
        ("docker run --env=OMP_NUM_THREADS=4 -eKMP_BLOCKTIME=1 image", FOUR_AND_ONE),
        ("docker run -e A=b#c -e OMP_NUM_THREADS=4 image", {"A": "b#c", "OMP_NUM_THREADS": "4"}),
        ("if test -f x; then export OMP_NUM_THREADS=4; fi", {"OMP_NUM_THREADS": "4"}),
        ("cd /srv && OMP_NUM_THREADS=4 ./serve & wait", {"OMP_NUM_THREADS": "4"}),
    ],
)  # fmt: skip
def test_assignments_are_read(tmp_path: Path, line: str, wanted: dict[str, str]) -> None:
    assert values(read(tmp_path, f"#!/bin/sh\n{line}\n")) == wanted


def test_an_assignment_knows_its_line_and_whether_it_lasts(tmp_path: Path) -> None:
    found = one(read(tmp_path, "\n\nexport A=1\nB=2 prog\nunset A\nC=3\n"))
    assert [(a.name, a.line, a.command > 0, a.is_exported) for a in found.assignments] == [
        ("B", 4, True, True), ("C", 6, False, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("X=1\nexport X=$X\n", {"X": "1"}),
        ("OPTIONS='-e A=1 -e B=2'\ndocker run $OPTIONS image\n", {"A": "1", "B": "2"}),
        ("PAIR=A=1\nexport $PAIR\n", {"A": "1"}),
        ("ALL='A=1 B=2'\nenv $ALL python serve.py\n", {"A": "1", "B": "2"}),
        ('ONE="A=1 2"\nenv "$ONE" python serve.py\n', {"A": "1 2"}),
        ("bash -c 'export A=1; serve'\n", {"A": "1"}),
        ('N=2\neval "export A=$N"\n', {"A": "2"}),
        ("export A=${A:-${B:-3}}\n", {"A": "3"}),
        (": ${A:=4}\nexport A\n", {"A": "4"}),
        ("export A=x\nexport A+=y\n", {"A": "xy"}),
        ("env -u B A=1 nice -n 5 taskset -c 0 serve\n", {"A": "1"}),
        ("sudo -u me A=1 serve\n", {"A": "1"}),
    ],
)
def test_a_value_is_followed_through_the_file(
    tmp_path: Path, text: str, wanted: dict[str, str]
) -> None:
    found = read(tmp_path, text)
    assert {name: value for name, value in known(found).items() if name in wanted} == wanted
    assert listed(found) == []


def test_a_default_names_the_variable_that_replaces_it(tmp_path: Path) -> None:
    (each,) = one(read(tmp_path, "export OMP_NUM_THREADS=${THREADS:-16}\n")).assignments
    assert (each.value, each.unless, each.gap) == ("16", "THREADS", None)


def test_a_value_that_branches_set_otherwise_is_not_known(tmp_path: Path) -> None:
    text = "if a; then N=1; else N=2; fi\nexport OMP_NUM_THREADS=$N\n"
    found = read(tmp_path, text)
    assert listed(found) == [(2, "OMP_NUM_THREADS=$N", Gap.BRANCH)]


def test_what_the_script_sets_for_its_own_use_is_no_setting(tmp_path: Path) -> None:
    found = read(tmp_path, "KMP_SETTING=compact\nexport KMP_AFFINITY=$KMP_SETTING\n")
    assert values(found) == {"KMP_AFFINITY": "compact"}


def test_a_file_that_another_reads_is_read_where_it_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "more.sh").write_text("export OMP_NUM_THREADS=4\n")
    (tmp_path.parent / "outside.sh").write_text("export OMP_NUM_THREADS=9\n")
    text = "source ./more.sh\n. /etc/more.sh\nsource ../outside.sh\nsource ./serve.sh\n"
    found = read(tmp_path, text)
    (each,) = one(found).assignments
    assert (each.value, each.line, each.file) == ("4", 1, "more.sh")
    gaps = {(text, gap) for _, text, gap in listed(found)}
    assert {("/etc/more.sh", Gap.ELSEWHERE), ("../outside.sh", Gap.ELSEWHERE)} <= gaps


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A=1\nexport A=2\nA=3\nB=2\n", "AAA"),  # what is exported stays so
        ("set -eau\nA=1\nset +o allexport\nB=2\n", "A"),
        ("set -- -a\nexport -n A\nA=1\n", ""),
        ("A=1\nexport B=2\n", "B"),
        ("#!/bin/sh\nA=1\nexport A\nB=2\nserve\n", "A"),
        ("A=1\nset -a\nB=2\nserve\n", "B"),
        ("A=1 serve\ndeclare -x B=2\n", "AB"),
    ],
)
def test_what_programs_see(tmp_path: Path, text: str, wanted: str) -> None:
    own = [each for each in one(read(tmp_path, text)).assignments if each.name in "AB"]
    assert "".join(each.name for each in own if each.is_exported) == wanted


@pytest.mark.parametrize(
    "line",
    [
        "export OMP_NUM_THREADS=$(nproc)",
        "export OMP_NUM_THREADS=`nproc`",
        'export KMP_AFFINITY="granularity=fine',
        "numactl --physcpubind=$CPUS python serve.py",
        "env $SETTINGS python serve.py",
        "export $SETTINGS",
        "$WRAPPER python serve.py",
        "torchrun serve.py",
        "source /etc/profile",
        "while read each; do export $each; done < .env",
        "echo 'export OMP_NUM_THREADS=4' >> ~/.bashrc",
        "prog OMP_NUM_THREADS=3",
        "export OMP_NUM_THREADS+=4",
        "OMP_NUM_THREADS = 4",
        "export OMP_NUM_THREADS =4",
        "export OMP_NUM_THREADS=${C:+1}",
        "perf stat taskset -c 0-63 python a.py",
        "flock /tmp/l taskset 0x3 python a.py",
        "xargs -P 4 numactl -C 0-3 python < files",
        "conda run -n e sh -c 'numactl --cpubind=0 -m 0 python a.py'",
        "numactl --new=1 python a.py",
        "./start_inner.sh",
        "/opt/entry.sh",
        "/entry serve",
        "bash -e start_inner.sh",
    ],
)
def test_what_is_not_understood_is_listed(tmp_path: Path, line: str) -> None:
    found = read(tmp_path, f"# a script\n{line}\n")
    assert {name for name in known(found) if name != "OMP_NUM_THREADS"} == set()
    assert [number for number, _, _ in listed(found)] == [2]


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        ("cat > run.env <<EOF", "EOF"),
        ("ssh host bash <<-'EOF' || exit", "\tEOF"),
        ('cat <<"END OF IT"', "END OF IT"),
        ("cat <<\\END-OF >$((n + 1)).env", "END-OF"),
        ("cat << 1", "1"),
    ],
)
def test_what_a_here_document_holds_is_not_set_here(tmp_path: Path, begins: str, ends: str) -> None:
    found = read(
        tmp_path,
        f"#!/bin/sh\n{begins}\nOMP_NUM_THREADS=3\n# it's none: KMP_BLOCKTIME=0\n"
        f"taskset -c 0 x \\\n{ends}\n"
        "export OMP_NUM_THREADS=$(nproc)\nexport KMP_BLOCKTIME=1\n",
    )
    assert known(found) == {"KMP_BLOCKTIME": "1"}
    assert listed(found) == [
        (3, "OMP_NUM_THREADS", Gap.TEXT),
        (4, "KMP_BLOCKTIME", Gap.TEXT),
        (5, "taskset", Gap.TEXT),
        (7, "OMP_NUM_THREADS=$(nproc)", Gap.COMPUTED),
    ]


@pytest.mark.parametrize(
    "line",
    [
        'PROMPT="<<SYS>> be brief <</SYS>>"',
        "python -c 'print(1 << n)'",
        "N=$((1 << n))",
        "cat <<< n",
        "export A=1 # <<n",
        "  # cat <<n",
        "cat <<NEVER_ENDED",
    ],
)
def test_what_is_no_here_document_hides_nothing(tmp_path: Path, line: str) -> None:
    found = read(tmp_path, f"#!/bin/sh\n{line}\nexport OMP_NUM_THREADS=3\nn\n")
    assert values(found)["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.env", "A=1\nB=-Xms1g -Xmx2g\n"),
        ("settings", "A=1\nB=2\n"),
        ("Dockerfile", "ENV A=1 \\\n  # threads\n  B=2\n"),
    ],
)
def test_what_no_shell_reads_is_seen_whole(tmp_path: Path, name: str, text: str) -> None:
    (launched,) = read(tmp_path, text, name).launched
    own = [each for each in launched.assignments if each.name in "AB"]
    assert [(each.name, each.is_exported) for each in own] == [("A", True), ("B", True)]


def test_a_value_after_a_blank_is_none(tmp_path: Path) -> None:
    found = read(tmp_path, "export OMP_NUM_THREADS= 4\nKMP_BLOCKTIME= serve\n")
    assert values(found) == {"OMP_NUM_THREADS": "", "KMP_BLOCKTIME": ""}
    assert listed(found) == [(1, "OMP_NUM_THREADS", Gap.BLANKS)]


def test_a_secret_that_is_computed_is_none_of_our_business(tmp_path: Path) -> None:
    assert listed(read(tmp_path, "TOKEN=$(cat secret)\n")) == []


@pytest.mark.parametrize(
    "text",
    [
        "export A_TOKEN='hunter2\n",
        'bash -c "export API_KEY=hunter2; $X"\n',
        "export TF_X_TOKEN=hunter2$(date)\n",
        "env PASSWORD=hunter2 $X serve\n",
        "echo 'OMP_NUM_THREADS=1 TOKEN=hunter2' > .env\n",
        "( export TOKEN=hunter2\n",
        """eval "export API_KEY='one hunter2 x$Z' OMP_NUM_THREADS=$Z"\n""",
        """eval 'export API_KEY="one \\" hunter2" '$Z\n""",
        """eval "export OMP_NUM_THREADS='1 TOKEN=hunter2' $Z"\n""",
        "eval 'export API_KEY=$(printf %s hunter2) '$Z\n",
    ],
)
def test_what_is_listed_shows_no_secret(tmp_path: Path, text: str) -> None:
    assert "hunter2" not in repr(listed(read(tmp_path, text)))


def test_cpus_of_a_placed_program(tmp_path: Path) -> None:
    text = (
        "taskset -c 0-3 prog\nnumactl --physcpubind=4,5 -m 0 prog\ntaskset 0x5 prog\n"
        "taskset -c 0-3 python -c 5\nnumactl -C 0-1 python\n"
        "apt-get install numactl\n"
    )
    found = read(tmp_path, text)
    assert [(p.text, p.line, p.is_nodes) for p in one(found).placements] == [
        ("0-3", 1, False), ("4,5", 2, False), ("0", 2, True), ("0,2", 3, False), ("0-3", 4, False),
        ("0-1", 5, False),
    ]  # fmt: skip
    assert listed(found) == []
    found = read(tmp_path, "taskset -c 0-99999999999 p\n")
    assert listed(found) == [(1, "taskset 0-99999999999", Gap.CPUS)]


def test_programs_that_are_installed_or_lie_among_programs_are_nothing_to_list(
    tmp_path: Path,
) -> None:
    text = "apt install -y numactl google-perftools\n/opt/conda/bin/python a.py\nman taskset\n"
    assert listed(read(tmp_path, text)) == []


def test_every_node_option_of_numactl_places(tmp_path: Path) -> None:
    options = ("--cpubind=3", "-c 3", "-N3", "--preferred-many=3", "-w 3", "--membind 3")
    found = read(tmp_path, "".join(f"numactl -l {each} python\n" for each in options))
    assert [(p.text, p.line) for p in one(found).placements] == [("3", n) for n in range(1, 7)]
    assert listed(found) == []


def test_an_entry_point_that_is_not_read_is_listed(tmp_path: Path) -> None:
    text = 'FROM x\nENTRYPOINT ["/entry.sh"]\nCMD numactl --cpubind=9 python x\n'
    found = read(tmp_path, text, "Dockerfile")
    assert [p.text for p in one(found).placements] == ["9"]
    assert listed(found) == [(2, "/entry.sh", Gap.ELSEWHERE)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("512", 512.0), ("512Mi", 2.0**29), ("4Gi", 2.0**32), ("4G", 2.0**32),
        ("1.5GB", 1.5 * 2**30), ("2gib", 2.0**31),
        ("1Ti", 2.0**40), ("8b", 8.0), ("4i", None), ("", None), ("50%", None),
    ],
)  # fmt: skip
def test_amounts_of_memory(text: str, wanted: float | None) -> None:
    assert bytes_of(text) == wanted


@pytest.mark.parametrize(
    ("name", "begins"), [("compose.yaml", "services:\n a:\n  environment:\n"), ("x.env", "")]
)
@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("${A:-${B:-4}}", ("4", None, "B")),
        ("${A-4}", ("4", None, "A")),
        ("${A:?set it}", ("${A:?set it}", Gap.NOT_SET_HERE, "")),
        ("${A:+1}", ("${A:+1}", Gap.NOT_SET_HERE, "")),
        ("${A:-}", ("${A:-}", Gap.NOT_SET_HERE, "")),
        ("${A:-/x/${B}}", ("/x/${B}", Gap.NOT_SET_HERE, "A")),
    ],
)
def test_defaults_within_defaults(
    tmp_path: Path, name: str, begins: str, written: str, wanted: tuple[str, Gap | None, str]
) -> None:
    line = f'   MKL_NUM_THREADS: "{written}"\n' if begins else f"MKL_NUM_THREADS={written}\n"
    (each,) = one(read(tmp_path, begins + line, name)).assignments
    assert (each.value, each.gap, each.unless) == wanted


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.service", "[Service]\nExecStartPre=/bin/env A=64 p\nExecStart=/bin/env A=1 q\n"),
        ("Dockerfile", "FROM x AS a\nCMD env A=64 p\nFROM a\nCMD env A=1 q\n"),
        ("serve.sh", "env A=64 p\nsh -c 'A=1 q'\neval env A=2 q\n"),
    ],
)
def test_each_command_has_variables_of_its_own(tmp_path: Path, name: str, text: str) -> None:
    own = one(read(tmp_path, text, name)).assignments
    assert len({each.command for each in own}) == len(own) == text.count("A=")


def test_a_container_that_a_script_starts(tmp_path: Path) -> None:
    (tmp_path / "own.env").write_text("KMP_BLOCKTIME=1\n")
    text = (
        "#!/bin/sh\ndocker run --rm -it -p 80:80 -e OMP_NUM_THREADS=4 --env-file own.env --cpus=2 "
        "--cpuset-cpus 0-3 -m 4g --name one image:1 numactl -C 0 python serve.py\n"
    )
    (_, inside) = read(tmp_path, text).launched
    assert (inside.name, inside.scope) == ("one", Scope.CONTAINER)
    assert {a.name: a.value for a in inside.assignments} == FOUR_AND_ONE
    assert [p.text for p in inside.placements] == ["0-3", "0"]
    assert [limit.amount for limit in inside.cpu_limits] == [2.0]
    assert [limit.amount for limit in inside.memory_limits] == [4.0 * 2**30]
    assert inside.not_understood == []


DOCKERFILE = """
ARG BASE=python:3.11
ARG THREADS=4
FROM ${BASE} AS base
ENV OMP_NUM_THREADS=1 \\
    # why
    KMP_BLOCKTIME=0
ENV LD_PRELOAD=/usr/lib/libjemalloc.so
FROM alpine AS builder
ENV MKL_NUM_THREADS=9
RUN echo 'export OMP_NUM_THREADS=7' > /start.sh
FROM base
ARG THREADS=2
ENV OMP_NUM_THREADS ${THREADS}
ENV LD_PRELOAD=/usr/lib/libiomp5.so${LD_PRELOAD:+:${LD_PRELOAD}}
ENTRYPOINT ["taskset", "-c", "0-1", "python", "serve.py"]
"""


def test_stages_of_a_dockerfile(tmp_path: Path) -> None:
    builder, last = read(tmp_path, DOCKERFILE, "cpu.Dockerfile").launched
    assert builder.name == "builder" and builder.scope is Scope.IMAGE
    assert [(n.line, n.text) for n in builder.not_understood] == [(11, "OMP_NUM_THREADS")]
    own = {a.name: (a.value, a.line, a.unless) for a in last.assignments}
    assert own["OMP_NUM_THREADS"] == ("2", 14, "THREADS")
    assert own["KMP_BLOCKTIME"] == ("0", 5, "")
    assert own["LD_PRELOAD"] == ("/usr/lib/libiomp5.so:/usr/lib/libjemalloc.so", 15, "")
    assert [(p.text, p.line) for p in last.placements] == [("0-1", 16)]


UNIT = """
[Unit]
Environment=NOT=HERE
[Service]
Environment="OMP_NUM_THREADS=8" \\
# a comment
  "MKL_NUM_THREADS=8"
Environment=KMP_BLOCKTIME=%i CPUS=0-3
EnvironmentFile=-/etc/default/x
EnvironmentFile=near.env
CPUAffinity=0-1 4
CPUQuota=150%
MemoryMax=4G
ExecStart=@/usr/bin/taskset -c ${CPUS} python serve.py
"""


def test_a_unit(tmp_path: Path) -> None:
    (tmp_path / "near.env").write_text("GOMP_SPINCOUNT=0\n")
    found = read(tmp_path, UNIT, "x.service")
    launched = one(found)
    assert [(a.name, a.line, a.file) for a in launched.assignments] == [
        ("OMP_NUM_THREADS", 5, ""), ("MKL_NUM_THREADS", 5, ""), ("KMP_BLOCKTIME", 8, ""),
        ("CPUS", 8, ""), ("GOMP_SPINCOUNT", 1, "near.env"),
    ]  # fmt: skip
    assert [(p.text, p.line, p.by) for p in launched.placements] == [
        ("0-1,4", 11, "CPUAffinity="), ("0-3", 14, "taskset"),
    ]  # fmt: skip
    assert [(limit.amount, limit.by) for limit in launched.cpu_limits] == [(1.5, "CPUQuota=150%")]
    assert [limit.amount for limit in launched.memory_limits] == [4.0 * 2**30]
    assert listed(found) == [
        (8, "KMP_BLOCKTIME=%i", Gap.NOT_SET_HERE), (9, "/etc/default/x", Gap.ELSEWHERE),
    ]  # fmt: skip


def test_an_env_file_is_no_shell_script(tmp_path: Path) -> None:
    text = '# x\n\nOMP_NUM_THREADS="2" # two\nKMP_BLOCKTIME=${T:-1}\nMKL_NUM_THREADS 4=\n'
    found = read(tmp_path, text, "x.env")
    assert [(a.name, a.value, a.line, a.unless) for a in one(found).assignments] == [
        ("OMP_NUM_THREADS", "2", 3, ""), ("KMP_BLOCKTIME", "1", 4, "T"),
    ]  # fmt: skip


def test_the_settings_of_torchserve(tmp_path: Path) -> None:
    text = (
        "inference_address=http://0.0.0.0:8080\ndefault_workers_per_model=8\n"
        "cpu_launcher_enable=true\ncpu_launcher_args=--node_id 1 --use_logical_core\n"
        'models={\\\n  "bert": {"1.0": {"minWorkers": 3}}\\\n}\nkeystore_pass=hunter2\n'
    )
    found = read(tmp_path, text, "config.properties")
    launched = one(found)
    assert [(limit.amount, limit.line) for limit in launched.workers] == [(8.0, 2), (3.0, 5)]
    assert [(p.text, p.is_nodes) for p in launched.placements] == [("1", True)]
    assert [(line, gap) for line, _, gap in listed(found)] == [(3, Gap.LAUNCHER), (4, Gap.LAUNCHER)]


POD = """
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: server
        env:
        - {name: OMP_NUM_THREADS, value: "8"}
        - name: HOST
          valueFrom: {fieldRef: {fieldPath: status.hostIP}}
        - name: A
          value: $(HOST):80
        resources: {limits: {cpu: 3500m}}
      - name: sidecar
        env: []
"""


def test_containers_of_a_manifest(tmp_path: Path) -> None:
    found = read(tmp_path, POD, "pod.yaml")
    server, sidecar = found.launched
    assert (server.name, server.scope) == ("server", Scope.IMAGE)
    assert [limit.amount for limit in server.cpu_limits] == [3.5]
    own = {a.name: (a.value, a.line) for a in server.assignments}
    assert own["OMP_NUM_THREADS"] == ("8", 10)
    assert (sidecar.name, sidecar.cpu_limits, sidecar.assignments) == ("sidecar", [], [])
    assert listed(found) == []  # HOST and A tune nothing


COMPOSE = """
x-common: &common
  environment: {OMP_NUM_THREADS: 4}
services:
  server:
    <<: *common
    cpus: 0.5
    cpuset: "0-3"
    command: taskset -c 0-7 python serve.py
    deploy: {resources: {limits: {cpus: "2", memory: 1g}}}
  other:
    env_file: [own.env, /etc/other.env]
    environment:
    - KMP_BLOCKTIME=${BLOCKTIME:-1}
    - OMP_NUM_THREADS=$N
    - MKL_NUM_THREADS
    - GOMP_SPINCOUNT=$$N
"""


def test_services_of_docker_compose(tmp_path: Path) -> None:
    (tmp_path / "own.env").write_text("KMP_BLOCKTIME=7\nMALLOC_CONF=x\n")
    found = read(tmp_path, COMPOSE, "compose.yaml")
    server, other = found.launched
    assert {a.name: a.value for a in server.assignments} == {"OMP_NUM_THREADS": "4"}
    assert [limit.amount for limit in server.cpu_limits] == [0.5, 2.0]
    assert [(p.text, p.by) for p in server.placements] == [("0-3", "cpuset"), ("0-7", "taskset")]
    own = {a.name: (a.value, a.unless, a.file) for a in other.assignments}
    assert own["KMP_BLOCKTIME"] == ("1", "BLOCKTIME", "")  # wins over the file's
    assert own["MALLOC_CONF"] == ("x", "", "own.env")
    assert own["GOMP_SPINCOUNT"] == ("$N", "", "")
    assert listed(found) == [
        (12, "/etc/other.env", Gap.ELSEWHERE), (15, "OMP_NUM_THREADS=$N", Gap.NOT_SET_HERE),
        (16, "MKL_NUM_THREADS", Gap.NOT_SET_HERE),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("pod.yaml", b"a: [", "is no YAML"),
        ("pod.yaml", b"a: !!python/object:os.system x", ""),
        ("pod.yaml", b"? [a, b]\n: c", ""),
        ("pod.yaml", b"a: &x [*x]", ""),
        ("pod.yaml", b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]", ""),
        ("serve.sh", b"\xff\xfe", "is no text"),
        ("serve.sh", b"A=1\n" * 400_000, "no launch file is that long"),
    ],
)
def test_what_is_no_launch_file(tmp_path: Path, name: str, data: bytes, told: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    if not told:  # read as nodes alone, never constructed
        assert read_launch_file(path).launched == []
        return
    with pytest.raises(UsageError, match=told):
        read_launch_file(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_launch_file(tmp_path / "nothing.env")
