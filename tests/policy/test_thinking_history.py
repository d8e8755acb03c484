"""Earlier thinking is kept in one row, or stripped and the conversation begun again in another."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forethought.core.messages import Assistant, User
from forethought.core.trajectory import Episode, Finish, Group, Stop, Tokens, Trajectory, Turn
from forethought.core.verdict import Verdict
from forethought.learning.advantage import AdvantageSettings
from forethought.learning.credit.settings import CreditSettings
from forethought.learning.lessons import assemble, score
from forethought.learning.metrics import summarise
from forethought.learning.rewards import RewardSettings
from forethought.policy.formats import chat_format, stripped_streams, trained_stream
from forethought.policy.parsing import Parsed
from forethought.policy.protocol import SamplingSettings
from forethought.policy.token_policy import TokenPolicy
from forethought.policy.tokenizing import decode
from policy.conversations import TOOLS, call, reply
from policy.test_formats import REPLY, SAID
from policy.test_token_policy import ScriptedSampler, sampled
from policy.tokenizers_on_hand import small_tokenizer
from scripted import KEY, PROBLEM

TOKENIZER = small_tokenizer()
CHAT = chat_format("hermes", TOKENIZER)
QUESTION = (User(text="6 * 7?"),)
HEARD = (reply("7"),)
THOUGHT = Assistant(text="", thinking="t1 t2", calls=(call("1"),))
PLAIN = Assistant(text="", calls=(call("1"),))
ANSWER = Assistant(text="7", thinking="t3")


def talk(*said, thinking, chat=CHAT, opening=QUESTION, heard=HEARD):
    """What the sampler was asked to continue, and the segments, of a conversation in `said`."""
    turns = [each if isinstance(each, tuple) else tuple(chat.assistant(each)) for each in said]
    sampler = ScriptedSampler(tuple(sampled(*ids) for ids in turns))
    policy = TokenPolicy(sampler=sampler, format=chat, settings=SamplingSettings(thinking=thinking))

    async def run():
        async with policy.open(opening, TOOLS, KEY) as conversation:
            for number in range(len(turns)):
                if number:
                    await conversation.hear(heard)
                await conversation.speak(900)
            return conversation.segments

    segments = asyncio.run(run())
    return [ids for ids, *_ in sampler.asked], segments, turns


def chosen(segments):
    """The sampled ids of every segment, one after the other."""
    return [
        id for each in segments for id, mine in zip(each.ids, each.sampled, strict=True) if mine
    ]


def text(ids):
    return decode(TOKENIZER, ids)


def test_kept_thinking_makes_each_prompt_an_extension_and_one_row():
    (first, second), segments, turns = talk(THOUGHT, ANSWER, thinking="keep")
    assert second[: len(first) + len(turns[0])] == (*first, *turns[0])
    assert len(segments) == 1
    assert "t1 t2" in text(second)


def test_stripped_thinking_makes_two_rows_and_every_sampled_token_is_in_one_of_them():
    (first, second), segments, turns = talk(THOUGHT, ANSWER, thinking="strip")
    assert [each.ids for each in segments] == [(*first, *turns[0]), (*second, *turns[1])]
    assert "t1 t2" not in text(second)
    assert '{"code": "1"}' in text(second)
    assert second == tuple(CHAT.opening((*QUESTION, PLAIN, reply("7")), TOOLS))
    assert chosen(segments) == [*turns[0], *turns[1]]
    for segment, turn in zip(segments, turns, strict=True):
        assert segment.sampled == (False,) * (len(segment) - len(turn)) + (True,) * len(turn)
        assert segment.logprobs[-len(turn) :] == sampled(*turn).logprobs


@pytest.mark.parametrize("thinking", ["keep", "strip"])
def test_a_conversation_without_thinking_is_one_row_whatever_becomes_of_thinking(thinking):
    _, segments, turns = talk(PLAIN, PLAIN, ANSWER, thinking=thinking)
    assert len(segments) == 1
    assert chosen(segments) == [id for turn in turns for id in turn]


def test_a_new_row_begins_only_after_a_turn_that_thought():
    _, segments, _ = talk(PLAIN, THOUGHT, PLAIN, ANSWER, thinking="strip")
    assert len(segments) == 2
    kept = len(CHAT.opening(QUESTION, TOOLS)) + len(CHAT.assistant(PLAIN))
    assert segments[0].ids[:kept] == (*CHAT.opening(QUESTION, TOOLS), *CHAT.assistant(PLAIN))


def test_thinking_in_what_opens_a_conversation_is_stripped_too():
    opening = (*QUESTION, Assistant(text="42", thinking="t0"), User(text="Sure?"))
    (prompt,), _, _ = talk(ANSWER, thinking="strip", opening=opening)
    assert "t0" not in text(prompt)
    (prompt,), _, _ = talk(ANSWER, thinking="keep", opening=opening)
    assert "t0" in text(prompt)


@dataclass
class Rewriting:
    """Thinks in its first turn, and writes what was said before otherwise than it was sampled."""

    name: str = "rewriting"
    end_of_turn: int = 4

    def opening(self, messages, tools):
        return [1, 2] if len(messages) == 1 else [1, 2, 77, 5]

    def assistant(self, message):
        raise AssertionError("a policy never writes what it said")

    def hear(self, messages):
        raise AssertionError("the prompt is broken before it is heard")

    def read(self, ids, tools, first_id):
        return Parsed(message=Assistant(text="6", thinking="" if ids == (6,) else "hm"))


def lesson(segments, mark="+"):
    said = Turn(message=Assistant(text="6"), finish=Finish.END_OF_TURN, tokens=3)
    trajectory = Trajectory(
        agent="a", opening=(), turns=(said,), stop=Stop.ANSWERED, segments=segments
    )
    verdict = Verdict.right() if mark == "+" else Verdict.wrong()
    return Episode(id=mark, problem=PROBLEM, trajectories=(trajectory,), verdict=verdict)


def test_a_broken_prompt_is_counted_and_both_rows_carry_the_advantage_and_no_row_is_empty():
    _, broken, _ = talk((3, 4), (6,), thinking="strip", chat=Rewriting())
    assert [each.ids for each in broken] == [(1, 2, 3, 4), (1, 2, 77, 5, 6)]
    whole = (
        Tokens.join((Tokens.given((1, 2)), Tokens(ids=(6,), sampled=(True,), logprobs=(-1,)))),
    )
    group = Group(id="g", problem=PROBLEM, episodes=(lesson(broken), lesson(whole, "-")))
    assert summarise([group])["prefix_breaks"] == 1.0
    centred = CreditSettings(advantage=AdvantageSettings(kind="dr_grpo"))
    lessons = score([group], RewardSettings(variant="outcome"), centred)
    batch = assemble(lessons)
    assert batch.mask_BT.tolist() == [
        [False, False, True, True, False],
        [False, False, False, False, True],
        [False, False, True, False, False],
    ]
    assert batch.advantages_BT.sum(1).tolist() == [2.0, 1.0, -1.0]
    assert batch.denominators(None).tokens == 4.0
    assert batch.denominators(None).sequences == 3.0


def test_a_prompt_without_a_turn_after_it_is_no_row():
    async def run():
        sampler = ScriptedSampler((sampled(*CHAT.assistant(THOUGHT)),))
        policy = TokenPolicy(
            sampler=sampler, format=CHAT, settings=SamplingSettings(thinking="strip")
        )
        async with policy.open(QUESTION, TOOLS, KEY) as conversation:
            await conversation.speak(900)
            await conversation.hear([reply("7")])
            return conversation.segments

    segments = asyncio.run(run())
    other = (Tokens.join((Tokens.given((1,)), Tokens(ids=(6,), sampled=(True,), logprobs=(-1,)))),)
    group = Group(id="g", problem=PROBLEM, episodes=(lesson(segments), lesson(other, "-")))
    lessons = score([group], RewardSettings(variant="outcome"))
    assert assemble(lessons).ids_BT.shape[0] == 2


def test_a_recorded_conversation_is_rendered_as_it_would_have_been_sampled():
    for thinking, render in (
        ("strip", stripped_streams),
        ("keep", lambda *given: (trained_stream(*given),)),
    ):
        messages = (*QUESTION, PLAIN, reply("7"), THOUGHT, reply("7"), ANSWER)
        _, segments, _ = talk(PLAIN, THOUGHT, ANSWER, thinking=thinking)
        rendered = render(CHAT, messages, TOOLS)
        assert [(each.ids, each.sampled) for each in rendered] == [
            (each.ids, each.sampled) for each in segments
        ]


def test_turns_that_are_not_trained_leave_their_row_out_where_it_has_no_other():
    messages = (*QUESTION, THOUGHT, reply("7"), ANSWER)
    (only,) = stripped_streams(CHAT, messages, TOOLS, [False, True])
    assert chosen([only]) == CHAT.assistant(ANSWER)
    assert stripped_streams(CHAT, messages, TOOLS, [False, False]) == ()
    assert stripped_streams(CHAT, QUESTION, TOOLS) == ()
    with pytest.raises(ValueError, match="2 assistant turns"):
        stripped_streams(CHAT, messages, TOOLS, [True])


@given(st.lists(st.tuples(SAID, st.lists(REPLY, min_size=1, max_size=2)), min_size=1, max_size=4))
@settings(max_examples=30)
def test_every_turn_is_trained_once_whoever_thought(turns):
    messages = [*QUESTION]
    for said, heard in turns:
        messages += [said, *heard]
    streams = stripped_streams(CHAT, messages, TOOLS)
    assert chosen(streams) == [id for said, _ in turns for id in CHAT.assistant(said)]
    assert len(streams) == 1 + sum(bool(said.thinking) for said, _ in turns[:-1])
