r"""Faults of rewards that were seen in other systems, each on the smallest case that shows it."""

import asyncio
from dataclasses import replace

from pytest import approx, mark, raises

from forethought.agents.groups import Waves, attempt_groups, refuse_unmeasured
from forethought.agents.tool_agent import ToolAgent
from forethought.core.errors import RecipeError
from forethought.core.messages import ToolStatus
from forethought.core.problem import Problem
from forethought.core.trajectory import Stop, Tokens
from forethought.core.verdict import Verdict
from forethought.learning.advantage import AdvantageSettings
from forethought.learning.credit.selection import SelectionSettings
from forethought.learning.credit.settings import CreditSettings
from forethought.learning.lessons import assemble, score
from forethought.learning.metrics import summarise
from forethought.learning.rewards import RewardSettings, overlong_penalty, response_length
from forethought.tasks.graders import BoxedGrader
from learning.rewards.attempts import calls, episode, group, reward, trajectory, turn
from scripted import PROBLEM, EchoTools, ScriptedPolicy, says


class FailingGrader:
    """Grades the letters it is told in turn; "!" is a connection that breaks."""

    def __init__(self, letters):
        self.letters = list(letters)

    async def grade(self, problem, trajectory):
        letter = self.letters.pop(0)
        if letter == "!":
            raise ConnectionError("no route to the grader")
        return Verdict.right() if letter == "+" else Verdict.wrong()


def graded_by(letters):
    agent = ToolAgent(
        policy=ScriptedPolicy([says("42", tokens=2)]),
        tools=EchoTools(),
        grader=FailingGrader(letters),
    )
    return asyncio.run(
        attempt_groups(agent, [PROBLEM], size=len(letters), seed=0, stage="rl/0", flow=Waves(1))
    )


def test_an_attempt_whose_grading_broke_is_left_out_and_not_scored_as_wrong():
    groups = graded_by("+-!+")
    broken = groups[0].episodes[2]
    assert (broken.measured, "ConnectionError" in broken.verdict.why) == (False, True)
    whole, found = CreditSettings(advantage=AdvantageSettings(kind="dr_grpo")), summarise(groups)
    (lesson,) = score(groups, RewardSettings(variant="outcome"), whole)
    assert [each.reward.total for each in lesson.graded] == [1.0, -1.0, 1.0]
    assert lesson.advantages == approx((2 / 3, -4 / 3, 2 / 3))
    assert assemble([lesson]).ids_BT.shape[0] == 3
    assert (found["attempts/not_measured"], found["accuracy"]) == (0.25, approx(2 / 3))
    with raises(RecipeError, match=r"rl\.limits\.not_measured"):
        refuse_unmeasured(groups, 0.1, "rl.limits.not_measured")


def stretch(mask):
    sampled = tuple(bool(each) for each in mask)
    ids = tuple(range(len(mask)))
    return Tokens(ids=ids, sampled=sampled, logprobs=(0.0,) * len(mask))


def test_the_text_of_a_tool_is_no_part_of_what_a_model_said_and_padding_of_neither():
    row = stretch([0, 0, 1, 1, 0, 0, 0, 1, 1, 1])
    turns = turn("print(1)", tokens=2), turn(tokens=3)
    attempt = type(episode())(
        id="p/0",
        problem=PROBLEM,
        trajectories=(trajectory(*turns, segments=(row,)),),
        verdict=Verdict.right(),
    )
    assert response_length(attempt, "policy_tokens") == 5
    assert response_length(attempt, "all_tokens") == 8
    basis = {"overlong_limit": 8, "overlong_buffer": 4}
    assert reward(attempt, **basis).components["overlong"] == -0.25
    assert reward(attempt, **basis, length_basis="all_tokens").components["overlong"] == -1.0
    assert summarise([group(attempt)])["tokens/mean"] == 5


def test_the_penalty_for_length_is_that_of_the_formula_at_its_corners():
    found = [overlong_penalty(length, limit=20, buffer=8) for length in (12, 13, 20, 21)]
    assert found == [0.0, -0.125, -1.0, -1.0]


@mark.parametrize("buffer", [0, -1, 21])
def test_a_buffer_of_no_token_or_beyond_its_limit_is_refused(buffer):
    with raises(ValueError, match=f"buffer of {buffer} tokens before a limit of 20"):
        overlong_penalty(5, limit=20, buffer=buffer)


def test_a_recipe_with_a_buffer_beyond_its_limit_is_refused():
    with raises(RecipeError, match="overlong_buffer = 21"):
        RewardSettings(overlong_buffer=21, overlong_limit=20)


