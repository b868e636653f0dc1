"""Typer commands with two changes: their help shows no type after a flag, and they have this project's messages for wrong arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, get_args, get_type_hints
from uuid import UUID

import typer
from typer.core import TyperCommand, TyperGroup

ID = "an id such as 019a8f4e-0000-7000-8000-000000000000"


class Command(TyperCommand):
    """A command whose help shows no type after a flag."""

    def get_params(self, ctx: Any) -> Any:
        """See `plain_flags`."""
        return plain_flags(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands whose help shows no type after a flag."""

    def get_params(self, ctx: Any) -> Any:
        """See `plain_flags`."""
        return plain_flags(super().get_params(ctx))


class App(typer.Typer):
    """An application whose commands have the class `Command`. A dataclass parameter groups options; see `expanded`."""

    def command(self, name: str | None = None, **options: Any) -> Any:
        """Add a command."""
        add = super().command(name, **{"cls": Command, **options})

        def added(function: Callable[..., Any]) -> Callable[..., Any]:
            add(expanded(function))
            return function

        return added


def expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Typer sees it: each dataclass parameter is replaced by an option for each of its fields."""
    taken = _parameters(function)
    kinds: dict[str, Any] = {one.name: one.annotation for one in taken if is_dataclass(one.annotation)}
    groups = {name: _parameters(kind) for name, kind in kinds.items()}

    @wraps(function)
    def command(**given: Any) -> Any:
        made = {name: kinds[name](**{one.name: given.pop(one.name) for one in fields}) for name, fields in groups.items()}
        return function(**made, **given)

    shown = [option for one in taken for option in groups.get(one.name, [one])]
    command.__signature__ = signature(function).replace(parameters=shown)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in shown}
    return command


def _parameters(made: Callable[..., Any]) -> list[Parameter]:
    """The parameters of a function or class, with their annotations resolved."""
    hints = get_type_hints(made, include_extras=True)
    return [one.replace(annotation=hints.get(one.name, one.annotation)) for one in signature(made).parameters.values()]


def plain_flags(params: Any) -> Any:
    """The parameters; flags, including `--help`, have no value name."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


def wrong_usage(error: Any) -> str:
    """A usage error as a sentence that names the command for more help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" or context is None:
        return str(error.format_message())
    text = _wrong_value(error) or re.sub(
        r"^Invalid value(?: for 'ID(?:\.\.\.)?'| for '(--[\w-]+)'(?=: \1 ))?: ", "", error.format_message()
    )
    return f"{text.rstrip('.')}. See `{context.command_path} --help`."


def _wrong_value(error: Any) -> str | None:
    """What an argument must be; replaces a library's message for programmers."""
    if param := _negative(error):
        return f"{param.metavar} must be {_expected(param)}"
    problems, param = getattr(error.__cause__, "errors", None), getattr(error, "param", None)
    if problems is None or param is None:
        return None
    name = param.opts[0] if param.param_type_name == "option" else (param.metavar or param.name.upper()).rstrip(".")
    wanted = _expected(param)
    return f"{name} must be {wanted}" if wanted else f"{name}: {problems()[0]['msg'].removeprefix('Value error, ')}"


def _negative(error: Any) -> Any:
    """The argument for which a negative number was given; None in other cases. The library reads a negative number as an option."""
    if not re.fullmatch(r"-[\d.]", getattr(error, "option_name", "")):
        return None
    return next((one for one in error.ctx.command.params if one.param_type_name == "argument" and one.min is not None), None)


def _expected(param: Any) -> str | None:
    """A description of a type of value and its bounds; None for a type without a description."""
    kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    [*_, one] = get_args(kind) or (kind,)
    noun = {UUID: ID, int: "a whole number", float: "a number"}.get(one)
    low, high = getattr(param, "min", None), getattr(param, "max", None)
    if noun is None or low is None:
        return noun
    return f"{noun} from {low:.12g} " + ("on" if high is None else f"to {high:.12g}")
