"""The command that goes on with a study, from the one that it was begun with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

_ANEW = ("--budget", "--extend", "--out", "--framework", "--models")
"""Options with a value that the command has anew: it is about one study, by its folder."""


def going_on(command: str, model: str, framework: str, folder: Path, extend: str) -> str:
    """Return the command that continues the study in a folder for `extend`: 10m.

    command: the one it was begun with, perhaps with others. Empty for the study of a Python call,
    of a fleet (whose folder is no study's own), and for what is not a command line.
    """
    try:
        words = shlex.split(command)
    except ValueError:  # a result that was written by hand
        return ""
    if words[:1] != ["tune-framework"] or _values_of(words, "--fleet"):
        return ""
    kept = [word for word in _without(words, _ANEW) if word != "--json"]
    if several := _values_of(words, "--models"):
        kept += ["--model", _as_given(model, several[-1])]
    kept += ["--framework", framework, "--extend", extend, "--out", str(folder)]
    return shlex.join(kept)


def model_file(command: str, model: str) -> str | None:
    """Return the model's file as a command line names it, with its parameters; None if it is not.

    A built-in model is found by its name.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    given = _values_of(words, "--model")
    given += [_as_given(model, each) for each in _values_of(words, "--models")]
    return next((each for each in given if ".py" in each or "/" in each), None)


def _as_given(label: str, models: str) -> str:
    """Return how a list of models names one; by its label a file of the user's is not found."""
    name, at, parameters = label.partition("@")
    files = [part.partition("@")[0] for part in models.split(",")]
    found = next((each for each in files if Path(each).stem == name), name)
    return found + at + parameters


def _values_of(words: Sequence[str], option: str) -> list[str]:
    """Return the values of an option, given as one word or as two."""
    found = [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    return found + [value for i, value in enumerate(words) if i and words[i - 1] == option]


def _without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return a command line without options that take a value."""
    kept: list[str] = []
    is_value = False
    for word in words:
        name, equals, _ = word.partition("=")
        if is_value:
            is_value = False
        elif name in options:
            is_value = not equals
        else:
            kept.append(word)
    return kept
