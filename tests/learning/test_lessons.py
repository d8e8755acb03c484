"""An episode's advantage reaches exactly the tokens that its policy sampled."""

import asyncio
import math
from dataclasses import replace

import pytest
from pytest import approx

from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant, User
from forethought.core.trajectory import Episode, Finish, Group, Stop, Trajectory, Turn
from forethought.learning.advantage import AdvantageSettings
from forethought.learning.credit.attempts import Credit
from forethought.learning.credit.selection import SelectionSettings
from forethought.learning.credit.settings import CreditSettings
from forethought.learning.lessons import assemble, score, summarise_comparison
from forethought.learning.metrics import summarise_lessons
from forethought.learning.rewards import RewardSettings
from forethought.policy.formats import chat_format
from forethought.policy.protocol import SamplingSettings
from forethought.policy.token_policy import TokenPolicy
from learning.rows import row
from policy.conversations import TOOLS, reply
from policy.conversations import call as python_call
from policy.test_token_policy import ScriptedSampler, sampled
from policy.tokenizers_on_hand import small_tokenizer
from scripted import KEY, MARKS, PROBLEM, graded

CENTRED = CreditSettings(advantage=AdvantageSettings(kind="dr_grpo"))
BY_TURN = CreditSettings(type="turn_rloo")
BONUS = RewardSettings(variant="paper", tool_bonus=0.25, bonus_cap=1)
OUTCOME = RewardSettings(variant="outcome")
JUDGE = {"endpoint": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}}


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


def credited(lesson):
    return [each.credit for each in lesson.graded]


def earned(lesson):
    return [each.reward.total for each in lesson.graded]


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


def test_each_row_of_an_attempt_is_marked_by_its_own_tokens_whatever_its_length():
    apart = attempt("+", (row(".ss."), row("...s"), row(".")), (row("....ss.s"),))
    batch = assemble(scored(group(apart, attempt("-", ()))))
    assert batch.advantages_BT.tolist() == [
        [0, 1, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 0, 1],
    ]
    assert batch.turns_BT.tolist() == [
        [-1, 0, 0, -1, -1, -1, -1, -1],
        [-1, -1, -1, 1, -1, -1, -1, -1],
        [-1, -1, -1, -1, 0, 0, -1, 1],
    ]


def test_segments_in_which_nothing_was_sampled_are_left_out():
    right = attempt("+", (row("..."), row(".s")))
    batch = assemble(scored(group(right, attempt("-", ()))))
    assert batch.ids_BT.shape == (1, 2)


def test_what_was_not_measured_gets_no_row_and_moves_no_mean():
    right, wrong, lost = (attempt(mark, (row(".s"),)) for mark in "+-?")
    (lesson,) = scored(group(right, lost, wrong))
    assert [each.episode for each in lesson.graded] == [right, wrong]
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
    alone = AdvantageSettings(kind="dr_grpo", singleton=singleton)
    (lesson,) = score([graded("p", "+??")], OUTCOME, CreditSettings(advantage=alone))
    assert lesson.advantages == (1.0 if informative else 0.0,)
    assert lesson.is_informative is informative


def test_lessons_without_a_sampled_token_are_refused():
    with pytest.raises(RecipeError, match="nothing to train"):
        assemble(scored(graded("p", "+-")))


def converse(thinking, *said):
    """A real conversation in tokens: its turns, each but the last answered by the tool."""
    chat = chat_format("hermes", small_tokenizer())
    turns = [tuple(chat.assistant(each)) for each in said]
    sampler = ScriptedSampler(tuple(sampled(*ids) for ids in turns))
    policy = TokenPolicy(sampler=sampler, format=chat, settings=SamplingSettings(thinking=thinking))

    async def run():
        spoken = []
        async with policy.open((User(text="6 * 7?"),), TOOLS, KEY) as conversation:
            for number in range(len(turns)):
                if number:
                    await conversation.hear([reply("7")])
                spoken.append(await conversation.speak(900))
            return spoken, conversation.segments

    spoken, segments = asyncio.run(run())
    turns = tuple(
        Turn(
            message=each.message,
            finish=each.finish,
            tokens=each.tokens,
            replies=(reply("7"),) if each.message.calls else (),
        )
        for each in spoken
    )
    return Trajectory(agent="a", opening=(), turns=turns, stop=Stop.ANSWERED, segments=segments)


