"""Vega-Lite specifications made into inline SVG: drawn here and now, so that a page needs neither network nor library.

Colours are CSS variables of the page, so that one drawing serves light and dark. Each chart is drawn twice, for a desk
and for a phone: a drawing scaled down to a phone could not be read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import escape

_WIDE, _NARROW = 880, 330
AXIS_COLOURS = ("var(--compute)", "var(--memory)", "var(--latency)")
_CONFIG: Mapping[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    # Room for fonts wider than the one that Vega measured with; the page lets labels run into it.
    "padding": {"left": 20, "right": 8, "top": 5, "bottom": 5},
    "axis": {
        "aria": False,
        "labelColor": "var(--text)",
        "titleColor": "var(--muted)",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelLimit": 260,
    },
    "legend": {
        "aria": False,
        "labelColor": "var(--text)",
        "labelFontSize": 12,
        "title": None,
        "orient": "top",
        "columnPadding": 28,
        "labelLimit": 260,
    },
}

Spec = dict[str, Any]
# Numbers on an axis as people write them: Vega would round 10 to `1e+1`.
PLAIN_NUMBERS = {"labelExpr": "format(datum.value, '.6~r')"}


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart, drawn for two widths. `caption` says what it shows, also to a screen reader."""

    caption: str
    wide: str
    narrow: str


def draw(name: str, caption: str, spec: Spec, narrow: Spec | None = None, wide: int = _WIDE) -> Chart:
    """Both drawings of a chart.

    Args:
        name: unique on the page.
        caption: what it shows.
        spec: as drawn for a desk.
        narrow: for a phone, where that is more than the same in less room.
        wide: the width at a desk, in pixels.
    """
    phone = _for_phone(narrow or spec)
    return Chart(caption, _svg(f"{name}-wide", caption, spec, wide), _svg(f"{name}-narrow", caption, phone, _NARROW))


def _svg(name: str, caption: str, spec: Spec, width: int) -> str:
    whole = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": width,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": _CONFIG,
        **spec,
    }
    # Imported here: a library of some 80 MB that only a report needs.
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(whole, allowed_base_urls=[])
    # Inside HTML no namespaces are needed; without them the page names no address at all.
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg, count=2)
    svg = svg.replace("<svg ", f'<svg role="graphics-document" aria-label="{escape(caption)}" ', 1)
    # Vega puts an address of its own before the anchors that marks lead to.
    svg = re.sub(r'xlink:href="[^"#]*#', 'href="#', svg)
    # Vega numbers its clip paths; two drawings in one page must not share a number.
    return re.sub(r'(id="|url\(#)(?=clip\d)', rf"\g<1>{name}-", svg)


def _for_phone(spec: Spec) -> Spec:
    axis = {**_CONFIG["axis"], "labelLimit": 112}
    legend = {**_CONFIG["legend"], "columns": 2, "columnPadding": 12, "offset": 8}
    padding = {"left": 12, "right": 2, "top": 5, "bottom": 5}
    return {**spec, "config": {**_CONFIG, "axis": axis, "legend": legend, "padding": padding}}


def scale_of(colours: Mapping[str, str], present: Sequence[str]) -> Spec:
    """A scale from names to colours or shapes that has in its legend only what is in the data."""
    shown = [name for name in colours if name in present]
    return {"domain": shown, "range": [colours[name] for name in shown]}


def logarithmic(low: float, high: float) -> tuple[Spec, Spec]:
    """Scale and axis of positive values from `low` to `high`, which are padded a little."""
    domain = [low / 1.25, high * 1.25]
    return {"type": "log", "nice": False, "domain": domain}, {"values": _log_ticks(*domain)}


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 of each decade, or decades alone where those would crowd the axis."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)]
    shown = [t for t in ticks if low <= t <= high]
    if len(shown) <= 7:
        return shown
    step = 2 if len(decades) > 9 else 1
    return [t for t in (float(f"1e{decade}") for decade in decades[::step]) if low <= t <= high]
