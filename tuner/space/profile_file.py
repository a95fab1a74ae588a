"""A profile read from its file: whatever is wrong in it is named with its line."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tuner.errors import ExpressionError, ProfileError, UnknownName
from tuner.frameworks import FRAMEWORKS
from tuner.host.identity import HOST_FACTS
from tuner.record.configuration import Value
from tuner.record.workload import DEVICES
from tuner.space.catalogue import KNOBS, is_known
from tuner.space.expressions import Expression
from tuner.space.placement import PLACING
from tuner.space.profile import (
    INSTANCE_FACTS,
    SCHEMA_VERSION,
    WORKLOAD_FACTS,
    BaselineEntry,
    FactorEntry,
    KnobEntry,
    Profile,
    ValueEntry,
)
from tuner.space.resolved_knob import fault_of_setting
from tuner.space.restrictions import slip_of


def gallery(folder: Path) -> dict[str, Path]:
    """Return the shipped profiles by name."""
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_profile(name_or_path: str, folder: Path) -> Profile:
    """Load a profile by its name in `folder`, or by the path of a user's file.

    Raises UnknownName with close matches, ProfileError with file and line.
    """
    shipped = gallery(folder)
    path = shipped.get(name_or_path, Path(name_or_path))
    if name_or_path not in shipped and not (path.suffix == ".toml" and path.is_file()):
        raise UnknownName(
            "hardware profile", name_or_path, shipped, "list them with: tune-framework spaces"
        )
    return _load(path, shipped, ())


def _load(path: Path, shipped: dict[str, Path], seen: tuple[Path, ...]) -> Profile:
    file = _File(path)
    profile = file.profile
    if profile.extends:
        base_path = shipped.get(profile.extends)
        if base_path is None or base_path in (path, *seen):
            raise file.fault(
                ("extends",),
                f"cannot extend {profile.extends!r}",
                f"name one of {', '.join(n for n, p in shipped.items() if p != path)}",
            )
        base = _load(base_path, shipped, (*seen, path))
        profile = msgspec.structs.replace(
            profile,
            knob=_merged(base.knob, profile.knob, lambda knob: knob.id),
            baseline=_merged(base.baseline, profile.baseline, lambda b: b.name),
            factor=_merged(base.factor, profile.factor, lambda f: f.name),
        )
    file.check_order(profile)
    return msgspec.structs.replace(profile, name=path.stem)


def _merged(base: list[Any], own: list[Any], key: Any) -> list[Any]:
    replaced = {key(entry): entry for entry in own}
    merged = [replaced.pop(key(entry), entry) for entry in base]
    return merged + list(replaced.values())


class _File:
    """One TOML file, its checked content, and the line of everything in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._text = path.read_text(encoding="utf-8")
            raw = tomllib.loads(self._text)
        except UnicodeDecodeError as error:
            raise ProfileError(path, None, "not UTF-8 text", "save it as UTF-8") from error
        except OSError as error:
            raise ProfileError(path, None, str(error.strerror), "name a readable file") from error
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"at line (\d+)", str(error))
            line = int(found.group(1)) if found else self._text.count("\n") + 1
            raise ProfileError(path, line, f"not TOML: {error}", "see toml.io") from error
        except (RecursionError, ValueError) as error:  # nested too deep, or a number too long
            raise ProfileError(path, None, f"cannot be read: {error}", "see toml.io") from error
        try:
            self.profile = msgspec.convert(raw, Profile)
        except msgspec.ValidationError as error:
            where = _path_of(str(error))
            fault = str(error).partition(" - at ")[0].replace("`", "'")
            raise self.fault(where, fault, _allowed(where)) from error
        self._check()

    def fault(self, where: tuple[str | int, ...], fault: str, allowed: str) -> ProfileError:
        return ProfileError(self.path, _line_of(self._text, where), fault, allowed)

    def _check(self) -> None:
        if self.profile.schema_version != SCHEMA_VERSION:
            raise self.fault(
                ("schema_version",),
                f"schema version {self.profile.schema_version}",
                f"this tool reads version {SCHEMA_VERSION}",
            )
        if self.profile.device not in DEVICES:
            raise self.fault(
                ("device",), f"no device {self.profile.device!r}", f"name {' or '.join(DEVICES)}"
            )
        self._formula(self.profile.matches, ("matches",))
        ids: set[str] = set()
        for i, knob in enumerate(self.profile.knob):
            where = ("knob", i)
            if not is_known(knob.id):
                raise self.fault((*where, "id"), f"no knob {knob.id!r}", _known_knobs(knob.id))
            if knob.id not in KNOBS and (meant := slip_of(knob.id, KNOBS)):
                raise self.fault((*where, "id"), f"no knob {knob.id!r}", f"did you mean {meant}?")
            if knob.id in ids:
                raise self.fault((*where, "id"), f"{knob.id!r} stands twice", "name it once")
            ids.add(knob.id)
            self._frameworks(knob.frameworks, (*where, "frameworks"))
            for key in ("when", "follows", "at_most"):
                self._formula(getattr(knob, key), (*where, key))
            if knob.alias_of and any(map(is_known, Expression(knob.when or "true").names)):
                raise self.fault(
                    (*where, "when"),
                    f"{knob.id} is another name of {knob.alias_of} and asks a knob",
                    "ask host.* and workload.* only",
                )
            literal = [v.value if isinstance(v, ValueEntry) else v for v in knob.values]
            for value in knob.values:
                self._value(knob.id, value, (*where, "values"))
                if isinstance(value, ValueEntry):
                    for text in filter(None, (value.when, value.beside)):
                        self._formula(text, (*where, "values"))
                    for other in value.substitutes():
                        if other not in literal:
                            raise self.fault(
                                (*where, "values"),
                                f"substitute {other!r} is no value of {knob.id}",
                                f"its values are {', '.join(map(str, literal))}",
                            )
                elif isinstance(value, str) and value.startswith("="):
                    self._formula(value[1:], (*where, "values"))
        names: set[str] = set()
        for i, baseline in enumerate(self.profile.baseline):
            where = ("baseline", i)
            if baseline.name in names or baseline.name == "default":
                raise self.fault(
                    (*where, "name"), f"{baseline.name!r} is taken", "choose another name"
                )
            names.add(baseline.name)
            self._frameworks(baseline.frameworks, (*where, "frameworks"))
            self._formula(baseline.when, (*where, "when"))
            for knob_id, value in baseline.settings.items():
                if not is_known(knob_id):
                    raise self.fault(
                        (*where, "settings"), f"no knob {knob_id!r}", _known_knobs(knob_id)
                    )
                self._value(knob_id, value, (*where, "settings"))
                if isinstance(value, str) and value.startswith("="):
                    self._formula(value[1:], (*where, "settings"))
        self._check_factors()

    def _check_factors(self) -> None:
        names = [factor.name for factor in self.profile.factor]
        for i, factor in enumerate(self.profile.factor):
            where = ("factor", i)
            if factor.name in names[:i] or not factor.name.isidentifier():
                raise self.fault(
                    (*where, "name"), f"{factor.name!r} is taken, or no word", "choose another name"
                )
            if not re.fullmatch(r"a?b?c?d?", factor.column) or not factor.column:
                raise self.fault(
                    (*where, "column"), f"no column {factor.column!r}", "write such as a, b or abd"
                )
            if strangers := [name for name in factor.interacts if name not in names]:
                raise self.fault(
                    (*where, "interacts"),
                    f"no factor {strangers[0]!r}",
                    f"there are {', '.join(names)}",
                )
            self._frameworks(factor.frameworks, (*where, "frameworks"))
            self._formula(factor.when, (*where, "when"))
            for knob, value in factor.settings.items():
                if not is_known(knob):
                    raise self.fault((*where, "settings"), f"no knob {knob!r}", _known_knobs(knob))
                self._value(knob, value, (*where, "settings"))
                if isinstance(value, str) and value.startswith("="):
                    others = [f"factor.{name}" for name in names]
                    self._formula(value[1:], (*where, "settings"), others)

    def _value(self, knob: str, value: Value | ValueEntry, where: tuple[str | int, ...]) -> None:
        """Refuse invalid values of the knob; a formula's value is checked once it is known."""
        literal = value.value if isinstance(value, ValueEntry) else value
        if isinstance(value, str) and value.startswith("="):
            if not value.isprintable():
                raise self.fault(where, f"{knob} has control characters: {value!r}", "remove them")
        elif fault := fault_of_setting(knob, literal):
            said, _, allowed = fault.partition("; ")
            raise self.fault(where, said, allowed)

    def _frameworks(self, names: list[str], where: tuple[str | int, ...]) -> None:
        for name in names:
            if name not in FRAMEWORKS:
                raise self.fault(
                    where, f"no framework {name!r}", f"allowed are {', '.join(FRAMEWORKS)}"
                )

    def _formula(self, text: str, where: tuple[str | int, ...], others: Sequence[str] = ()) -> None:
        if not text:
            return
        try:
            names = Expression(text).names
        except ExpressionError as error:
            raise self.fault(where, str(error), "see tuner/space/expressions.py") from error
        facts = (*HOST_FACTS, *WORKLOAD_FACTS, *INSTANCE_FACTS, *others)
        for name in sorted(names):
            if name not in facts and not is_known(name):
                close = difflib.get_close_matches(name, facts, n=1)
                hint = f"did you mean {close[0]}? " if close else ""
                raise self.fault(
                    where,
                    f"formula {text!r} asks {name!r}, which is no fact",
                    f"{hint}facts are {', '.join(facts)}, and the ids of knobs",
                )

    def check_order(self, merged: Profile) -> None:
        """A condition may ask only knobs that stand above: then resolution needs one pass."""
        seen: set[str] = set()
        own = {knob.id: i for i, knob in enumerate(self.profile.knob)}
        placing = {knob.id for knob in merged.knob} & set(PLACING)
        for knob in merged.knob:
            names: set[str] = set()
            for text in (knob.when, knob.follows, knob.at_most):
                names |= Expression(text).names if text else set()
            for value in knob.values:
                if isinstance(value, ValueEntry):
                    for text in filter(None, (value.when, value.beside)):
                        names |= Expression(text).names
            requested = {n for n in (*names, knob.alias_of) if n and is_known(n)}
            if names & set(INSTANCE_FACTS):
                requested |= placing
            if later := requested - seen:
                raise self.fault(
                    ("knob", own.get(knob.id, 0), "when"),
                    f"{knob.id} asks {', '.join(sorted(later))}, which does not stand above it",
                    "move it below",
                )
            seen.add(knob.id)