THOUGHT = Assistant(text="", thinking="t1 t2", calls=(python_call("1"),))
PLAIN = Assistant(text="", calls=(python_call("1"),))
ANSWER = Assistant(text="7")


def spoken_episode(mark, *trajectories):
    return Episode(id=mark, problem=PROBLEM, verdict=MARKS[mark], trajectories=tuple(trajectories))


@pytest.mark.parametrize(("thinking", "rows"), [("keep", 2), ("strip", 4)])
def test_each_turn_of_a_real_conversation_gets_its_own_advantage(thinking, rows):
    long = converse(thinking, THOUGHT, PLAIN, THOUGHT, ANSWER)
    pair = group(spoken_episode("+", long), spoken_episode("-", converse(thinking, ANSWER)))
    (lesson,) = score([pair], BONUS, BY_TURN)
    # The first call alone earns the bonus. The other attempt comes to -1, and reached one turn.
    assert credited(lesson)[0].turns == approx((2.25, 2.25, 2.25, 2.25))
    assert lesson.graded[0].reward.per_turn == (0.25, 0.0, 0.0, 0.0)
    batch = assemble([lesson])
    assert batch.ids_BT.shape[0] == rows
    mine = batch.turns_BT[:-1]
    counts = [int((mine == number).sum()) for number in range(4)]
    assert counts == [turn.tokens for turn in long.turns]
    assert (batch.turns_BT >= 0).equal(batch.mask_BT)
    assert (batch.advantages_BT[~batch.mask_BT] == 0).all()


SETTLED = "retrieval", "well_formed", "malformed", "steps", "call_cost"
PAID_BY_TURN = [
    *(RewardSettings(process={part: 0.1}) for part in SETTLED),
    RewardSettings(penalties={"parse": 0.1}, judge=JUDGE | {"weight": 0.0}),
]
DECIDED_LATER = [
    RewardSettings(process={"retrieval": 0.1, "execution": 0.1}),
    RewardSettings(process={"execution": 0.1}),
    RewardSettings(penalties={"exception": 0.1}),
    RewardSettings(process={"malformed": 0.1}, judge=JUDGE),
]
PAID_AS_A_WHOLE = [
    *(OUTCOME, BONUS, RewardSettings(), *DECIDED_LATER),
    RewardSettings(process={"coverage": 0.1, "verification": 0.1, "exploration": 0.1}),
    RewardSettings(penalties={"format": 0.1, "thinking": 0.1, "thinking_limit": 9}),
    RewardSettings(process={"retrieval": 0.1, "most": 0.0}),
]
SCORES = {"+": (0.0, 0.0, 0.0), "-": (0.0,)}


def two_of_different_length():
    long, short = converse("keep", PLAIN, PLAIN, ANSWER), converse("keep", ANSWER)
    return group(spoken_episode("+", long), spoken_episode("-", short))


@pytest.mark.parametrize("reward", PAID_BY_TURN)
def test_by_default_turns_whose_pay_is_settled_are_credited_apart(reward):
    (found,) = score([two_of_different_length()], reward, judged=SCORES)
    (named,) = score([two_of_different_length()], reward, BY_TURN, judged=SCORES)
    assert found == named
    assert len(credited(found)[0].turns) == 3


@pytest.mark.parametrize("reward", PAID_AS_A_WHOLE)
def test_by_default_other_attempts_are_credited_as_a_whole(reward):
    whole = CreditSettings(type="outcome")
    (found,) = score([two_of_different_length()], reward, judged=SCORES)
    assert credited(found)[0].turns == ()
    assert found == score([two_of_different_length()], reward, whole, judged=SCORES)[0]


NATS = {"+": (1.0, -2.0, 4.0), "-": (0.5,)}
DRIFT = RewardSettings(variant="outcome", penalties={"divergence": 0.1})


def drifted(credit):
    """The long attempt of two, right, of which each turn went so many nats from a reference."""
    (lesson,) = score([two_of_different_length()], DRIFT, credit, divergences=NATS)
    for each, nats in zip(lesson.graded, NATS.values(), strict=True):
        assert each.reward.components["divergence"] == approx(-0.1 * sum(nats))
    assert earned(lesson) == approx([1.0 - 0.3, -1.0 - 0.05])
    return lesson


