"""A study's figure: accuracy over rounds, and entropy below, a line and a band a variant."""

import io
from collections.abc import Iterator, Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from forethought.app.study.outcomes import Outcome, Series, smoothed
from forethought.evaluation.intervals import SeedMean, over_seeds

# Told apart also by who does not see all colours (Okabe and Ito), and in print by their strokes.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
STROKES = ("-", "--", "-.", ":")


def figure(outcomes: Mapping[str, Sequence[Outcome]], window: int, level: float) -> str:
    """The figure as SVG: means over seeds of the mean of the last `window` rounds.

    Bands are 95 % intervals over seeds, as in the table: there are none for one seed. A dotted line
    marks the accuracy `level`.
    """
    drawn = Figure(figsize=(7, 6), layout="constrained")
    above, below = drawn.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    seeds = len(next(iter(outcomes.values())))
    _panel(above, {name: [one.accuracy for one in runs] for name, runs in outcomes.items()}, window)
    _panel(below, {name: [one.entropy for one in runs] for name, runs in outcomes.items()}, window)
    above.axhline(level, color="grey", linewidth=0.8, linestyle=":")
    above.set_ylim(0.0, 1.0)
    above.set_ylabel("accuracy")
    above.legend(frameon=False, loc="lower right")
    bands = "bands: 95 % over seeds" if seeds > 1 else "one seed, so no bands"
    above.set_title(f"mean of the last {window} rounds; {bands}", fontsize=9)
    below.set_ylabel("entropy, nats a token")
    below.set_xlabel("rounds")
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "forethought", "svg.fonttype": "none"}):
        drawn.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def band(series: Sequence[Series], window: int) -> Iterator[tuple[int, SeedMean]]:
    """The mean over seeds after each round that all of them measured; rounds from 1 on."""
    by_round = [dict(smoothed(one, window)) for one in series]
    for at in sorted(set[int].intersection(*map(set, by_round))):
        yield at + 1, over_seeds([one[at] for one in by_round], least=0.0)


def _panel(axes: Axes, lines: Mapping[str, Sequence[Series]], window: int) -> None:
    highest = 0.0
    for place, (name, series) in enumerate(lines.items()):
        found = list(band(series, window))
        rounds = [at for at, _ in found]
        means = [mean.mean for _, mean in found]
        highest = max([highest, *(value for one in series for _, value in one)])
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(rounds, means, STROKES[place % len(STROKES)], color=colour, label=name)
        low = [mean.mean if mean.low is None else mean.low for _, mean in found]
        high = [mean.mean if mean.high is None else mean.high for _, mean in found]
        if low != high:
            axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
    # Two or three seeds can have bands far beyond anything that was measured.
    axes.set_ylim(0.0, 1.1 * highest or 1.0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="y", alpha=0.3)
