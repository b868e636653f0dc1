"""Commands as people use them: help without the types of flags, and what is wrong with an argument in our own words."""

from __future__ import annotations

from typing import Any, get_args
from uuid import UUID

import typer
from typer.core import TyperCommand, TyperGroup

ID = "an id such as 019a8f4e-0000-7000-8000-000000000000"


class Command(TyperCommand):
    """A command whose help shows no type beside a flag."""

    def get_params(self, ctx: Any) -> Any:
        """See `plain_flags`."""
        return plain_flags(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands; its flags as those of `Command`."""

    def get_params(self, ctx: Any) -> Any:
        """See `plain_flags`."""
        return plain_flags(super().get_params(ctx))


class App(typer.Typer):
    """Commands of the class `Command`."""

    def command(self, name: str | None = None, **options: Any) -> Any:
        """Add a command."""
        return super().command(name, **{"cls": Command, **options})


def plain_flags(params: Any) -> Any:
    """The parameters, a flag with no name for the value that it does not take; `--help` too, which nobody declares."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


def wrong_usage(error: Any) -> str:
    """A usage error as a sentence, with where to read more."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" or context is None:
        return str(error.format_message())
    text = _wrong_value(error) or error.format_message().removeprefix("Invalid value: ")
    return f"{text.rstrip('.')}. See `{context.command_path} --help`."


def _wrong_value(error: Any) -> str | None:
    """What an argument must be, where the library that read it said so in words for programmers."""
    problems, param = getattr(error.__cause__, "errors", None), getattr(error, "param", None)
    if problems is None or param is None:
        return None
    name = param.opts[0] if param.param_type_name == "option" else (param.metavar or param.name.upper()).rstrip(".")
    wanted = _wanted(param)
    return f"{name} must be {wanted}" if wanted else f"{name}: {problems()[0]['msg'].removeprefix('Value error, ')}"


def _wanted(param: Any) -> str | None:
    """A kind of value and its bounds, where the kind has a word."""
    kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    [*_, one] = get_args(kind) or (kind,)
    noun = {UUID: ID, int: "a whole number", float: "a number"}.get(one)
    low, high = getattr(param, "min", None), getattr(param, "max", None)
    if noun is None or low is None:
        return noun
    return f"{noun} from {low:.12g} " + ("on" if high is None else f"to {high:.12g}")
