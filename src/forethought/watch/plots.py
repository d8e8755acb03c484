"""Figures as SVG text that takes its colours from the page, light or dark.

matplotlib knows nothing of style sheets: it draws with stand-in colours, which are then replaced
by the page's variables. Words stay outside, in the page, where they can wrap and be read aloud.
"""

# matplotlib's own stubs leave its keyword arguments untyped.
# pyright: reportUnknownMemberType=false

import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

_INK, _MUTED, _LINE, _ACCENT, _SOFT = "#010a01", "#020a02", "#030a03", "#040a04", "#050a05"
_VARIABLES = {
    _INK: "var(--ink)",
    _MUTED: "var(--muted)",
    _LINE: "var(--line)",
    _ACCENT: "var(--accent)",
    _SOFT: "var(--soft)",
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 8,
    "text.color": _MUTED,
    "axes.edgecolor": _LINE,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
}
_POINTS = 300
_FEW_RATES = 17


def curve(series: Sequence[tuple[int, float]]) -> Markup:
    """One series over steps, with its running mean; gaps where a value is not finite."""
    kept = thinned([(step, value) for step, value in series if math.isfinite(value)])
    steps = [step for step, _ in kept]
    values = [value for _, value in kept]
    with mpl.rc_context(_STYLE):
        figure, axes = _canvas(3.3, 1.75)
        axes.plot(steps, values, color=_SOFT, linewidth=1.0)
        marker = "o" if len(kept) == 1 else None
        axes.plot(steps, running_mean(values), color=_ACCENT, linewidth=1.6, marker=marker)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.margins(x=0.02, y=0.12)
        return _svg(figure, f"curve {kept}")


def histogram(rates: Sequence[float]) -> Markup:
    """How many problems have each pass rate; those never or always solved are drawn fainter."""
    counts = _counted(rates)
    width = 0.8 * min((b - a for a, b in pairwise(counts)), default=0.1)
    with mpl.rc_context(_STYLE):
        figure, axes = _canvas(6.6, 1.9)
        colours = [_SOFT if rate in (0.0, 1.0) else _ACCENT for rate in counts]
        axes.bar(list(counts), list(counts.values()), width=width, color=colours)
        axes.set_xlim(-0.5 * width - 0.02, 1.02 + 0.5 * width)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        return _svg(figure, f"histogram {sorted(counts.items())}")


def running_mean(values: Sequence[float]) -> list[float]:
    """The mean of each value with those around it: a twentieth of the series, five at least.

    >>> running_mean([0.0, 3.0, 0.0])
    [1.5, 1.0, 1.5]
    """
    reach = max(2, len(values) // 40)
    # Towards the ends a window narrows to half, so that the curve leans less there.
    ends = [min(i + 1, len(values) - i) for i in range(len(values))]
    reaches = [min(reach, max(reach // 2, end)) for end in ends]
    return [fmean(values[max(0, i - r) : i + r + 1]) for i, r in enumerate(reaches)]


def thinned(series: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    """At most a few hundred points: neighbours become their mean, so that a page stays small."""
    size = math.ceil(len(series) / _POINTS) or 1
    parts = [series[start : start + size] for start in range(0, len(series), size)]
    return [(fmean(s for s, _ in part), fmean(v for _, v in part)) for part in parts]


def _counted(rates: Sequence[float]) -> dict[float, int]:
    exact = Counter(rates)
    if len(exact) <= _FEW_RATES:
        return dict(sorted(exact.items()))
    return dict(sorted(Counter(round(rate, 1) for rate in rates).items()))


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    return figure, axes


def _svg(figure: Figure, salt: str) -> Markup:
    drawn = io.StringIO()
    # The salt keeps the ids of one page's figures apart, and equal from one report to the next.
    with mpl.rc_context({"svg.hashsalt": salt}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = drawn.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r'\1 aria-hidden="true"', text, count=1)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    return Markup(text)
