"""The axes of a report's plot as they are drawn: which labels each has, and where they stand, read from the SVG."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple
from xml.etree.ElementTree import Element, fromstring

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

_SVG = "{http://www.w3.org/2000/svg}"


class Box(NamedTuple):
    """A label and the rectangle around it, in points from the plot's upper left corner."""

    text: str
    left: float
    right: float
    top: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two share a point of the plot."""
        return self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom


class Axis(NamedTuple):
    """One axis of one panel; `shared` where a panel below shows its labels."""

    name: str
    labels: tuple[Box, ...]
    shared: bool


def axes_of(svg: str) -> list[Axis]:
    """Both axes of each panel, from above. Of Markup, `replace` would escape what it puts in, hence `str`."""
    # The plots stand in HTML, where SVG needs no namespace; XML does.
    root = fromstring(str(svg).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))  # noqa: S314 - the report's own
    panels = [group for group in root.iter(f"{_SVG}g") if re.search(r"-axes_\d+$", group.get("id", ""))]
    return [
        Axis(f"{panel.get('id')} {kind}", tuple(_labels(panel, kind)), shared=kind == "x" and panel is not panels[-1])
        for panel in panels
        for kind in ("x", "y")
    ]


def faults(svg: str) -> list[str]:
    """Axes with fewer than two labels, or with labels that say the same or stand in each other's way."""
    found = []
    for axis in axes_of(svg):
        texts = [box.text for box in axis.labels]
        if len(texts) < 2 and not axis.shared:
            found.append(f"{axis.name} has only {texts}")
        if len(set(texts)) < len(texts) and axis.name.endswith(" y"):  # along the time an hour comes again with the next day
            found.append(f"{axis.name} says {texts}")
    labels = [box for axis in axes_of(svg) for box in axis.labels]
    return found + [f"{one.text} meets {other.text}" for one, other in combinations(labels, 2) if one.meets(other)]


def _labels(panel: Element, kind: str) -> Iterator[Box]:
    for tick in panel.iter(f"{_SVG}g"):
        if re.search(rf"-{kind}tick_\d+$", tick.get("id", "")):
            yield from map(_box, tick.iter(f"{_SVG}text"))


def _box(text: Element) -> Box:
    style = text.get("style", "")
    size = re.search(r"font-size: ([\d.]+)px", style)
    assert size is not None, style
    said = "".join(text.itertext())
    width, height, descent = text_to_path.get_text_width_height_descent(
        said, FontProperties(family="DejaVu Sans", size=float(size[1])), False
    )
    x, y = _place(text)
    anchor = re.search(r"text-anchor: (\w+)", style)
    left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor[1] if anchor else "start"]
    return Box(said, left, left + width, y - height + descent, y + descent)


def _place(text: Element) -> tuple[float, float]:
    if text.get("x") is not None:
        return float(text.get("x", 0)), float(text.get("y", 0))
    moved = re.search(r"translate\(([-\d.]+) ([-\d.]+)\)", text.get("transform", ""))
    assert moved is not None, text.attrib
    return float(moved[1]), float(moved[2])
