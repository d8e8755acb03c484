"""How far each turn of an attempt went from the model as it was at first."""

import asyncio
from dataclasses import replace

import pytest
import torch

from forethought.core.messages import Assistant
from forethought.core.trajectory import Episode, Finish, Group, Stop, Tokens, Trajectory, Turn
from forethought.learning.divergence import divergences
from forethought.policy.local.crew import LocalCrew
from learning.rows import learner_of, row
from scripted import MARKS, PROBLEM
from tiny import local_model, network

LIMIT = 20.0


def spoken(*segments):
    """A trajectory with a turn for each run of sampled tokens in its segments."""
    marks = "|".join("".join(".s"[each] for each in one.sampled) for one in segments)
    turns = tuple(
        Turn(message=Assistant(text="x"), finish=Finish.END_OF_TURN, tokens=len(run))
        for run in marks.replace("|", ".").split(".")
        if run
    )
    return Trajectory(agent="a", opening=(), turns=turns, stop=Stop.ANSWERED, segments=segments)


def attempt(mark, *trajectories):
    return Episode(id=mark, problem=PROBLEM, verdict=MARKS[mark], trajectories=trajectories)


def by_hand(segment: Tokens, reference):
    """log pi - log pi_ref of each token of a row, the first of which nothing foretells."""
    with torch.no_grad():
        logits = reference(torch.tensor([segment.ids])).logits[0]
    told = logits[:-1].log_softmax(-1).gather(1, torch.tensor(segment.ids)[1:, None])[:, 0]
    return [0.0, *(torch.tensor(segment.logprobs)[1:] - told).clamp(-LIMIT, LIMIT).tolist()]


def test_each_turn_of_every_agent_has_its_own_nats_whichever_segment_it_is_in():
    long, short = row("..ss.s", first=1), row(".sss", first=9)
    again, mute = row("...ss", first=4), row("....", first=2)
    team = attempt("+", spoken(long, mute, again), spoken(short))
    lost, silent = attempt("?", spoken(long)), attempt("-", spoken(mute))
    model, reference = local_model(spread=0.1), network(seed=1)
    learner = learner_of(model, LocalCrew(model.network, reference))
    group = Group(id="g", problem=PROBLEM, episodes=(lost, team, silent))
    found = asyncio.run(divergences([group], learner))
    assert found.keys() == {"+", "-"}
    assert found["-"] == ()
    first, other, last = (by_hand(each, reference) for each in (long, again, short))
    expected = (sum(first[2:4]), first[5], sum(other[3:]), sum(last[1:]))
    assert found["+"] == pytest.approx(expected, abs=1e-5)
    assert min(map(abs, expected)) > 0.01


def test_turns_that_are_not_the_runs_of_a_row_are_refused():
    trajectory = spoken(row("..ss.s"))
    odd = attempt("+", replace(trajectory, turns=trajectory.turns[:1]))
    model = local_model()
    learner = learner_of(model, LocalCrew(model.network, network(seed=1)))
    with pytest.raises(ValueError, match=r"turns sampled \[2\] tokens.*runs of \[2, 1\]"):
        asyncio.run(divergences([Group(id="g", problem=PROBLEM, episodes=(odd,))], learner))
