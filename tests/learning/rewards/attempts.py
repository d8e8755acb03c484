"""Attempts written by hand, for tests of what they earn."""

import json

from forethought.core.messages import Assistant, ToolCall, ToolReply, ToolStatus, User
from forethought.core.problem import Problem
from forethought.core.trajectory import Episode, Finish, Group, Stop, Trajectory, Turn
from forethought.core.verdict import Verdict
from forethought.learning.rewards import RewardSettings, score_episode

PROBLEM = Problem(id="gcd-1", prompt="gcd of 8 and 12?", answer="4")


def turn(*codes, status=ToolStatus.OK, name="python", tokens=0, reply="4", text="", fault=""):
    """A turn that calls a tool with each code, or with arguments that are written out."""
    arguments = [code if code.startswith("{") else json.dumps({"code": code}) for code in codes]
    calls = tuple(
        ToolCall(id=f"call_{number}", name=name, arguments=words, fault=fault)
        for number, words in enumerate(arguments)
    )
    replies = tuple(
        ToolReply(call_id=call.id, name=name, text=reply, status=status) for call in calls
    )
    message = Assistant(text=text, calls=calls)
    return Turn(message=message, finish=Finish.END_OF_TURN, replies=replies, tokens=tokens)


def broken(*codes):
    """A turn whose calls could not be parsed."""
    return turn(*codes, status=ToolStatus.MODEL_ERROR, fault="not JSON")


def failed(*codes):
    """A turn whose calls raised an exception."""
    return turn(*codes, status=ToolStatus.MODEL_ERROR, reply="NameError")


def trajectory(*turns, segments=()):
    """One agent's side."""
    opening = (User(text=PROBLEM.prompt),)
    return Trajectory(
        agent="a", opening=opening, turns=turns, stop=Stop.ANSWERED, segments=segments
    )


def verdict_of(right, answer):
    """A verdict without partial credit."""
    return Verdict.right(answer) if right else Verdict.wrong(answer)


def episode(*turns, right=False, answer=None, problem=PROBLEM, number=0):
    """An attempt by one agent."""
    return Episode(
        id=f"{problem.id}/{number}",
        problem=problem,
        trajectories=(trajectory(*turns),),
        verdict=verdict_of(right, answer),
    )


def team(*sides, right=False):
    """An attempt by several agents, each with its turns."""
    return Episode(
        id="gcd-1/0",
        problem=PROBLEM,
        trajectories=tuple(trajectory(*side) for side in sides),
        verdict=verdict_of(right, None),
    )


def group(*episodes):
    """Attempts at one problem."""
    return Group(id="g", problem=PROBLEM, episodes=episodes)


def calls(count, tokens=0):
    """Turns with one new call each, and a last one without."""
    return [turn(f"print({number})") for number in range(count)] + [turn(tokens=tokens)]


def reward(attempt, **settings):
    """What an attempt earns under these settings."""
    return score_episode(attempt, RewardSettings.model_validate(settings))


def total(*turns, right=False, **settings):
    """The total of an attempt with these turns."""
    return reward(episode(*turns, right=right), **settings).total
