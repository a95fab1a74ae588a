"""The wheel and the sdist: they install into an empty environment and tune from there."""

import io
import json
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

from tests.wants import needs

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both from a copy: setuptools leaves its work in the tree."""
    folder = tmp_path_factory.mktemp("packages")
    kept = shutil.ignore_patterns(".git", ".venv", "build", "dist", "*.egg-info", ".*_cache")
    shutil.copytree(ROOT, folder / "source", ignore=kept)
    command = [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), "source"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["*.whl", "*.tar.gz"])
def test_a_package_tunes_from_an_empty_environment(
    built: Path, tmp_path: Path, pattern: str
) -> None:
    """Its dependencies are those of this environment: what is tested is what the package holds."""
    (package,) = built.glob(pattern)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = str(tmp_path / "env/bin/python")
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", str(package)]
    subprocess.run(install, check=True)
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    # a path in a .pth does not bring the editable install that is there
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    tune = [str(tmp_path / "env/bin/tune-framework"), "--model", "fake", "--hw", "fake"]
    done = subprocess.run(
        [*tune, "--budget", "20s", "--out", "study"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "study/report.html").stat().st_size > 10_000
    asked = [python, "-c", "import tuner, tune_framework; print(tuner.__file__)"]
    found = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(own))
    models = [str(tmp_path / "env/bin/tune-framework"), "models"]
    shown = subprocess.run(models, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "resnet50" in shown


def test_the_image_is_described_as_this_project_is() -> None:
    """What can be said of it where no daemon builds it."""
    described = DockerfileParser(fileobj=io.BytesIO((ROOT / "Dockerfile").read_bytes()))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert described.baseimage == "python:3.11-slim"
    extras = described.args["FRAMEWORKS"].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    users = [e["value"] for e in described.structure if e["instruction"] == "USER"]
    assert users and users[-1] != "root"
    ends = {e["instruction"]: json.loads(e["value"]) for e in described.structure[-2:]}
    assert ends["ENTRYPOINT"] == [next(iter(project["scripts"]))]
    copied = next(e["value"] for e in described.structure if e["instruction"] == "COPY")
    assert copied == ". /src"
    assert (ROOT / "constraints.txt").exists()


@needs("docker")
@pytest.mark.slow
def test_the_image_tunes() -> None:
    subprocess.run(["docker", "build", "-t", "tune-framework-test", str(ROOT)], check=True)
    run = ["docker", "run", "--rm", "tune-framework-test"]
    done = subprocess.run(
        [*run, "--model", "fake", "--hw", "fake", "--budget", "20s"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
