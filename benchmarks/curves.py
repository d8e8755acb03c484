"""Draw the RL curves of one or more runs into one SVG.

python benchmarks/curves.py runs/study/seed0 runs/study/seed1 --out docs/figures/study.svg
"""

import argparse
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from forethought.journal.run import Run

PANELS = {
    "accuracy": "accuracy of the attempts",
    "tool/rate": "share of attempts with a call",
    "reward/mean": "mean reward",
    "entropy": "entropy, nats a token",
}


def smoothed(values: list[float], window: int) -> list[float]:
    """Trailing mean over `window` rounds."""
    return [
        sum(values[max(0, at - window + 1) : at + 1]) / min(window, at + 1)
        for at in range(len(values))
    ]


def main() -> int:
    """Draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--window", type=int, default=10, help="rounds of the trailing mean")
    options = parser.parse_args()
    figure, axes = plt.subplots(1, len(PANELS), figsize=(12, 2.8), layout="constrained")
    for path in options.runs:
        with Run.read(path) as run:
            for axis, (metric, title) in zip(axes, PANELS.items(), strict=True):
                series = run.series("rl", metric)
                steps, values = [step for step, _ in series], [value for _, value in series]
                (line,) = axis.plot(steps, values, alpha=0.2, linewidth=0.8)
                mean = smoothed(values, options.window)
                axis.plot(steps, mean, color=line.get_color(), label=path.name)
                axis.set_title(title, fontsize=9)
                axis.set_xlabel("round", fontsize=8)
                axis.tick_params(labelsize=8)
    axes[0].legend(fontsize=8, frameon=False)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    mpl.rcParams["svg.hashsalt"] = "forethought"
    figure.savefig(options.out, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
