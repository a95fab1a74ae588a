"""What a launch file sets, without executing any of it."""

from pathlib import Path

import pytest

from tuner.deploy.launch_file import read_launch_file
from tuner.deploy.launched import Assignment, LaunchFile
from tuner.errors import UsageError


def read(tmp_path: Path, text: str, name: str = "serve.sh") -> LaunchFile:
    path = tmp_path / name
    path.write_text(text)
    return read_launch_file(path)


def values(found: LaunchFile) -> dict[str, str]:
    (launched,) = found.launched
    return {each.name: each.value for each in launched.assignments}


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
        ("mpirun -x OMP_NUM_THREADS=4 prog", {"OMP_NUM_THREADS": "4"}),
        ("ENV OMP_NUM_THREADS=4 KMP_BLOCKTIME=1", FOUR_AND_ONE),
        ("ENV OMP_NUM_THREADS 4", {"OMP_NUM_THREADS": "4"}),
        ('Environment=OMP_NUM_THREADS=4 "A=b c"', {"OMP_NUM_THREADS": "4", "A": "b c"}),
        (f"export LD_PRELOAD=$LD_PRELOAD:{JEMALLOC}", {"LD_PRELOAD": JEMALLOC}),
        (f"export LD_PRELOAD={JEMALLOC}:${{LD_PRELOAD}}", {"LD_PRELOAD": JEMALLOC}),
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
    found = read(tmp_path, "\n\nexport A=1\nB=2 prog\nunset A\nC=3\n")
    (launched,) = found.launched
    assert launched.assignments == [
        Assignment("B", "2", 4, False), Assignment("C", "3", 6, is_exported=False),
    ]  # fmt: skip


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
        ("ENV A=1\nRUN serve\n", "A"),
        ("docker run -e A=1 image\nB=2\n", "A"),
        ("[Service]\nEnvironment=A=1\nExecStart=/usr/bin/python serve.py\n", "A"),
    ],
)
def test_what_programs_see(tmp_path: Path, text: str, wanted: str) -> None:
    (launched,) = read(tmp_path, text).launched
    own = [each for each in launched.assignments if each.name in "AB"]
    assert "".join(each.name for each in own if each.is_exported) == wanted


@pytest.mark.parametrize(
    "line",
    [
        "export OMP_NUM_THREADS=$(nproc)",
        "export OMP_NUM_THREADS=`nproc`",
        'export KMP_AFFINITY="granularity=fine',
        "numactl --cpunodebind=0 python serve.py",
        "prog OMP_NUM_THREADS=3",
        "export OMP_NUM_THREADS+=4",
        "OMP_NUM_THREADS = 4",
        "export OMP_NUM_THREADS =4",
    ],
)
def test_what_is_not_understood_is_listed(tmp_path: Path, line: str) -> None:
    found = read(tmp_path, f"# a script\n{line}\n")
    assert values(found) == {}
    assert [number for number, _ in found.not_understood] == [2]


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
    assert values(found) == {"KMP_BLOCKTIME": "1"}
    assert [number for number, _ in found.not_understood] == [3, 4, 5, 7]
    assert found.not_understood[0] == (3, "OMP_NUM_THREADS (in a here-document)")
    assert found.not_understood[2] == (5, "taskset (in a here-document)")


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
    assert found.not_understood == [(1, "OMP_NUM_THREADS (with blanks around =)")]


def test_a_secret_that_is_computed_is_none_of_our_business(tmp_path: Path) -> None:
    assert read(tmp_path, "TOKEN=$(cat secret)\n").not_understood == []


def test_cpus_of_a_placed_program(tmp_path: Path) -> None:
    (launched,) = read(
        tmp_path, "taskset -c 0-3 prog\nnumactl --physcpubind=4,5 --membind=0 prog\n"
    ).launched
    assert launched.cpus == [("0-3", 1), ("4,5", 2)]


def test_options_of_the_program_place_nothing(tmp_path: Path) -> None:
    (launched,) = read(
        tmp_path, "taskset -c 0-3 python -c 5\ntaskset -c 0-99999999999 p\n"
    ).launched
    assert launched.cpus == [("0-3", 1)]


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
    assert (server.name, server.cpu_limit) == ("server", 3.5)
    assert server.assignments == [Assignment("OMP_NUM_THREADS", "8", 10)]
    assert (sidecar.name, sidecar.cpu_limit, sidecar.assignments) == ("sidecar", None, [])
    assert found.not_understood == []  # HOST and A tune nothing


COMPOSE = """
services:
  server:
    environment: {OMP_NUM_THREADS: 4}
  other:
    environment:
    - KMP_BLOCKTIME=1
    - OMP_NUM_THREADS=$N
"""


def test_services_of_docker_compose(tmp_path: Path) -> None:
    found = read(tmp_path, COMPOSE, "compose.yaml")
    assert [[(a.name, a.value) for a in each.assignments] for each in found.launched] == [
        [("OMP_NUM_THREADS", "4")], [("KMP_BLOCKTIME", "1")],
    ]  # fmt: skip
    assert found.not_understood == [(8, "OMP_NUM_THREADS (its value is computed)")]


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("pod.yaml", b"a: [", "is no YAML"),
        ("pod.yaml", b"a: !!python/object:os.system x", ""),
        ("pod.yaml", b"? [a, b]\n: c", ""),
        ("pod.yaml", b"a: &x [*x]", ""),
        ("pod.yaml", b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]", ""),
        ("serve.sh", b"\xff\xfe", "is no text"),
        ("serve.sh", b"A=1\n" * 400_000, "no launch file has so many"),
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
