import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.agents.groups import (
    Waves,
    Window,
    attempt_groups,
    concurrently,
    refuse_unmeasured,
)
from forethought.agents.tool_agent import ToolAgent
from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.core.randomness import RolloutKey
from forethought.core.trajectory import Group, Stop
from forethought.core.verdict import Verdict
from forethought.learning.lessons import score
from forethought.learning.rewards import RewardSettings
from scripted import (
    BrokenGrader,
    EchoTools,
    ExactGrader,
    ScriptedPolicy,
    ScriptedSolver,
    call,
    episode,
    graded,
    says,
)

FOUR = Waves(4)
PROBLEMS = [Problem(id=f"p{n}", prompt="6 * 7?", answer="42") for n in range(3)]


def right(problem, key):
    return Verdict.right(answer="42")


def attempts(solver, problems=PROBLEMS, *, size=2, flow=FOUR, progress=None):
    return asyncio.run(
        attempt_groups(
            solver,
            problems,
            size=size,
            seed=5,
            stage="rl/12",
            flow=flow,
            progress=progress,
        )
    )


@dataclass
class CountingSolver:
    """Notes which attempts run beside each other; later problems end first."""

    running: set[str] = field(default_factory=set)
    most: int = 0
    seen_beside: dict[str, frozenset[str]] = field(default_factory=dict)

    async def attempt(self, problem: Problem, key: RolloutKey):
        self.running.add(key.episode)
        self.most = max(self.most, len(self.running))
        for _ in range(20 - int(problem.id[1:])):
            await asyncio.sleep(0)
        self.seen_beside[key.episode] = frozenset(self.running)
        self.running.remove(key.episode)
        return episode(problem, id=key.episode)


def test_every_problem_becomes_a_group_of_its_own_attempts_in_order():
    groups = attempts(CountingSolver())
    assert [group.id for group in groups] == ["rl/12/0/p0", "rl/12/1/p1", "rl/12/2/p2"]
    assert [group.problem for group in groups] == PROBLEMS
    for group in groups:
        assert [one.id for one in group.episodes] == [f"{group.id}/0", f"{group.id}/1"]


def test_every_attempt_has_the_key_that_its_place_gives_it():
    solver = ScriptedSolver(right)
    attempts(solver, PROBLEMS[:1])
    assert solver.attempted == [
        RolloutKey(seed=5, group="rl/12/0/p0", rollout=0),
        RolloutKey(seed=5, group="rl/12/0/p0", rollout=1),
    ]


def test_one_problem_drawn_twice_is_two_groups():
    first, second = attempts(ScriptedSolver(right), [PROBLEMS[0], PROBLEMS[0]])
    assert first.id != second.id


@given(st.integers(0, 6), st.integers(1, 5), st.integers(1, 12), st.sampled_from([Waves, Window]))
def test_no_more_attempts_than_allowed_are_open_and_none_is_lost(count, size, at_once, kind):
    solver = CountingSolver()
    problems = [Problem(id=f"p{n}", prompt="?", answer="42") for n in range(count)]
    groups = attempts(solver, problems, size=size, flow=kind(at_once))
    assert solver.most <= at_once
    assert [len(group.episodes) for group in groups] == [size] * count
    assert len({one.id for group in groups for one in group.episodes}) == size * count


def test_a_wave_ends_before_the_next_begins_and_holds_whole_groups():
    solver = CountingSolver()
    attempts(solver, size=2, flow=Waves(5))
    waves = {"p0": {"p0", "p1"}, "p1": {"p0", "p1"}, "p2": {"p2"}}
    for name, beside in solver.seen_beside.items():
        wave = waves[name.split("/")[-2]]
        assert {other.split("/")[-2] for other in beside} <= wave
    assert solver.most == 4


def test_in_a_window_an_attempt_begins_as_soon_as_another_ends():
    solver = CountingSolver()
    attempts(solver, size=2, flow=Window(4))
    assert solver.most == 4
    # The last problem's attempts began beside the ones before them, which no wave of 4 allows.
    beside = solver.seen_beside["rl/12/2/p2/0"] | solver.seen_beside["rl/12/1/p1/0"]
    assert {"rl/12/1/p1/0", "rl/12/2/p2/0"} <= beside


