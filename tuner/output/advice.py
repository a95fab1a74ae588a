"""What to do with a result: its settings in words, what applies them, arms by short names."""

from __future__ import annotations

import shlex
import string
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from tuner.output.headline import class_name
from tuner.output.phrases import settings
from tuner.record.configuration import Value
from tuner.record.load import TRAINING, mode_of
from tuner.record.result import Result
from tuner.record.workload import PROGRAM, SERVICE
from tuner.space.catalogue import describe, is_applied_inside
from tuner.space.knobs_of.launch import BATCH

_OF_A_SERVER = ("--serve", "--url", "--requests")
_ALSO_OF_A_SERVER = ("--header",)
_OF_A_FILE = ("--model",)


class Arm(msgspec.Struct, frozen=True):
    """A configuration of the confirmation, by the letter that stands for it."""

    letter: str
    who: str
    """What it is: the default, a winner, a baseline."""
    settings: str


def in_words(result: Result) -> list[tuple[str, str]]:
    """Return each recommended setting, in words, with its value; empty if there is none."""
    if result.verdict != "faster":
        return []
    winner = result.winners[result.recommended_class].configuration
    return [(describe(knob).title, str(value)) for knob, value in winner.items()]


def to_apply(result: Result) -> list[str]:
    """Return the commands besides `run` that apply the recommendation and verify it.

    Empty if nothing is recommended.
    """
    if result.verdict != "faster":
        return []
    winner = result.winners[result.recommended_class].configuration
    lines = []
    if any(map(is_applied_inside, winner)):
        is_training = mode_of(result.scenario) == TRAINING
        call = "prepare_training(model, optimizer)" if is_training else "prepare(model)"
        lines.append(f'model = tuner.apply("recommended.toml").{call}')
    elif result.model_facts is not None and result.model_facts.form == SERVICE:
        if given := _options_as_given(result.command, _OF_A_SERVER, _ALSO_OF_A_SERVER):
            lines.append(f"tune-framework verify recommended.toml {given}")
    elif result.model_facts is None or result.model_facts.form != PROGRAM:
        named = _options_as_given(result.command, _OF_A_FILE)
        if _is_file(named):
            lines.append(f"tune-framework verify recommended.toml {named}  # its path from here")
        else:
            lines.append("tune-framework verify recommended.toml")
    return lines


def _is_file(named: str) -> bool:
    """Tell whether a model was named by its file: no name of one that is built in has a dot."""
    typed = named.partition("@")[0]
    return "/" in typed or "." in typed


def _options_as_given(command: str, options: Sequence[str], more: Sequence[str] = ()) -> str:
    """Return the options that name the workload, from the command that tuned it.

    more: optional ones, which may be repeated. Empty if another one is missing, and for a study
    that was begun from Python.
    """
    if not command.startswith("tune-framework "):
        return ""
    known = (*options, *more)
    words = [part for word in shlex.split(command) for part in _option_and_value(word, known)]
    given = {option: value for option, value in pairwise(words) if option in options}
    if len(given) < len(options):
        return ""
    pairs = [(option, given[option]) for option in options]
    pairs += [pair for pair in pairwise(words) if pair[0] in more]
    return " ".join(f"{option} {shlex.quote(value)}" for option, value in pairs)


def _option_and_value(word: str, options: Sequence[str]) -> list[str]:
    """Return --option=value as two words, and any other as it is."""
    option, equals, value = word.partition("=")
    return [option, value] if equals and option in options else [word]


def arms(result: Result) -> list[Arm]:
    """Return the arms of the confirmation, lettered in the order of the rounds' columns."""
    return [
        Arm(_letter(i), named_as(result, configuration) or "a finalist", settings(configuration))
        for i, configuration in enumerate(result.confirmation.arms)
    ]


def _letter(i: int) -> str:
    """Return A, B, ... Z, AA, AB, ... as spreadsheets number their columns."""
    letters = string.ascii_uppercase
    before = _letter(i // len(letters) - 1) if i >= len(letters) else ""
    return before + letters[i % len(letters)]


def named_as(result: Result, configuration: dict[str, Value]) -> str:
    """Name a configuration by the winners and recommendations that it is; empty if it is no such.

    The default at another batch is the default too.
    """
    bare = {knob: value for knob, value in configuration.items() if knob != BATCH}
    if not bare:
        return "the default"
    winners = [
        class_name(w, k) for k, w in result.winners.items() if w.configuration == configuration
    ]
    names = [b.name for b in result.baselines if b.configuration == bare and not b.same_as]
    is_at_reference = configuration.get(BATCH, result.reference_batch) == result.reference_batch
    at_reference = [
        f"{class_name(w, k)} at the reference batch"
        for k, w in result.winners.items()
        if not winners and is_at_reference and _bare(w.configuration) == bare
    ]
    return ", ".join([*winners, *names, *at_reference[:1]])


def _bare(configuration: dict[str, Value]) -> dict[str, Value]:
    return {knob: value for knob, value in configuration.items() if knob != BATCH}