def test_what_went_from_a_reference_is_paid_by_the_turn_that_did():
    (long, short) = drifted(BY_TURN).graded
    assert long.reward.per_turn == approx((-0.1, 0.2, -0.4))
    assert long.reward.turn_parts["divergence"] == approx((-0.1, 0.2, -0.4))
    # Of the second turn on, what is left of -1.05 is that less the -0.1 lost before it.
    assert long.credit.turns == approx((0.7 + 1.05, 0.8 + 0.95, 0.6 + 1.15))
    assert short.credit.turns == approx((-1.75,))


def test_a_turn_does_not_pay_for_how_far_others_went_before_it():
    pair = group(*(spoken_episode(mark, converse("keep", PLAIN, ANSWER)) for mark in ("+", "~")))
    nats = {"+": (9.0, 0.5), "~": (0.0, 0.5)}
    for credit in (BY_TURN, CreditSettings(type="turn_rtg", advantage=CENTRED.advantage)):
        (lesson,) = score([pair], DRIFT, credit, divergences=nats)
        first, second = credited(lesson)[0].turns
        assert second > 0 > first - second


def test_an_attempt_that_is_credited_as_a_whole_pays_as_a_whole():
    for credit in (CENTRED, CreditSettings()):
        lesson = drifted(credit)
        assert [each.turns for each in credited(lesson)] == [(), ()]
        assert lesson.graded[0].reward.per_turn == (0.0, 0.0, 0.0)
    assert drifted(CENTRED).advantages == approx((0.875, -0.875))


def test_a_critic_is_told_of_what_turns_earned_without_what_tokens_pay():
    lesson = drifted(CreditSettings(type="gae"))
    assert [each.turns for each in credited(lesson)] == [(0.0, 0.0, approx(1.0)), (approx(-1.0),)]


def test_a_way_of_comparing_attempts_credits_attempts():
    paid = RewardSettings(process={"retrieval": 0.1})
    (found,) = score([two_of_different_length()], paid, CENTRED)
    assert credited(found)[0].turns == ()


def test_advantages_of_turns_reach_their_own_tokens_in_every_segment():
    long = converse("strip", THOUGHT, PLAIN, ANSWER)
    other = converse("strip", THOUGHT, ANSWER)
    pair = group(spoken_episode("+", long), spoken_episode("-", other))
    by_number = CreditSettings(type="turn_rtg", discount=0.5, advantage=CENTRED.advantage)
    (lesson,) = score([pair], OUTCOME, by_number)
    first, second = credited(lesson)
    assert first.turns == approx(((0.25 + 0.5) / 2, (0.5 + 1.0) / 2, 0.0))
    assert second.turns == approx((-0.375, -0.75))
    batch = assemble([lesson])
    assert batch.ids_BT.shape[0] == 4  # each conversation begins again after the turn that thought
    for rows, credit in ((slice(0, 2), first), (slice(2, 4), second)):
        for number, advantage in enumerate(credit.turns):
            found = batch.advantages_BT[rows][batch.turns_BT[rows] == number]
            assert len(found) > 0
            assert found.tolist() == approx([advantage] * len(found))


def test_agents_of_a_team_have_turns_of_their_own():
    team = spoken_episode("+", converse("keep", PLAIN, ANSWER), converse("keep", ANSWER))
    alone = spoken_episode("-", converse("keep", PLAIN, ANSWER))
    (lesson,) = score([group(team, alone)], OUTCOME, BY_TURN)
    batch = assemble([lesson])
    assert [int(row_T.max()) for row_T in batch.turns_BT] == [1, 0, 1]
    assert credited(lesson)[0].turns == approx((2.0, 2.0, 2.0))


def test_turns_that_are_not_the_runs_of_a_row_are_refused():
    pair = group(attempt("+", (row("..ss.s"),)), attempt("-", (row(".s"),)))
    assemble(score([pair], OUTCOME, CENTRED))
    lessons = score([pair], OUTCOME, BY_TURN)
    with pytest.raises(ValueError, match=r"turns sampled \[1\] tokens.*runs of \[2, 1\]"):
        assemble(lessons)


def test_an_attempt_with_a_void_turn_is_compared_and_not_trained():
    marks = SelectionSettings(mask_void_turns=True)
    right, void = attempt("+", (row(".s"),)), attempt("~", (row("..s"),))
    (lesson,) = score([group(right, void)], OUTCOME, CENTRED, selection=marks)
    assert [each.masked for each in lesson.graded] == [False, True]
    assert lesson.advantages == (1.0, -1.0)
    assert assemble([lesson]).advantages_BT.tolist() == [[0.0, 1.0]]
    assert summarise_comparison([lesson], marks) == {"groups/alone": 0.0, "selection/void": 0.5}
    (trained,) = score([group(right, void)], OUTCOME, CENTRED)
    assert assemble([trained]).ids_BT.shape[0] == 2


