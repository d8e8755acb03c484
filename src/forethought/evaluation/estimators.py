"""avg@k, pass@k, maj@k and cover: what n attempts at one problem say about it.

Each estimates the expectation over k attempts drawn without replacement from the n at hand.
Intervals are in `intervals`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import comb
from statistics import fmean


def average(n: int, c: int) -> float:
    """avg@k: the share of n attempts that are right, c of them. It estimates pass@1."""
    return pass_at(1, n, c)


def pass_at(k: int, n: int, c: int) -> float:
    """pass@k: the chance that k of the n attempts hold one of the c right ones.

    Unbiased: 1 - C(n-c, k) / C(n, k) (arXiv 2107.03374, equation 1), computed exactly. Raises
    ValueError when n < k: fewer attempts than k cannot say.

    >>> pass_at(5, n=10, c=3)
    0.9166666666666666
    """
    if not (1 <= k <= n and 0 <= c <= n):
        raise ValueError(f"pass@k needs 1 <= k <= n and 0 <= c <= n, got k={k}, n={n}, c={c}")
    draws = comb(n, k)
    return (draws - comb(n - c, k)) / draws


def majority_at(k: int, answers: Sequence[str | None], right: Sequence[bool]) -> float:
    """maj@k: the chance that the commonest answer of k attempts is right, computed exactly.

    Equal answers must be equal strings; `right` says how each attempt was graded. Tied answers
    share the credit, as if the tie were broken at random. An attempt without an answer (None)
    fills a place among the k and can never win. Raises ValueError when k is not in 1..n.

    >>> majority_at(2, ["4", "4", "5"], [True, True, False])
    0.6666666666666666
    """
    if not 1 <= k <= len(answers):
        raise ValueError(f"maj@k needs 1 <= k <= n, got k={k}, n={len(answers)}")
    graded: defaultdict[str, list[bool]] = defaultdict(list)
    for answer, is_right in zip(answers, right, strict=True):
        if answer is not None:
            graded[answer].append(is_right)
    votes = Counter({answer: len(grades) for answer, grades in graded.items()})
    blank = len(answers) - votes.total()
    wins = Fraction(0)
    for answer, grades in graded.items():
        if any(grades):
            rivals = [count for other, count in votes.items() if other != answer]
            share = Fraction(sum(grades), len(grades))
            wins += share * _won_draws(k, votes[answer], rivals, blank)
    return float(wins / comb(len(answers), k))


def cover(rates: Iterable[float], threshold: float) -> float:
    """Cover@threshold: the share of problems with at least this pass rate (arXiv 2510.08325)."""
    return fmean(rate >= threshold for rate in rates)


def _won_draws(k: int, own: int, rivals: Sequence[int], blank: int) -> Fraction:
    """In how many draws of k an answer with `own` votes wins; a draw tied by m counts as 1/m."""
    won = Fraction(0)
    for votes in range(1, min(own, k) + 1):
        for (drawn, ties), ways in _rival_draws(k - votes, votes, rivals, blank).items():
            fill = comb(blank, k - votes - drawn)
            won += Fraction(comb(own, votes) * ways * fill, ties + 1)
    return won


def _rival_draws(
    places: int, most: int, rivals: Sequence[int], blank: int
) -> dict[tuple[int, int], int]:
    """Ways to draw from rivals, at most `most` votes each: (drawn, rivals with `most`) -> ways.

    Draws that even the rivals still to come and the blanks could not fill up are left out.
    """
    table = {(0, 0): 1}
    to_come = sum(min(count, most) for count in rivals) + blank
    for count in rivals:
        to_come -= min(count, most)
        longer: defaultdict[tuple[int, int], int] = defaultdict(int)
        for (drawn, ties), ways in table.items():
            open_places = places - drawn
            for taken in range(max(0, open_places - to_come), min(count, most, open_places) + 1):
                longer[drawn + taken, ties + (taken == most)] += ways * comb(count, taken)
        table = dict(longer)
    return table
