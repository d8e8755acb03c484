"""Which groups and attempts are trained on, which are only compared with. All unless asked."""

from collections.abc import Sequence
from itertools import chain
from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from forethought.core.errors import RecipeError
from forethought.core.settings import Settings
from forethought.core.trajectory import Episode, Finish, Stop, Trajectory
from forethought.learning.advantage import varies
from forethought.learning.rewards.calls import FAILURES

ANSWER = r"\boxed"
"""What begins an answer in a message."""

NO_CALLS = 0.5
"""The penalty of a correct attempt that made no call: between clean and broken ones."""


class SelectionSettings(Settings):
    """Which groups are trained, and which of their attempts."""

    draws: PositiveInt = 1
    """Draws of problems in a round at most, until enough groups have right attempts and others; 1
    takes one draw as it comes. 10 is usual (DAPO)."""
    uninformative: Literal["count", "leave_out"] = "count"
    """Groups whose rewards are all equal carry no gradient: do their tokens count in the loss's
    denominators (as in the paper), or are they left out (as in DAPO's filter)?"""
    mask_void_turns: bool = False
    """Leave attempts with a void turn, neither a call that can run nor an answer, out of the loss;
    the others are still compared with them."""
    mask_truncated: bool = False
    """Leave attempts that a limit of turns, tokens, context or time cut off out of the loss; the
    others are still compared with them."""
    keep: int = Field(default=0, ge=0)
    """Attempts of each group that are compared and trained, right ones with clean calls first;
    0: all."""
    keep_right: int = Field(default=2, ge=0)
    """Of those, right attempts at least, if there are as many."""
    keep_wrong: int = Field(default=2, ge=0)
    """Of those, wrong attempts at least, if there are as many."""

    @model_validator(mode="after")
    def _refuse_what_does_not_fit(self) -> Self:
        least = self.keep_right + self.keep_wrong
        if self.keep and self.keep < max(2, least):
            raise RecipeError(
                f"rl.selection.keep = {self.keep}: two attempts are the fewest to compare, and "
                f"keep_right and keep_wrong ask for {least}; raise keep or lower those"
            )
        if self.keep and max(self.keep_right, self.keep_wrong) >= self.keep:
            raise RecipeError(
                f"rl.selection.keep = {self.keep}: keep_right = {self.keep_right} and keep_wrong = "
                f"{self.keep_wrong} leave room for one kind alone, which has nothing to be "
                "compared with; lower them or raise keep"
            )
        if not self.keep and (self.keep_right, self.keep_wrong) != (2, 2):
            raise RecipeError(
                f"rl.selection.keep_right = {self.keep_right}, selection.keep_wrong = "
                f"{self.keep_wrong}: all attempts are kept; set selection.keep or remove them"
            )
        return self


def void_turns(episode: Episode) -> tuple[int, ...]:
    """The numbers of the turns, counted through all trajectories, that are void (2509.02479).

    A turn is void that has no call that can run and is no final answer: the last message of an
    agent that stopped of its own accord, where an answer was read or the episode is right.
    """
    answered = episode.right or episode.verdict.answer is not None
    voids = chain.from_iterable(_voids(trajectory, answered) for trajectory in episode.trajectories)
    return tuple(number for number, void in enumerate(voids) if void)


def is_void(episode: Episode) -> bool:
    """Whether an attempt has a void turn."""
    return bool(void_turns(episode))


def is_masked(episode: Episode, settings: SelectionSettings) -> bool:
    """Whether an attempt is compared and not trained."""
    void = settings.mask_void_turns and is_void(episode)
    return void or (settings.mask_truncated and episode.truncated)


def _voids(trajectory: Trajectory, answered: bool) -> list[bool]:
    last = len(trajectory.turns) - 1
    return [
        all(call.fault for call in turn.message.calls)
        and not (
            answered
            and number == last
            and trajectory.stop is Stop.ANSWERED
            and turn.finish is Finish.END_OF_TURN
        )
        for number, turn in enumerate(trajectory.turns)
    ]


def select(
    episodes: Sequence[Episode], rewards: Sequence[float], settings: SelectionSettings
) -> list[int]:
    """The places of the attempts of one group to keep (resample on correct, 2508.20722).

    Right attempts with the smallest penalty, wrong ones in the order in which they were made,
    which is no order of merit. None where all rewards are equal; all where there are no more than
    `keep`.
    """
    places = list(range(len(episodes)))
    if not settings.keep or len(places) <= settings.keep:
        return places
    if not varies(rewards):
        return []
    right = sorted(
        (place for place in places if episodes[place].right),
        key=lambda place: penalty(episodes[place]),
    )
    wrong = [place for place in places if not episodes[place].right]
    kept = quota(len(right), len(wrong), settings)
    return sorted(right[:kept] + wrong[: settings.keep - kept])


def quota(right: int, wrong: int, settings: SelectionSettings) -> int:
    """How many right attempts are kept of so many right and wrong ones: in proportion, floored.

    >>> quota(5, 3, SelectionSettings(keep=4))
    2
    """
    least = max(min(right, settings.keep_right), settings.keep - wrong)
    most = min(right, settings.keep - min(wrong, settings.keep_wrong))
    return min(most, max(least, round(settings.keep * right / (right + wrong))))


def penalty(episode: Episode) -> float:
    """How unclean an attempt is: the share of its calls that failed, and answers repeated.

    A reply that was cut short, or that broken infrastructure gave, is no failure of its call.
    """
    turns = [turn for trajectory in episode.trajectories for turn in trajectory.turns]
    replies = [reply for turn in turns for reply in turn.replies]
    errors = sum(reply.status in FAILURES for reply in replies)
    answers = sum(turn.message.text.count(ANSWER) for turn in turns)
    return error_penalty(errors, len(replies)) + answer_penalty(answers, len(turns))


def error_penalty(errors: int, calls: int) -> float:
    """The share of calls that failed.

    >>> error_penalty(1, 4), error_penalty(0, 0)
    (0.25, 0.5)
    """
    return errors / calls if calls else NO_CALLS


def answer_penalty(answers: int, turns: int) -> float:
    """1 without an answer; otherwise the answers after the first, for each turn, at most 1.

    >>> answer_penalty(0, 3), answer_penalty(3, 4)
    (1.0, 0.5)
    """
    return min(1.0, (answers - 1) / max(1, turns)) if answers else 1.0
