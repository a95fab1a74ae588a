"""Which recommendation of an index is this host's: that of its kind, where one was confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.errors import UsageError
from tuner.galleries import MODELS
from tuner.host.identity import Host, kind_of
from tuner.record.index import FILE, Index, Row, read_index
from tuner.space.differences import differences
from tuner.space.recommended import read_recommended

_TOML = "recommended.toml"


def is_index(path: Path) -> bool:
    """Tell whether a path is an index of several studies, or its folder."""
    if path.name == FILE:
        return True
    return (path / FILE).is_file() and not (path / _TOML).exists()


def chosen(path: Path, host: Host, model: str = "", framework: str = "") -> Path:
    """Return the recommended.toml of a path; of an index, that for this host's kind.

    model, framework: select one if the index has several. Raises UsageError if there is none, or
    none that may be shipped here.
    """
    if not is_index(path):
        return path
    folder = path.parent if path.name == FILE else path
    if not path.exists():
        raise UsageError(f"there is no {path}; it is written by --models and --fleet")
    index = read_index(folder)
    meant = [
        row
        for row in index.rows
        if model in ("", row.model) and framework in ("", row.framework) and row.folder
    ]
    names = list(dict.fromkeys((row.model, row.framework) for row in meant))
    if len(names) != 1:
        raise UsageError(_which(folder, index, meant, model, framework))
    fitting = [row for row in meant if row.state == "done" and _fits(folder, row, index, host)]
    name = f"{meant[0].model} in {meant[0].framework}"
    if not fitting:
        kinds = ", ".join(sorted({row.kind for row in meant if row.kind})) or "another host"
        raise UsageError(
            f"{folder} holds no study of {name} on this kind of host ({host.summary()}; there: "
            f"{kinds}): tune it here, or name a {_TOML} yourself"
        )
    kind = kind_of(host, MODELS)
    row = max(
        fitting,
        key=lambda row: (row.kind == kind, _is_exact(row, index, host), row.is_recommended()),
    )
    if row.verdict == "faster" and not row.is_recommended():
        raise UsageError(
            f"what won for {name} on this kind of host is not confirmed on another one, and is "
            f"not shipped; to take it all the same, name {folder / row.folder / _TOML}"
        )
    return folder / row.folder / _TOML


def _which(folder: Path, index: Index, meant: Sequence[Row], model: str, framework: str) -> str:
    there = sorted({f"{row.model} in {row.framework}" for row in index.rows if row.folder})
    asked = " in ".join(filter(None, (model, framework)))
    if not meant:
        return f"{folder} holds no study of {asked or 'any model'}; there: {', '.join(there)}"
    found = ", ".join(sorted({f"{row.model} in {row.framework}" for row in meant}))
    return f"{folder} holds studies of {found}: say which with --model and --framework"


def _is_exact(row: Row, index: Index, host: Host) -> bool:
    """Tell whether a study was made on hosts that differ in nothing."""
    return any(k.name == row.kind and k.fingerprint == host.fingerprint() for k in index.kinds)


def _fits(folder: Path, row: Row, index: Index, host: Host) -> bool:
    """Tell whether a study was made on an equivalent host, in everything that speeds depend on."""
    if _is_exact(row, index, host):
        return True
    try:
        recommendation = read_recommended(folder / row.folder)
    except UsageError:  # one that cannot be read is not this host's
        return False
    return not any(each.matters for each in differences(recommendation, host))