def test_a_boxed_answer_that_a_tool_printed_is_nobodys_answer():
    problem = Problem(id="p", prompt="6 * 7?", answer="42")
    given = Tokens.given((1, 2))
    said = stretch([1, 1])
    reply = Tokens.given((3, 3, 3))
    row = Tokens.join((given, said, reply, stretch([1]), Tokens.given((4,))))
    turns = (
        turn("run()", text="I will run it.", reply="\\boxed{42}", tokens=2),
        turn(text="done", tokens=1),
    )
    side = trajectory(*turns, segments=(row,))
    verdict = asyncio.run(BoxedGrader().grade(problem, side))
    assert (verdict.score, verdict.answer) == (0.0, None)
    wrong = type(episode())(id="p/0", problem=problem, trajectories=(side,), verdict=verdict)
    right = type(wrong)(
        id="p/1", problem=problem, trajectories=(side,), verdict=Verdict.right("42")
    )
    (lesson,) = score([group(wrong, right)], RewardSettings())
    assert [each.reward.total for each in lesson.graded] == [-0.9, 1.0]
    credit = assemble([lesson]).advantages_BT
    assert (credit != 0).tolist()[0] == [False, False, True, True, *[False] * 3, True, False]


PAPER = {"variant": "paper"}
"""Calls earn on right answers too: the variant that could be gamed."""


def test_calls_never_lift_a_wrong_answer_to_a_right_one():
    correct_three = reward(episode(*calls(3), right=True), **PAPER)
    correct_none = reward(episode(*calls(0), right=True), **PAPER)
    wrong_none = reward(episode(*calls(0)), **PAPER)
    wrong_many = reward(episode(*calls(40)), **PAPER)
    assert correct_three.total == approx(1.3)
    assert correct_none.total == 1.0
    assert wrong_none.total == -1.0
    assert wrong_many.total == approx(-0.6)
    assert (wrong_many.components["outcome"], wrong_many.components["tool_bonus"]) == (
        -1.0,
        approx(0.4),
    )


def test_failed_and_repeated_calls_earn_nothing():
    failing = [turn(f"f({n})", status=ToolStatus.MODEL_ERROR) for n in range(40)]
    same = [turn("f(1)") for _ in range(40)]
    assert reward(episode(*failing, right=True), **PAPER).total == 1.0
    assert reward(episode(*same, right=True), **PAPER).total == approx(1.1)


def test_what_is_paid_for_calls_is_set_and_capped_by_a_recipe():
    generous = PAPER | {"tool_bonus": 0.2, "bonus_cap": 2}
    assert reward(episode(*calls(40), right=True), **generous).total == approx(1.4)


SAMPLED = (Tokens(ids=(1, 2, 3), sampled=(True,) * 3, logprobs=(-0.1,) * 3),)
CUT_OFF = {
    Stop.TOKEN_LIMIT: (True, -1.0),  # as by the limit of one turn: few tokens in all
    Stop.CONTEXT_FULL: (True, -1.0),  # as by a tool's reply
    Stop.ANSWERED: (False, 0.0),
    Stop.TURN_LIMIT: (True, 0.0),  # turns are no length: `penalties` are for them
    Stop.TIME_LIMIT: (True, 0.0),
}


@mark.parametrize("stop", CUT_OFF)
def test_shaping_filtering_and_metrics_go_by_the_reason_for_which_an_attempt_ended(stop):
    truncated, lost = CUT_OFF[stop]
    short = replace(trajectory(turn("1", tokens=3), segments=SAMPLED), stop=stop)
    attempt = replace(episode(), trajectories=(short,))
    shaping = RewardSettings(variant="outcome", overlong_buffer=4, overlong_limit=16)
    (lesson,) = score([group(attempt)], shaping, selection=SelectionSettings(mask_truncated=True))
    (graded,) = lesson.graded
    assert graded.reward.components["overlong"] == lost
    assert (graded.masked, attempt.truncated) == (truncated, truncated)
    assert summarise([group(attempt)])["unfinished"] == truncated


def test_a_team_pays_for_its_length_once():
    cut = replace(trajectory(turn("1")), stop=Stop.CONTEXT_FULL)
    attempt = replace(episode(), trajectories=(trajectory(turn("1")), cut, cut))
    shaping = RewardSettings(
        variant="outcome", overlong_buffer=4, overlong_limit=16, overlong_factor=0.5
    )
    (lesson,) = score([group(attempt)], shaping)
    assert lesson.graded[0].reward.components["overlong"] == -0.5