def test_progress_hears_of_every_episode_once():
    heard = []
    groups = attempts(CountingSolver(), progress=lambda one: heard.append(one.id))
    assert sorted(heard) == sorted(one.id for group in groups for one in group.episodes)


def test_one_broken_attempt_leaves_the_others_measured():
    def script(key):
        return [OSError("engine gone") if key.rollout == 1 else says("42")]

    agent = ToolAgent(
        policy=ScriptedPolicy(script),
        tools=EchoTools(),
        grader=BrokenGrader(OSError("no grader")),
    )
    (group,) = attempts(agent, PROBLEMS[:1], size=3)
    whys = [one.verdict.why for one in group.episodes]
    assert [("engine gone" in why, "no grader" in why) for why in whys] == [
        (False, True),
        (True, False),
        (False, True),
    ]


def test_a_rollout_that_breaks_after_its_first_call_is_lost_alone_with_its_traceback():
    call_then = [says("", call())]

    def script(key):
        return [*call_then, KeyError("x") if key.rollout == 5 else says("42")]

    async def run():
        agent = ToolAgent(policy=ScriptedPolicy(script), tools=EchoTools(), grader=ExactGrader())
        groups = await attempt_groups(agent, PROBLEMS[:1], size=8, seed=0, stage="s", flow=Waves(8))
        return groups, asyncio.all_tasks() - {asyncio.current_task()}

    (group,), left_running = asyncio.run(run())
    assert left_running == set()
    assert [one.right for one in group.episodes] == [n != 5 for n in range(8)]
    lost = group.episodes[5]
    assert lost.verdict.why == "policy: KeyError: 'x'"
    (trajectory,) = lost.trajectories
    assert trajectory.stop is Stop.FAILED
    assert len(trajectory.turns) == 1
    assert "Traceback (most recent call last)" in trajectory.error
    assert "\nKeyError: 'x'\n" in trajectory.error
    assert trajectory.error.splitlines()[-1].endswith("policy: KeyError: 'x'")
    assert "CancelledError" not in trajectory.error
    assert group.measured == tuple(one for one in group.episodes if one is not lost)
    (lesson,) = score([group], RewardSettings())
    assert len(lesson.graded) == len(lesson.advantages) == 7
    refuse_unmeasured([group], 0.125, "rl.limits.not_measured")
    words = r"rl\.limits\.not_measured = 0; 1 of them: policy: KeyErr"
    with pytest.raises(RecipeError, match=words):
        refuse_unmeasured([group], 0, "rl.limits.not_measured")


def test_a_bug_in_one_attempt_rises_as_itself_and_cancels_the_rest():
    cancelled = []

    @dataclass
    class Buggy:
        async def attempt(self, problem, key):
            if key.rollout == 1:
                raise KeyError("a bug")
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(key.rollout)

    with pytest.raises(KeyError, match="a bug"):
        attempts(Buggy(), PROBLEMS[:1], size=3)
    assert sorted(cancelled) == [0, 2]


def test_an_error_of_the_recipe_rises_as_itself():
    def verdict(problem, key):
        return RecipeError("policy.model is empty: name one")

    with pytest.raises(RecipeError, match=r"policy\.model"):
        attempts(ScriptedSolver(verdict))


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": -1}])
def test_sizes_below_one_are_refused(wrong):
    with pytest.raises(RecipeError, match="set it to 1 or more"):
        attempts(ScriptedSolver(right), **wrong)


def test_concurrent_results_keep_the_order_of_the_work():
    async def slow(n):
        for _ in range(n):
            await asyncio.sleep(0)
        return n

    async def run():
        return await concurrently(slow(n) for n in (3, 0, 2))

    assert asyncio.run(run()) == [3, 0, 2]


def test_more_unmeasured_attempts_than_the_limit_are_refused_with_the_commonest_reason():
    lost = (
        *(episode(verdict=Verdict.not_measured("no sandbox"), id=f"a{n}") for n in range(2)),
        episode(verdict=Verdict.not_measured("no memory"), id="b"),
    )
    groups = [graded("p", "+-+-+"), Group(id="g", problem=PROBLEMS[0], episodes=lost)]
    refuse_unmeasured(groups, 3 / 8, "the limit")
    words = r"3 of 8 attempts \(38%\) .* more than the limit = 0\.25; 2 of them: no sandbox\."
    with pytest.raises(RecipeError, match=words):
        refuse_unmeasured(groups, 0.25, "the limit")
