"""The files to ship: a recommended.toml per winner, an environment file, a script."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tuner.output.exports import environment as env
from tuner.output.exports import shell
from tuner.record.files import write_recommendation, write_whole
from tuner.record.recommendation import Recommendation
from tuner.record.winner_class import WinnerClass


def write_recommendations(
    folder: Path, recommendations: Mapping[WinnerClass, Recommendation], shipped: WinnerClass
) -> None:
    """Write recommended*.toml for every class, and env and script for the one that ships."""
    for winner_class, recommendation in recommendations.items():
        write_recommendation(folder / f"recommended.{winner_class}.toml", recommendation)
        (folder / f"recommended.{winner_class.former_name}.toml").unlink(missing_ok=True)
    r, name = recommendations[shipped], "recommended.toml"
    write_recommendation(folder / name, r)
    write_whole(folder / "recommended.env", env.render(r, (), name))
    write_whole(folder / "run.sh", shell.render(r, (), name), executable=True)
