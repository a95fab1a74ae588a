"""What pip installed is named by its package, and found where the program is started."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.output.exports.shipped import FROM_PIP, TCMALLOC, exported
from tuner.errors import UsageError
from tuner.output.exports import TARGETS
from tuner.record.files import read_recommendation, write_recommendation
from tuner.record.recommendation import Recommendation

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
FOR_TENSORFLOW = msgspec.structs.replace(
    FROM_PIP, workload=msgspec.structs.replace(FROM_PIP.workload, framework="tensorflow")
)
BY_ITS_PATH = msgspec.structs.replace(FROM_PIP, environment={"LD_PRELOAD": TCMALLOC}, packages={})


def from_pip(target: str) -> str:
    return exported(target, FOR_TENSORFLOW if target == "tfserving" else FROM_PIP)


def installed(folder: Path, package: str, *files: str) -> None:
    """Lay out what pip leaves of a package; the loader passes over libraries without content."""
    name, _, version = package.partition("==")
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return a folder of packages as pip makes it: one library inside, one beside its parents."""
    packages = tmp_path / "venv/lib/python3/site-packages"
    installed(packages, "cmeel-mimalloc==3.4.3", "cmeel.prefix/lib/libmimalloc.so")
    installed(packages, "intel-openmp==2026.2.0", "../../libiomp5.so")
    return packages


def started(
    r: Recommendation, folder: Path, *program: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    script = folder / "run.sh"
    script.write_text(exported("shell", r))
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHON", "LD_PRELOAD")}
    return subprocess.run(
        ["/bin/sh", str(script), *program],
        env=inherited | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_script_finds_them_in_the_environment_of_the_python_that_it_starts(
    environment: Path, tmp_path: Path
) -> None:
    done = started(FROM_PIP, tmp_path, sys.executable, "-c", SHOW, PYTHONPATH=str(environment))
    found = json.loads(done.stdout)
    mimalloc = environment / "cmeel.prefix/lib/libmimalloc.so"
    iomp = tmp_path / "venv/lib/libiomp5.so"
    assert found["LD_PRELOAD"] == f"{mimalloc}:{iomp}"
    assert found["OMP_NUM_THREADS"] == "4"


def test_another_program_is_given_what_the_named_python_has(
    environment: Path, tmp_path: Path
) -> None:
    mixed = msgspec.structs.replace(
        FROM_PIP,
        environment={"LD_PRELOAD": f"libiomp5.so:{TCMALLOC}"},
        packages={"libiomp5.so": "intel-openmp==2026.2.0"},
    )
    named = {"PYTHON": sys.executable, "PYTHONPATH": str(environment)}
    done = started(mixed, tmp_path, "/bin/sh", "-c", "echo $LD_PRELOAD", **named)
    assert done.stdout == f"{tmp_path / 'venv/lib/libiomp5.so'}:{TCMALLOC}\n"


def test_without_the_package_the_script_starts_nothing_and_names_it(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    other = msgspec.structs.replace(
        FROM_PIP,
        environment={"LD_PRELOAD": "libmimalloc.so"},
        packages={"libmimalloc.so": "no-such-mimalloc==3.4.3"},
    )
    done = started(other, tmp_path, sys.executable, "-c", f"open({str(bare)!r}, 'w')")
    assert done.returncode == 125
    assert done.stderr.endswith(
        "run.sh: no libmimalloc.so here; type: pip install no-such-mimalloc==3.4.3\n"
    )
    assert not bare.exists()


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_names_the_package_with_its_version(target: str) -> None:
    text = from_pip(target)
    assert "pip install" in text
    assert "cmeel-mimalloc==3.4.3" in text
    assert "intel-openmp==2026.2.0" in text


def test_the_image_gets_the_packages_and_what_they_need_themselves() -> None:
    text = from_pip("docker")
    assert "--no-install-recommends libatomic1 \\" in text
    assert "RUN pip install --no-cache-dir cmeel-mimalloc==3.4.3 \\" in text
    assert "ENV LD_PRELOAD=/usr/local/lib/libmimalloc.so:/usr/local/lib/libiomp5.so\n" in text
    assert text.index("libatomic1") < text.index("ENV LD_PRELOAD")


def test_a_unit_leaves_the_search_to_the_script() -> None:
    text = from_pip("systemd")
    assert 'ExecStart="/usr/local/bin/run.sh" ' in text
    assert "Environment=" not in text


def test_the_env_file_tells_the_command_that_finds_them(environment: Path) -> None:
    (line,) = [text for text in from_pip("env").splitlines() if "export LD_PRELOAD=" in text]
    assert line.startswith("# ")
    command = line[line.index("export ") :].replace("python3", sys.executable)
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command}; echo $LD_PRELOAD"],
        env={**os.environ, "PYTHONPATH": str(environment)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, second = done.stdout.strip().split(":")
    assert Path(first).name == "libmimalloc.so"
    assert Path(second).name == "libiomp5.so"


@pytest.mark.parametrize(
    "packages",
    [{"libmimalloc.so": "x; touch owned"}, {"$(touch owned)": "a==1"}, {"../x.so": "a==1"},
     {"-x.so": "a==1"}],
)  # fmt: skip
def test_a_package_that_a_shell_would_run_is_refused(
    packages: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "recommended.toml"
    write_recommendation(path, msgspec.structs.replace(FROM_PIP, packages=packages))
    with pytest.raises(UsageError, match="is not a library's file and its package"):
        read_recommendation(path)


@pytest.mark.parametrize("r", [FROM_PIP, BY_ITS_PATH], ids=["found at start", "by its path"])
def test_what_the_shell_preloads_besides_comes_after_and_is_said(
    environment: Path, tmp_path: Path, r: Recommendation
) -> None:
    """As `run` keeps it: a monitor that somebody preloads does not vanish in deployment."""
    own = tmp_path / "libown.so"
    own.touch()
    done = started(
        r, tmp_path, sys.executable, "-c", SHOW, PYTHONPATH=str(environment), LD_PRELOAD=str(own)
    )
    *ours, last = json.loads(done.stdout)["LD_PRELOAD"].split(":")
    assert ours
    assert last == str(own)
    assert "run.sh: set in addition, and not measured: LD_PRELOAD" in done.stderr
