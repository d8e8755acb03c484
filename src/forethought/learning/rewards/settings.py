"""What a recipe may say about rewards. A weight is a size: its name says what it does."""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from forethought.core.errors import RecipeError
from forethought.core.settings import Settings, Weight
from forethought.policy.remote import RemoteSettings

SETTLED = ("retrieval", "well_formed", "malformed", "steps", "call_cost", "parse")
"""The parts and penalties of which a turn's share is known when the turn ends."""

OF_TURNS = (*SETTLED, "execution", "exception")
"""The parts and penalties that single turns earn or lose. Of the last two, later turns decide."""


class PenaltySettings(Settings):
    """What an attempt loses, apart from being wrong and too long. 0 turns a penalty off."""

    format: Weight = 0.0
    """Lost by an attempt in which no final answer could be read."""
    parse: Weight = 0.0
    """Lost for each call that could not be parsed."""
    exception: Weight = 0.0
    """Lost for each call that failed and was not followed by a changed one."""
    thinking: Weight = 0.0
    """The full penalty for going on too long without a tool; it grows from 0 at `thinking_limit`
    to its full size at twice that."""
    thinking_limit: int = Field(default=0, ge=0)
    """Sampled tokens in a row, without a tool that runs between them, that cost nothing."""

    divergence: Weight = 0.0
    """Lost for each nat by which an attempt's tokens were likelier to the policy than to the model
    as it was at first: a KL penalty in the reward, paid by each turn or token where credit is by
    turn or token. `process.most` does not bound it."""

    @model_validator(mode="after")
    def _knows_its_limit(self) -> Self:
        if self.thinking and not self.thinking_limit:
            raise RecipeError(
                f"rl.reward.penalties.thinking = {self.thinking}: there is no limit to pass; set "
                "rl.reward.penalties.thinking_limit to some tokens, or thinking to 0"
            )
        return self


class ProcessSettings(Settings):
    """What the way to an answer earns: each part by its weight, all of them bounded together."""

    most: Weight = 0.25
    """All process parts, penalties and judgements of an attempt together, but for
    `penalties.divergence`, move its reward by at most this share of what lies between the best
    wrong answer and the worst right one. From 0.5 on, a wrong answer can come to earn as much as a
    right one."""
    execution: Weight = 0.0
    """Times the share of calls that went well, of those that were run."""
    retrieval: Weight = 0.0
    """Earned by a turn in which a new call, without the answer in it, brings the answer."""
    well_formed: Weight = 0.0
    """Earned by a turn with calls, if all of them could be parsed."""
    malformed: Weight = 0.0
    """Lost by a turn with a call that could not be parsed."""
    steps: Weight = 0.0
    """Earned by a turn whose message is the first to give a named part of the problem a value, if
    that is right, over the number of parts."""
    call_cost: Weight = 0.0
    """Lost by a turn with calls, times the calls that were made up to then."""
    exploration: Weight = 0.0
    """Earned by an answer, over the square root of how many attempts of the group gave it."""
    coverage: Weight = 0.0
    """Times the share of the problem's named parts for which the final message gives a value."""
    verification: Weight = 0.0
    """Times the share of the problem's named parts that the final message has right."""


class JudgeSettings(Settings):
    """A model behind an endpoint that scores every turn: one request a trajectory."""

    endpoint: RemoteSettings
    """Where the judge is, and how many requests it is sent at once."""
    weight: Weight = 0.1
    """Times a turn's score, from -1 to 1."""
    rubric: str = ""
    """What the judge is told instead of the rubric that is built in; it must ask for one line a
    turn, such as `Turn 1: 0.5`."""
    max_tokens: PositiveInt = 2048
    """What the judge may say."""
    shown_characters: int = Field(default=2000, ge=100)
    """Characters of one message, call or reply that the judge is shown; the middle is left out."""


class RewardSettings(Settings):
    """What an attempt earns: for its answer, for its calls, and for running too long."""

    variant: Literal["gated", "paper", "released", "outcome", "search"] = "gated"
    """gated: calls soften a wrong answer; paper: they also add to a correct one; released: as the
    published recipe runs, every wrong answer alike; outcome: the answer alone; search: a wrong
    answer that could be read earns 0.2."""
    tool_bonus: Weight = 0.1
    """What one successful, non-duplicate call earns."""
    bonus_cap: int = Field(default=4, ge=0)
    """Calls that earn at most."""
    wrong_ceiling: float = Field(default=-0.6, ge=-1, le=1)
    """A wrong answer earns no more than this, whatever its calls."""
    partial: Weight = 0.0
    """Times the partial credit of a wrong answer: for a program, its share of tests passed."""
    overlong_buffer: int = Field(default=0, ge=0)
    """Tokens before the limit in which the penalty grows from 0 to its full size; 0: no penalty."""
    overlong_limit: int = Field(default=0, ge=0)
    """Length in tokens at which the penalty is full."""
    overlong_factor: Weight = 1.0
    """The full penalty."""
    length_basis: Literal["policy_tokens", "all_tokens"] = "policy_tokens"
    """Whether what tools replied counts as length."""
    penalties: PenaltySettings = PenaltySettings()
    """What an attempt loses besides."""
    process: ProcessSettings = ProcessSettings()
    """What the way to an answer earns."""
    judge: JudgeSettings | None = None
    """Who scores turns, if anybody does."""

    @property
    def turns_earn(self) -> bool:
        """Whether turns earn or lose something beside the bonus for calls, and all of it is settled
        when they end."""
        weights = self.process.model_dump() | self.penalties.model_dump()
        judged = self.judge is not None and self.judge.weight > 0
        paid = {name for name in OF_TURNS if weights[name]} if self.process.most else set[str]()
        return bool(paid) and paid <= {*SETTLED} and not judged

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.overlong_buffer > self.overlong_limit:
            raise RecipeError(
                f"rl.reward.overlong_buffer = {self.overlong_buffer}: it lies within the "
                f"limit, and rl.reward.overlong_limit is {self.overlong_limit}; raise the limit or "
                "shrink the buffer (0 turns the penalty off)"
            )
        return self
