"""An episode's advantage reaches exactly the tokens that its policy sampled."""

import pytest
from pytest import approx

from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant
from forethought.core.trajectory import Episode, Finish, Group, Stop, Trajectory, Turn
from forethought.learning.advantage import AdvantageSettings
from forethought.learning.lessons import assemble, score
from forethought.learning.rewards import RewardSettings
from learning.rows import row
from scripted import MARKS, PROBLEM, graded

CENTRED = AdvantageSettings(kind="dr_grpo")
OUTCOME = RewardSettings(variant="outcome")


def attempt(mark, *trajectories):
    """An episode with a verdict, one agent for each tuple of segments."""
    said = Turn(message=Assistant(text="x"), finish=Finish.END_OF_TURN, tokens=1)
    return Episode(
        id=mark,
        problem=PROBLEM,
        verdict=MARKS[mark],
        trajectories=tuple(
            Trajectory(agent="a", opening=(), turns=(said,), stop=Stop.ANSWERED, segments=segments)
            for segments in trajectories
        ),
    )


def group(*episodes, id="g"):
    return Group(id=id, problem=PROBLEM, episodes=episodes)


def scored(*groups):
    return score(groups, OUTCOME, CENTRED)


def test_the_advantage_reaches_exactly_the_sampled_tokens_of_its_episode():
    right = attempt("+", (row("..ss.s", first=1),))
    wrong = attempt("-", (row(".s", first=9),))
    batch = assemble(scored(group(right, wrong)))
    assert batch.ids_BT.tolist() == [[1, 2, 3, 4, 5, 6], [9, 10, 0, 0, 0, 0]]
    assert batch.advantages_BT.tolist() == [[0, 0, 1, 1, 0, 1], [0, -1, 0, 0, 0, 0]]


def test_every_segment_of_every_agent_carries_the_episodes_advantage():
    team = attempt("+", (row(".s"), row("..s")), (row(".ss"),))
    batch = assemble(scored(group(team, attempt("-", (row(".s"),)))))
    assert batch.advantages_BT.sum(1).tolist() == [1, 1, 2, -1]


def test_segments_in_which_nothing_was_sampled_are_left_out():
    right = attempt("+", (row("..."), row(".s")))
    batch = assemble(scored(group(right, attempt("-", ()))))
    assert batch.ids_BT.shape == (1, 2)


def test_what_was_not_measured_gets_no_row_and_moves_no_mean():
    right, wrong, lost = (attempt(mark, (row(".s"),)) for mark in "+-?")
    (lesson,) = scored(group(right, lost, wrong))
    assert lesson.episodes == (right, wrong)
    assert lesson.advantages == (1.0, -1.0)
    assert assemble([lesson]).ids_BT.shape[0] == 2


def test_attempts_are_compared_within_their_group_alone():
    lessons = scored(graded("easy", "+++-"), graded("hard", "---+"))
    assert [lesson.advantages for lesson in lessons] == [
        approx((0.5, 0.5, 0.5, -1.5)),
        approx((-0.5, -0.5, -0.5, 1.5)),
    ]


def test_two_draws_of_one_problem_are_two_groups():
    first = group(attempt("+", ()), attempt("+", ()), id="rl/0/0/p")
    second = group(attempt("-", ()), attempt("-", ()), id="rl/0/1/p")
    lessons = scored(first, second)
    assert [lesson.advantages for lesson in lessons] == [(0.0, 0.0), (0.0, 0.0)]
    assert [lesson.group for lesson in lessons] == [first, second]


@pytest.mark.parametrize(
    ("marks", "informative"),
    [("+-", True), ("++", False), ("--", False), ("+?", False), ("??", False), ("", False)],
)
def test_a_lesson_informs_only_where_rewards_differ(marks, informative):
    (lesson,) = scored(graded("p", marks))
    assert lesson.is_informative is informative


@pytest.mark.parametrize(("singleton", "informative"), [("zero", False), ("raw", True)])
def test_an_attempt_without_company_informs_only_where_it_earns_its_own_reward(
    singleton, informative
):
    settings = AdvantageSettings(kind="dr_grpo", singleton=singleton)
    (lesson,) = score([graded("p", "+??")], OUTCOME, settings)
    assert lesson.advantages == (1.0 if informative else 0.0,)
    assert lesson.is_informative is informative


def test_lessons_without_a_sampled_token_are_refused():
    with pytest.raises(RecipeError, match="nothing to train"):
        assemble(scored(graded("p", "+-")))