def _known_knobs(name: str) -> str:
    """Suggest a knob's name: the nearest, or all that are not variables."""
    close = difflib.get_close_matches(name, KNOBS, n=1)
    if close:
        return f"did you mean {close[0]}?"
    others = ", ".join(sorted(knob for knob in KNOBS if not knob.startswith("env.")))
    return f"allowed are env.NAME and {others}"


def _path_of(message: str) -> tuple[str | int, ...]:
    """Read msgspec's "... - at `$.knob[0].values[1]`" into ("knob", 0, "values", 1)."""
    found = re.search(r"at `\$(.*?)`", message)
    parts = re.findall(r"\.([^.\[]+)|\[(\d+)\]", found.group(1)) if found else []
    return tuple(name or int(number) for name, number in parts)


def _allowed(where: tuple[str | int, ...]) -> str:
    """Write what is allowed at a place of the file."""
    struct: type[msgspec.Struct] = Profile
    if where and where[0] == "knob":
        struct = ValueEntry if len(where) > 3 else KnobEntry
    elif where and where[0] == "baseline":
        struct = BaselineEntry
    elif where and where[0] == "factor":
        struct = FactorEntry
    fields = [
        f for f in msgspec.structs.fields(struct) if f.name != "name" or struct is not Profile
    ]
    needed = [f.encode_name for f in fields if f.required]
    optional = [f.encode_name for f in fields if not f.required]
    return f"needed are {', '.join(needed)}; optional are {', '.join(optional) or 'none'}"


def _line_of(text: str, where: tuple[str | int, ...]) -> int:
    """Find the line of a place like ("knob", 2, "values"): its key, else its table's header."""
    table = where[0] if len(where) > 1 and isinstance(where[1], int) else None
    index = int(where[1]) if table else 0
    key = str(where[2]) if table and len(where) > 2 else None
    if table is None and where:
        key = str(where[0])
    inside, count, header = table is None, -1, 1
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("["):
            name = stripped.strip("[] ").split("]")[0]
            if table is None:
                inside = False
            elif name == table and stripped.startswith("[["):
                count += 1
                inside = count == index
                if inside:
                    header = number
            elif not name.startswith(f"{table}."):
                inside = False
        elif inside and key and re.match(rf"[\"']?{re.escape(key)}[\"']?\s*[.=]", stripped):
            return number
    return header
