"""Plots as SVG for the page: in the colours of its theme, with ids that are unique to each plot, and labels that cannot become markup."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from relay.pipeline.report.text import columns

Shape = Literal["wide", "narrow"]
"""Wide for a desktop or paper, narrow for a phone."""
SHAPES: Mapping[Shape, tuple[float, float, float]] = {"wide": (9.2, 1.0, 9.0), "narrow": (3.7, 1.15, 9.0)}
"""Width in inches, the factor for heights, and the font size."""

COLOURS = {
    name: f"#00fe{number:02x}"
    for number, name in enumerate(
        ("ink", "muted", "grid", "published", "rejected", "failed", "lock-expired", "discarded", "p50", "p95", "p99",
         *(f"heat-{level}" for level in range(6)), *(f"series-{place}" for place in range(6)))
    )
}  # fmt: skip
"""Placeholders that matplotlib accepts as colours, by name. The page has a CSS variable of each name, for its light and its dark theme."""

_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "relay",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "axes.edgecolor": COLOURS["grid"],
    "axes.labelcolor": COLOURS["muted"],
    "axes.titlecolor": COLOURS["ink"],
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.6,
    "xtick.color": COLOURS["grid"],
    "ytick.color": COLOURS["grid"],
    "xtick.labelcolor": COLOURS["muted"],
    "ytick.labelcolor": COLOURS["muted"],
    "timezone": "UTC",
}


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot in both shapes; `words` describe it for readers who cannot see it."""

    wide: Markup
    narrow: Markup
    words: str


Draw = Callable[[Figure, Shape], None]


def plot(name: str, draw: Draw, *, height: float, words: str, labels: Sequence[str] | None = None) -> Plot:
    """Draw a plot of this height in inches in both shapes.

    If there are labels, each `label_of(n)` in the plot becomes `labels[n]`. matplotlib cannot measure labels, so `draw` reserves their
    space.
    """
    layout: Literal["constrained"] | None = "constrained" if labels is None else None
    wide, narrow = (_with_words(_for_page(_draw(draw, shape, height, layout), f"{name}-{shape}"), words, labels or ()) for shape in SHAPES)
    return Plot(wide=wide, narrow=narrow, words=words)


def label_of(number: int) -> str:
    """A placeholder for an application's text. matplotlib cannot measure or escape characters that its fonts lack."""
    return f"label-{number}-"


def room_for(labels: Sequence[str], shape: Shape) -> float:
    """The share of a figure's width that labels on its left side need."""
    width, _, size = SHAPES[shape]
    return min(0.55, (max(map(columns, labels), default=0) * size * 0.68 + 14) / (width * 72))


def panels(figure: Figure, count: int) -> list[Axes]:
    """Axes above each other that share a time axis."""
    made = figure.subplots(count, 1, sharex=True, squeeze=False)
    return [axes for row in made for axes in row]


def _draw(draw: Draw, shape: Shape, height: float, layout: Literal["constrained"] | None) -> str:
    width, stretch, size = SHAPES[shape]
    out = io.StringIO()
    with mpl.rc_context({**_RC, "font.size": size, "axes.titlesize": size + 1, "axes.titlepad": 5}):
        figure = Figure(figsize=(width, height * stretch), layout=layout)
        figure.patch.set_alpha(0)
        draw(figure, shape)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return out.getvalue()


def _for_page(text: str, name: str) -> str:
    """Remove the prolog, make the ids differ from those of other plots, and turn placeholders into colours of the page."""
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    view = re.search(r'viewBox="[^"]+"', text)
    opening = f'<svg {view.group() if view else ""} xmlns:xlink="http://www.w3.org/1999/xlink" role="img">'
    text = re.sub(r"<svg[^>]*>", lambda _: opening, text, count=1)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(href="|url\()#', rf"\g<1>#{name}-", text)
    # Hundredths of a point are finer than any screen. Labels are text between the tags, where digits are not rounded.
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), text)
    text = re.sub(r'(?<= d=")[MLz\d.\s-]+(?=")', lambda found: _shorter(found[0]), text)
    for colour, stand_in in COLOURS.items():
        text = text.replace(stand_in, f"var(--{colour})")
    text = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", text)
    return re.sub(r"font-family: [^;\"]*;? ?", "", text)


def _shorter(path: str) -> str:
    """The same straight lines in fewer characters: for a horizontal or vertical line only the changed coordinate is written."""
    out, x, y = [], "", ""
    for command, to_x, to_y in re.findall(r"([MLz])(?: (\S+) (\S+))?", path):
        if command == "z":
            out.append("z")
            continue
        across, up = f"{float(to_x):g}", f"{float(to_y):g}"
        straight = f"V{up}" if across == x else f"H{across}" if up == y else f"L{across} {up}"
        out.append(f"M{across} {up}" if command == "M" else straight)
        x, y = across, up
    return "".join(out)


def _with_words(text: str, words: str, labels: Sequence[str]) -> Markup:
    """Describe the plot, and insert the labels in one pass: a label that looks like a placeholder is not replaced."""
    text = text.replace('role="img"', f'role="img" aria-label="{escape(words)}"', 1)
    text = re.sub(f">{label_of(0).replace('0', '([0-9]+)')}<", lambda found: f"><tspan>{escape(labels[int(found[1])])}</tspan><", text)
    return Markup(text)  # noqa: S704 - matplotlib escapes its texts, and all others are escaped above
