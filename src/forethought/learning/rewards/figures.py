"""A round's rewards in numbers: what each component came to, and how much of the whole it is."""

import math
from collections.abc import Sequence
from statistics import StatisticsError, correlation, fmean, pstdev

from forethought.learning.rewards.reward import Reward


def component_figures(rewards: Sequence[Reward], right: Sequence[bool]) -> dict[str, float]:
    """Each component's mean (under its own name), spread, share, and what it goes with.

    `right` says of each reward whether its answer was. Under `NAME/`: `share` of the sum of all
    components' absolute values, `spread` (population standard deviation), `nonzero` (share of
    attempts), and `with_outcome`, the correlation with being right, which is left out where either
    is constant. What is NaN leaves these, and its share is `not_measured`, told where there is any.
    """
    names = list(dict.fromkeys(name for reward in rewards for name in reward.components))
    columns = {name: [reward.components[name] for reward in rewards] for name in names}
    shares = shares_of_total(rewards)
    return {
        figure: value
        for name, column in columns.items()
        for figure, value in _figures(name, column, right, shares[name]).items()
    }


def shares_of_total(rewards: Sequence[Reward]) -> dict[str, float]:
    """Each component's share of all absolute values of a round; 0 where all are 0. NaN is left out.

    >>> one = Reward(components={"outcome": -1.0, "tool_bonus": 0.25}, per_turn=())
    >>> shares_of_total([one])
    {'outcome': 0.8, 'tool_bonus': 0.2}
    """
    sizes: dict[str, float] = {}
    for reward in rewards:
        for name, value in reward.components.items():
            known = 0.0 if math.isnan(value) else abs(value)
            sizes[name] = sizes.get(name, 0.0) + known
    whole = math.fsum(sizes.values())
    return {name: size / whole if whole else 0.0 for name, size in sizes.items()}


def mean_of_known(values: Sequence[float]) -> float:
    """The mean of what is not NaN; 0 where nothing is known."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else 0.0


def _figures(
    name: str, column: Sequence[float], right: Sequence[bool], share: float
) -> dict[str, float]:
    pairs = [
        (value, float(was_right))
        for value, was_right in zip(column, right, strict=True)
        if not math.isnan(value)
    ]
    lost = 1.0 - len(pairs) / len(column)
    missing = {f"{name}/not_measured": lost} if lost else {}
    if not pairs:
        return missing
    known = [value for value, _ in pairs]
    return {
        name: fmean(known),
        f"{name}/share": share,
        f"{name}/spread": pstdev(known),
        f"{name}/nonzero": fmean(value != 0 for value in known),
        **_together(name, pairs),
        **missing,
    }


def _together(name: str, pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    values, outcomes = zip(*pairs, strict=True)
    try:
        return {f"{name}/with_outcome": correlation(values, outcomes)}
    except StatisticsError:
        return {}