def test_an_attempt_that_was_cut_off_is_compared_and_not_trained_where_that_is_asked_for():
    marks = SelectionSettings(mask_truncated=True)
    right, wrong = attempt("+", (row(".s"),)), attempt("-", (row("..s"),))
    cut = replace(
        wrong, trajectories=(replace(wrong.trajectories[0], stop=Stop.TURN_LIMIT),), id="cut"
    )
    (lesson,) = score([group(right, cut)], OUTCOME, CENTRED, selection=marks)
    assert lesson.advantages == (1.0, -1.0)
    assert [each.masked for each in lesson.graded] == [False, True]
    assert assemble([lesson]).ids_BT.shape[0] == 1
    told = summarise_comparison([lesson], marks)
    assert told == {"groups/alone": 0.0, "selection/truncated": 0.5}
    (whole,) = score([group(right, cut)], OUTCOME, CENTRED)
    assert assemble([whole]).ids_BT.shape[0] == 2


def test_a_lesson_that_only_void_attempts_could_teach_informs_of_nothing():
    void = [attempt("~", (row(".s"),)), attempt("?", (row(".s"),))]
    alone = CreditSettings(advantage=AdvantageSettings(kind="dr_grpo", singleton="raw"))
    marks = SelectionSettings(mask_void_turns=True)
    (lesson,) = score([group(*void)], OUTCOME, alone, selection=marks)
    assert lesson.advantages == (-1.0,)
    assert not lesson.is_informative
    assert summarise_comparison([lesson], marks) == {"groups/alone": 1.0, "selection/void": 1.0}


def test_attempts_that_are_not_kept_move_no_mean_and_are_not_trained():
    few = SelectionSettings(keep=2, keep_right=1, keep_wrong=1)
    four = graded("p", "++--+")
    (lesson,) = score([four], OUTCOME, CENTRED, selection=few)
    assert [each.left_out for each in lesson.graded] == [False, True, False, True, True]
    assert lesson.advantages == (1.0, 0.0, -1.0, 0.0, 0.0)
    assert len(lesson.trained) == 2
    assert summarise_comparison([lesson], few) == {"groups/alone": 0.0, "selection/left_out": 0.6}
    (equal,) = score([graded("p", "+++")], OUTCOME, CENTRED, selection=few)
    assert equal.trained == []
    assert summarise_comparison([], few) == {}


BY_CRITIC = CreditSettings(type="gae")
NOTHING_EARNED = RewardSettings(overlong_buffer=1, overlong_limit=1)


def test_to_a_critic_an_attempt_that_earned_nothing_says_something_too():
    pair = group(attempt("+", (row(".s"),)), attempt("+", (row(".s"),)))
    (lesson,) = score([pair], NOTHING_EARNED, BY_CRITIC)
    assert earned(lesson) == [0.0, 0.0]
    assert lesson.is_informative
    assert not lesson.differs_within
    (compared,) = score([pair], NOTHING_EARNED)
    assert not compared.is_informative
    mixed = group(attempt("+", (row(".s"),)), attempt("-", (row(".s"),)))
    (lesson,) = score([mixed], OUTCOME, BY_CRITIC)
    assert lesson.is_informative
    assert lesson.differs_within
    (nobody,) = score([group(attempt("?", (row(".s"),)))], OUTCOME, BY_CRITIC)
    assert not nobody.is_informative


@pytest.mark.parametrize("marks", ["+-", "++"])
def test_without_a_critic_a_lesson_differs_within_where_it_informs(marks):
    (lesson,) = scored(graded("p", marks))
    assert lesson.differs_within is lesson.is_informative


@pytest.mark.parametrize("credit", [CENTRED, BY_TURN, BY_CRITIC], ids=lambda each: each.type)
def test_what_a_judge_could_not_score_stands_in_no_denominator_and_in_the_rounds_figures(credit):
    right, wrong, lost = spoke("+", 2), spoke("-", 2), replace(spoke("-", 16), id="lost")
    (lesson,) = score(
        [group(right, wrong, lost)],
        RewardSettings(judge=JUDGE),
        credit,
        judged={"+": (0.5,), "-": (0.0,), "lost": (math.nan,)},
    )
    assert [each.left_out for each in lesson.graded] == [False, False, True]
    assert credited(lesson)[2] == Credit(whole=0.0)
    found = assemble([lesson]).denominators(budget=None)
    assert (found.tokens, found.sequences) == (4.0, 2.0)
    figures = summarise_lessons([lesson])
    assert figures["reward/outcome"] == approx(-1 / 3)  # of all three
    assert figures["reward/mean"] == approx(sum(earned(lesson)[:2]) / 2)


