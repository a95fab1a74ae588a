"""tune-framework spaces: the hardware profiles, and the content of one."""

from __future__ import annotations

import sys

import msgspec
from rich.table import Table
from rich.text import Text

from tuner.cli.tables import LEGEND, text_console, wide_console
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import probe
from tuner.space.catalogue import describe
from tuner.space.profile import Profile
from tuner.space.profile_file import gallery, load_profile
from tuner.space.resolve import profile_matches

_SEARCHED = {True: "", False: ", baselines and --set only", "late": ", late"}


def main(name: str | None, *, as_json: bool) -> None:
    """Print all profiles, or one."""
    names = [name] if name is not None else list(gallery(SEARCH_SPACES))
    profiles = [load_profile(each, SEARCH_SPACES) for each in names]
    if as_json:
        payload = profiles[0] if name is not None else profiles
        sys.stdout.write(
            msgspec.json.format(msgspec.json.encode(payload), indent=2).decode() + "\n"
        )
    elif name is not None:
        _show_one(profiles[0])
    else:
        _show_all(profiles)


def _show_all(profiles: list[Profile]) -> None:
    host = probe()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("profile", "for", "this host", "knobs", "baselines"):
        table.add_column(column, overflow="fold")
    for profile in profiles:
        matches = profile_matches(profile, host)
        table.add_row(
            profile.name,
            profile.title,
            ("yes" if matches else "no") if profile.matches else "any",
            str(len(profile.knob)),
            str(len(profile.baseline)),
        )
    text_console().print(table)


def _show_one(profile: Profile) -> None:
    console = wide_console()
    console.print(Text(f"{profile.name}: {profile.title}", style="bold"))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("knob", "applies", "what", "values", "live when"):
        table.add_column(column, overflow="fold")
    for entry in profile.knob:
        knob = describe(entry.id)
        values = [str(getattr(value, "value", value)) for value in entry.values]
        table.add_row(
            entry.id,
            str(knob.applies) + _SEARCHED[entry.search],
            Text(knob.title + (" (changes numerics)" if knob.changes_numerics else "")),
            Text(", ".join(values)),
            Text(entry.when),
        )
    console.print(table)
    console.print(Text(LEGEND, style="dim"))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("baseline", "frameworks", "settings", "source"):
        table.add_column(column, overflow="fold")
    for baseline in profile.baseline:
        table.add_row(
            Text(baseline.name),
            ", ".join(baseline.frameworks),
            Text(" ".join(f"{k}={v}" for k, v in baseline.settings.items())),
            Text(baseline.source),
        )
    console.print(table)
