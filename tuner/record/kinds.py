"""The kind of a file that was given instead of another kind, for error messages."""

from __future__ import annotations

from pathlib import Path

RECOMMENDED = "recommended.toml"
_OF_A_STUDY = {
    "report.html": "a report",
    "report.md": "a report",
    "result.json": "the result of a study",
    "run.sh": "a launch script",
}
"""Files of a study's folder, by their names."""
_BY_SUFFIX = {
    ".html": "a web page",
    ".md": "a Markdown document",
    ".json": "a JSON file",
    ".jsonl": "a file of JSON lines",
    ".sh": "a shell script",
    ".env": "a file of environment variables",
    ".py": "a Python program",
    ".yaml": "a YAML file",
    ".yml": "a YAML file",
    ".toml": "a TOML file",
    ".db": "a database",
    ".svg": "a picture",
    ".png": "a picture",
}


def kind_of(path: Path) -> str:
    """Name the kind of a file by its name, with an article; empty if the name does not show it."""
    if path.match("recommended*.toml"):
        return "a recommendation"
    return _OF_A_STUDY.get(path.name) or _BY_SUFFIX.get(path.suffix.lower(), "")


def recommendation_near(path: Path) -> str:
    """Return the path of a recommendation in, below or next to a path, or an example of one."""
    try:
        folder = path if path.is_dir() else path.parent
        below = sorted(folder.glob(f"*/{RECOMMENDED}")) if folder == path else []
        found = [each for each in (folder / RECOMMENDED, *below) if each.is_file()]
    except (OSError, ValueError):  # what may not be looked at, or can be no path
        found = []
    return str(found[0] if found else Path("DIR") / RECOMMENDED)