def spoke(mark, tokens):
    """An attempt with one turn of so many tokens."""
    episode = attempt(mark, (row("." + tokens * "s"),))
    (trajectory,) = episode.trajectories
    turns = (replace(trajectory.turns[0], tokens=tokens),)
    return replace(episode, trajectories=(replace(trajectory, turns=turns),))


def test_where_few_attempts_are_kept_they_are_of_those_whose_reward_is_known():
    few = SelectionSettings(keep=2, keep_right=1, keep_wrong=1)
    four = [replace(attempt(mark, (row(".s"),)), id=f"{n}") for n, mark in enumerate("++--")]
    scores = {f"{n}": (math.nan if n in (0, 2) else 0.5,) for n in range(4)}
    judged = RewardSettings(judge=JUDGE)
    (lesson,) = score([group(*four)], judged, CENTRED, selection=few, judged=scores)
    assert [each.episode.id for each in lesson.trained] == ["1", "3"]
    assert lesson.advantages == (0.0, 1.0, 0.0, -1.0)


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        ("outcome", "reinforce_pp"),
        ("outcome", "reinforce_pp_baseline"),
        ("outcome", "gdpo"),
        ("merged", "reinforce_pp"),
    ],
)
def test_only_what_is_trained_is_whitened_over(type, kind):
    white = CreditSettings(type=type, advantage=AdvantageSettings(kind=kind))
    marks = SelectionSettings(mask_void_turns=True)
    (lesson,) = score([group(spoke("+", 1), spoke("~", 1))], OUTCOME, white, selection=marks)
    assert assemble([lesson]).advantages_BT.tolist() == [[0.0, 0.0]]
    three = group(spoke("+", 3), spoke("-", 1), spoke("~", 9))
    (lesson,) = score([three], OUTCOME, white, selection=marks)
    batch = assemble([lesson])
    trained = batch.advantages_BT[batch.mask_BT]
    assert trained.tolist() == approx([0.5, 0.5, 0.5, -1.5], rel=1e-6)


def test_a_row_has_the_name_of_its_attempt():
    team = attempt("+", (row(".s"), row("..s")), (row(".ss"),))
    batch = assemble(scored(group(team, attempt("-", (row(".s"),)))))
    assert batch.names == ("+", "+", "+", "-")
    assert batch.take([3, 1]).names == ("-", "+")


def test_equal_attempts_with_unequal_turns_inform_of_nothing_however_sums_round():
    overlong = RewardSettings(
        variant="outcome", overlong_factor=0.4, overlong_buffer=1, overlong_limit=2
    )
    wrong = [spoken_episode("-", converse("keep", *[PLAIN] * n, ANSWER)) for n in (2, *[1] * 5, 0)]
    (lesson,) = score([group(*wrong, wrong[-1])], overlong, BY_TURN)
    assert earned(lesson) == [-1.4] * 8
    assert [set(each.turns) for each in credited(lesson)] == [{0.0}] * 8
    assert not lesson.is_informative


def test_several_components_are_compared_apart():
    rare = CreditSettings(advantage=AdvantageSettings(kind="gdpo"))
    caller = spoken_episode("+", converse("keep", PLAIN, ANSWER))
    others = [attempt(mark, (row(".s"),)) for mark in "+++-"]
    (apart,) = score([group(caller, *others)], BONUS, rare)
    (together,) = score([group(caller, *others)], BONUS)

    def share(lesson):
        """How much the bonus sets right answers apart, of what sets right from wrong apart."""
        caller, right, *_, wrong = lesson.advantages
        return (caller - right) / (right - wrong)

    assert share(together) == approx(0.25 / 2, rel=1e-4)
    assert share(apart) == approx(1.0, rel=1e-4)
    tokens = [sum(turn.tokens for turn in caller.trajectories[0].turns), 1, 1, 1, 1]
    whole = sum(a * n for a, n in zip(apart.advantages, tokens, strict=True))
    assert whole == approx(0.0, abs=1e-9)
