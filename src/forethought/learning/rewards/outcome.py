"""What the answer earns, what calls add to it, and how far apart right and wrong are."""

from forethought.core.trajectory import Episode
from forethought.learning.rewards.calls import fresh_successes
from forethought.learning.rewards.settings import RewardSettings

INERT_CALLS = -1
"""Calls that the released recipe counts in every attempt: (turns - 2) / 2, with 0 turns seen."""

READABLE = 0.2
"""What a wrong answer of a search agent earns for being one (2505.11821, section 5.2)."""


def has_answer(episode: Episode) -> bool:
    """Whether a final answer could be read."""
    return episode.right or episode.verdict.answer is not None


def outcome(episode: Episode, settings: RewardSettings) -> float:
    """1 for a right answer, -1 for a wrong one, save what the variant `search` says of that."""
    if settings.variant == "search":
        return search_outcome(exact=episode.right, readable=has_answer(episode))
    return 1.0 if episode.right else -1.0


def search_outcome(*, exact: bool, readable: bool) -> float:
    """The outcome reward of a search agent (2505.11821, section 5.2).

    >>> [search_outcome(exact=exact, readable=True) for exact in (True, False)]
    [1.0, 0.2]
    """
    if not readable:
        return -1.0
    return 1.0 if exact else READABLE


def bonus_by_turn(episode: Episode, settings: RewardSettings) -> tuple[float, ...]:
    """What the calls of each turn add, earlier turns first, until the room for it is used up."""
    room = bonus_room(settings, right=episode.right)
    earned: list[float] = []
    for count in fresh_successes(episode):
        share = min(count * settings.tool_bonus, max(0.0, room))
        room -= share
        earned.append(share)
    return tuple(earned)


def tool_bonus(episode: Episode, by_turn: tuple[float, ...], settings: RewardSettings) -> float:
    """What calls add altogether."""
    if settings.variant == "released" and not episode.right:
        return INERT_CALLS * settings.tool_bonus
    return sum(by_turn)


def bonus_room(settings: RewardSettings, *, right: bool) -> float:
    """The most that calls can add to a right or to a wrong answer."""
    if settings.variant in ("outcome", "released", "search"):
        return 0.0
    most = settings.bonus_cap * settings.tool_bonus
    if right:
        return most if settings.variant == "paper" else 0.0
    return min(most, settings.wrong_ceiling + 1.0)


def partial_credit(episode: Episode, settings: RewardSettings) -> float:
    """What a wrong answer earns by the share of its tests that it passed."""
    return 0.0 if episode.right else settings.partial * episode.verdict.score


def outcome_gap(settings: RewardSettings) -> float:
    """What the worst right answer earns over the best wrong one, process parts aside.

    0 or less where a wrong answer can already earn as much as a right one.

    >>> round(outcome_gap(RewardSettings()), 9)
    1.6
    """
    least_right = 1.0 - (settings.overlong_factor if settings.overlong_buffer else 0.0)
    inert = INERT_CALLS * settings.tool_bonus if settings.variant == "released" else 0.0
    wrong = READABLE if settings.variant == "search" else -1.0
    return least_right - (wrong + inert + bonus_room(settings, right=False) + settings.partial)
