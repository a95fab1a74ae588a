"""Options of a run in a TOML file: `--config`, and the `tune.toml` in a study's folder."""

from __future__ import annotations

import difflib
import shlex
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tomli_w
import typer
from typer.core import TyperOption

from tuner.cli.parsing import options_given
from tuner.host.secrets import redacted
from tuner.record.files import write_whole
from tuner.record.withdrawal import OPTIONS

_EXCLUDE_EACH_OTHER = (
    frozenset({"model", "models", "command", "serve"}),
    frozenset({"hw", "space"}),
    frozenset({"budget", "extend"}),
)
"""One of these on the command line replaces the others of a file."""
_BELONG_TO = {
    "model": frozenset({"batch", "batch_dim", "inputs", "tolerance", "allow_pickle"}),
    "serve": frozenset({"url", "requests", "header"}),
}
"""Options that go with the model or the server of a file if another kind replaces it."""
_HEADER = """\
# The options that this study was begun with; from the folder where it was begun, this resumes it:
#     tune-framework --config {path}
# and with another --out it is measured again.
"""
_SECRET = "# Left out, because it holds a secret: {name}\n"


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the values of a file as the defaults of this command's options.

    Raises typer.BadParameter, with the file, for an unknown option or a value of another type.
    """
    if path is not None and not context.resilient_parsing:
        given = set(options_given(context))
        replaced = {
            name for group in _EXCLUDE_EACH_OTHER if group & given for name in group - given
        }
        values = _read(path, context, given | replaced)
        for what in replaced & values.keys() & _BELONG_TO.keys():
            replaced |= _BELONG_TO[what]
        context.default_map = {k: v for k, v in values.items() if k not in replaced}
    return path


def given_options(context: typer.Context) -> dict[str, Any]:
    """Return the options of this run that are not defaults, by name, as TOML can hold them."""
    found: dict[str, Any] = {}
    for name, option in _options(context).items():
        source = context.get_parameter_source(option.name)
        if source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            found[name] = _plain(context.params[option.name])
    return found


def write_config(folder: Path, options: Mapping[str, Any]) -> None:
    """Write the options of a study into its folder, unless an earlier session did.

    Without those that hold a secret. Raises StorageFailed.
    """
    path = folder.absolute() / OPTIONS
    if path.exists():
        return
    kept = {**options, "out": str(path.parent)}
    kept.pop("extend", None)  # of a study that has no such file yet; each repetition would add it
    secret = [name for name, value in kept.items() if redacted(str(value)) != str(value)]
    text = _HEADER.format(path=shlex.quote(str(path)))
    text += "".join(_SECRET.format(name=name) for name in secret)
    write_whole(
        path, f"{text}\n" + tomli_w.dumps({k: v for k, v in kept.items() if k not in secret})
    )


def _plain(value: Any) -> Any:
    """Return the value of an option as TOML can hold it; paths hold in every folder."""
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return str(value.absolute()) if isinstance(value, Path) else value


def _options(context: typer.Context) -> dict[str, TyperOption]:
    """Return the options of a run by their names without dashes."""
    return {
        option.opts[0].lstrip("-"): option
        for option in context.command.params
        if isinstance(option, TyperOption) and not option.is_eager
    }


def _read(path: Path, context: typer.Context, unused: Collection[str]) -> dict[str, Any]:
    """Return a file's values by the names of their parameters.

    unused: those that the command line replaces, which may have any value of the right type.
    """
    options = _options(context)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # of the decoders, and of absurd numbers
        raise typer.BadParameter(f"{path} is not TOML: {error}") from error
    found = {}
    for key, value in table.items():
        name = key.replace("_", "-")
        if name not in options:
            close = difflib.get_close_matches(name, options, n=1)
            guess = f"did you mean {close[0]}? " if close else ""
            raise typer.BadParameter(
                f"{path}: there is no option {key!r}; {guess}"
                "tune-framework tune --help lists them, here without dashes"
            )
        shown = f"{path}: {key} = {value!r}"
        option = options[name]
        found[option.name] = _value(shown, value, option)
        if option.name not in unused:
            _check(shown, found[option.name], option, context)
    return found


def _value(shown: str, value: Any, option: TyperOption) -> Any:
    """Return a value as the command line would give it."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise typer.BadParameter(f"{shown}: write true or false")
        return value
    if option.multiple:
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(each, str) for each in values):
            raise typer.BadParameter(f'{shown}: write a list of texts: ["...", "..."]')
        return values
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise typer.BadParameter(f"{shown}: write one text or one number")
    return str(value)


def _check(shown: str, value: Any, option: TyperOption, context: typer.Context) -> None:
    """Convert a value as the command line would, whose message does not name the file.

    Raises typer.BadParameter.
    """
    try:
        option.process_value(context, value)
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{shown}: {error.message}") from error
