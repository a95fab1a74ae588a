"""A worker that is forked (seed.py) is the one that would have been started."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.command import result_of, run
from tests.virtual import STARTS

FAULTS = (
    "env.FAKE_THREADS=1:exit;launch.allocator=tcmalloc:exit;fake.streams=2:crash;"
    "env.FAKE_THREADS=4:daemon;env.FAKE_THREADS=8:ignored"
)


def told(folder: Path, environment: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return what a study read of the default, how each trial ended, and how often Python began."""
    (folder / "site").mkdir(parents=True)
    begun = folder / "begun"
    (folder / "site/sitecustomize.py").write_text(f"open({str(begun)!r}, 'a').write('x')\n")
    site = {"PYTHONPATH": f"{folder / 'site'}:{os.environ.get('PYTHONPATH', '')}"}
    done = run(
        "--model", f"fake@faults={FAULTS}", "--hw", "fake", "--budget", "5s", "--json",
        "--exclude", "fake.compile", "--exclude", "fake.layout", "--exclude", "fake.precision",
        "--out", "out", cwd=folder, environment={**site, **environment}, is_virtual=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = result_of(done.stdout)
    trials = {
        str(trial["configuration"]): (trial["outcome"], trial["reason"])
        for trial in result["trials"]
        if trial["outcome"] != "pruned"
    }
    return result["default"]["read_back"], trials, len(begun.read_text())


@pytest.mark.slow
def test_forked_and_started_workers_tell_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STARTS, raising=False)
    default, forked, n_forked = told(tmp_path / "forked", {})
    same_default, started, n_started = told(tmp_path / "started", {STARTS: "1"})
    assert n_forked < n_started  # those with a preloaded allocator are started in any case
    assert default == same_default
    both = forked.keys() & started.keys()
    assert len(both) > 5
    assert {each: forked[each] for each in both} == {each: started[each] for each in both}
    reasons = {reason for _, reason in (forked[each] for each in both)}
    assert any("SIGSEGV" in reason for reason in reasons), reasons
    assert any("exit code 3" in reason for reason in reasons), reasons
