"""The HTML of the pages: Jinja templates. Every value is escaped, and its control characters are made visible."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import jinja2
from markupsafe import Markup, escape

from relay.cli.common.output import length, named, words


def rendered(name: str, **values: object) -> str:
    """The page of a template."""
    return _environment().get_template(f"{name}.html.j2").render(**values)


@cache
def _environment() -> jinja2.Environment:
    folder = files(__package__)
    loader = jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8"))
    environment = jinja2.Environment(
        autoescape=True, loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_plain
    )
    environment.filters |= {"words": words, "named": named, "length": length, "length_of": len, "sentence": _sentence}
    return environment


def _plain(value: object) -> object:
    """What a template prints: foreign text without control characters, and without characters that turn the direction of writing."""
    return value if isinstance(value, Markup) else words(value)


def _sentence(text: str) -> Markup:
    """A sentence of the command line, with text between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(words(text)))))  # noqa: S704 - escaped in the same breath
