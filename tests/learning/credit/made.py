"""Attempts of which only what their turns earned is told, and exact expectations over them."""

from itertools import product
from math import prod

from forethought.core.messages import Assistant, ToolReply, User
from forethought.core.trajectory import Episode, Finish, Stop, Trajectory, Turn
from forethought.learning.credit.attempts import Attempt
from forethought.learning.rewards import Reward
from scripted import MARKS, PROBLEM


def spoken(heard, tokens=1):
    """A turn that was answered with these words."""
    reply = ToolReply(call_id="c", name="python", text=heard)
    return Turn(
        message=Assistant(text="x"), finish=Finish.END_OF_TURN, replies=(reply,), tokens=tokens
    )


def attempt(*agents, last=0.0, group="g", tokens=1):
    """An attempt whose agents' turns earned these numbers, and which earned `last` at its end."""
    episode = Episode(
        id="e",
        problem=PROBLEM,
        verdict=MARKS["+"],
        trajectories=tuple(
            Trajectory(
                agent="a",
                opening=(User(text=PROBLEM.prompt),),
                turns=tuple(spoken(str(number), tokens) for number in range(len(each))),
                stop=Stop.ANSWERED,
            )
            for each in agents
        ),
    )
    per_turn = tuple(float(reward) for each in agents for reward in each)
    reward = Reward(components={"outcome": last, "turns": sum(per_turn)}, per_turn=per_turn)
    return Attempt(group=group, episode=episode, reward=reward)


def lengths_of_group(chances, size):
    """Every way in which a group's attempts may end, as numbers of turns, with its probability.

    An attempt goes on after turn k with probability `chances[k]`; after the last it ends.
    """
    ends = [
        prod(chances[:turn]) * (1.0 - chances[turn] if turn < len(chances) else 1.0)
        for turn in range(len(chances) + 1)
    ]
    for lengths in product(range(1, len(chances) + 2), repeat=size):
        yield lengths, prod(ends[length - 1] for length in lengths)


def expected_gradient(form, chances, size, earned):
    """By turn, the expected derivative by the logit of going on, of a group's mean objective.

    `earned(length)` is the (turn rewards, last) of an attempt of that length; `form` makes
    advantages of attempts.
    """
    gradient = [0.0] * len(chances)
    for lengths, probability in lengths_of_group(chances, size):
        attempts = [
            attempt(turns, last=last) for turns, last in (earned(length) for length in lengths)
        ]
        for length, advantages in zip(lengths, form(attempts), strict=True):
            for turn, advantage in enumerate(advantages[: len(chances)]):
                went_on = turn + 1 < length
                gradient[turn] += probability * advantage * (went_on - chances[turn]) / size
    return gradient


def true_gradient(chances, earned):
    """By turn, the derivative of the expected total reward by the logit of going on."""

    def value(chances):
        return sum(
            probability * (sum(earned(length)[0]) + earned(length)[1])
            for (length,), probability in lengths_of_group(chances, 1)
        )

    # The value is linear in each chance, so a difference is exact.
    found = []
    for turn, chance in enumerate(chances):
        on, off = list(chances), list(chances)
        on[turn], off[turn] = 1.0, 0.0
        found.append(chance * (1.0 - chance) * (value(on) - value(off)))
    return found
