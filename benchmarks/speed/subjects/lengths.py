"""How long attempts were, as figures: the same for every subject, without torch."""

from collections.abc import Sequence
from statistics import fmean

from benchmarks.speed.figures import quantiles

SHARES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}


def lengths(
    tokens: Sequence[int], limit: int, calls: Sequence[int] | None = None
) -> dict[str, float]:
    """Quantiles of the generated tokens of an attempt, the share at the limit, and calls."""
    found = dict(zip(SHARES, quantiles(tokens, list(SHARES.values())), strict=True))
    figures = {f"tokens_{name}": float(value) for name, value in found.items()}
    figures |= {
        "tokens_mean": fmean(tokens),
        "at_limit": fmean(count >= limit for count in tokens),
    }
    if calls is not None:
        figures |= {
            "calls_mean": fmean(calls),
            "called": fmean(count > 0 for count in calls),
        }
    return figures
