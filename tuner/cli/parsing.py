"""The parser of the command line: typer's, which here also refuses what it would ignore.

Refused are a second value for an option that takes one, and options of a run in front of another
command.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

_GIVEN = "tuner.given"
"""In the context's meta: the names of the options on the command line, before any is read."""


def options_given(context: typer.Context) -> Sequence[str]:
    """Return the names of the parameters that the command line gives, in its order."""
    given: Sequence[str] = context.meta.get(_GIVEN, ())
    return given


def _note_options(
    command: TyperCommand | TyperGroup, context: typer.Context, arguments: list[str]
) -> None:
    """Note the options that are given; raises typer.BadParameter if one has two values."""
    _, rest, order = command.make_parser(context).parse_args(list(arguments))
    options = Counter(each for each in order if isinstance(each, TyperOption))
    context.meta[_GIVEN] = tuple(option.name for option in options)
    for option, n in options.items():
        if n > 1 and not option.multiple and not option.is_flag and not context.resilient_parsing:
            raise typer.BadParameter(
                f"it is given {n} times; give it once", ctx=context, param=option
            )
    if rest and command.name == "tune" and not context.resilient_parsing:
        model = shlex.quote(rest[0])
        context.fail(f"{rest[0]!r} is no option; to tune a model: tune-framework --model {model}")


_HIDDEN = ("show_completion",)


class StrictCommand(TyperCommand):
    """A command whose options with one value are given once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; raises typer.BadParameter for a second value of an option."""
        _note_options(self, ctx, args)
        return super().parse_args(ctx, args)


class RunOrCommand(TyperGroup):
    """Commands, and the options of the one that is meant if none is named.

    Its help shows the options without a panel of their own; the command's help shows all.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; raises typer.BadParameter for a second value of an option."""
        for option in self.params:
            if isinstance(option, TyperOption):
                option.hidden = option.rich_help_panel is not None or option.name in _HIDDEN
        _note_options(self, ctx, args)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that is named; a usage error if options stand before it."""
        name = args[0]
        if name not in self.commands and not get_close_matches(name, self.commands):
            ctx.fail(
                f"No such command {name!r}; to tune a model: tune-framework --model "
                f"{shlex.quote(name)}"
            )
        given = options_given(ctx)
        if given and name in self.commands:
            options = {option.name: option.opts[0] for option in self.params}
            ctx.fail(
                f"{options[given[0]]} stands before the command {name!r}; options stand behind "
                f"it: tune-framework {name} ..."
            )
        return super().resolve_command(ctx, args)
