"""A conversation's tokens are what was opened, sampled and heard, and nothing was written twice."""

import asyncio
from dataclasses import dataclass, field

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from forethought.core.errors import PolicyError
from forethought.core.messages import Assistant, ToolReply, User
from forethought.core.trajectory import Finish, Tokens
from forethought.learning.batch import pad
from forethought.policy.formats import chat_format
from forethought.policy.parsing import Parsed
from forethought.policy.protocol import Sampled, SamplingSettings
from forethought.policy.token_policy import TokenPolicy
from forethought.policy.tokenizing import decode
from policy.conversations import TOOLS
from policy.conversations import call as python_call
from policy.tokenizers_on_hand import small_tokenizer
from scripted import KEY, PYTHON, call
from tiny import tokenizer

END = 99
QUESTION = (User(text="6 * 7?"),)


def reply(text):
    return ToolReply(call_id="call_0", name="python", text=text)


@dataclass
class LossyFormat:
    """Encodes by length and forgets what it reads: ids cannot be had again from its words."""

    name: str = "lossy"
    end_of_turn: int = END
    calls: int = 0
    unclosed: bool = False
    first_ids: list[int] = field(default_factory=list)

    def opening(self, messages, tools):
        return [10, len(messages), len(tools)]

    def assistant(self, message):
        raise AssertionError("a policy never writes what it said")

    def hear(self, messages):
        return [20, *(len(message.text) for message in messages), 21]

    def read(self, ids, tools, first_id):
        self.first_ids.append(first_id)
        calls = tuple(call(id=f"call_{first_id + n}") for n in range(self.calls))
        return Parsed(message=Assistant(text="words", calls=calls), unclosed_thinking=self.unclosed)


def sampled(*ids, finish=Finish.END_OF_TURN, version=0):
    return Sampled(
        ids=ids,
        logprobs=tuple(-0.1 * each for each in ids),
        entropies=tuple(float(each) for each in ids),
        finish=finish,
        weight_version=version,
    )


@dataclass
class ScriptedSampler:
    """Gives the turns of its script in order and notes what it was asked; errors are raised."""

    script: tuple
    asked: list = field(default_factory=list)
    seated: int = 0
    left: int = 0

    def sit(self):
        self.seated += 1
        return self

    async def sample(self, ids, stop, settings, seed):
        self.asked.append((tuple(ids), tuple(stop), settings, seed))
        turn = self.script[len(self.asked) - 1]
        if isinstance(turn, Exception):
            raise turn
        return turn

    def leave(self):
        self.left += 1


def conversation(*script, chat=None, tools=(PYTHON,), **settings):
    sampler = ScriptedSampler(script)
    policy = TokenPolicy(
        sampler=sampler, format=chat or LossyFormat(), settings=SamplingSettings(**settings)
    )
    return sampler, policy.open(QUESTION, tools, KEY)


def two_turns():
    """The sampler and the conversation after speaking, hearing twice, and speaking again."""
    sampler, talk = conversation(sampled(5, 6, END), sampled(7, END))

    async def run():
        async with talk:
            await talk.speak(9)
            await talk.hear([reply("abc"), reply("")])
            await talk.speak(9)
            return talk.segments

    return sampler, asyncio.run(run())


def test_the_stream_is_the_opening_then_what_was_sampled_and_heard_in_turn():
    _, (segment,) = two_turns()
    assert segment.ids == (10, 1, 1, 5, 6, END, 20, 3, 0, 21, 7, END)


def test_exactly_the_sampled_tokens_are_marked_with_their_log_probabilities():
    _, (segment,) = two_turns()
    marks = (False,) * 3 + (True,) * 3 + (False,) * 4 + (True,) * 2
    assert segment.sampled == marks
    expected = [-0.1 * id if mark else 0.0 for id, mark in zip(segment.ids, marks, strict=True)]
    assert segment.logprobs == tuple(expected)


def test_each_prompt_extends_the_one_before_by_the_very_ids():
    sampler, (segment,) = two_turns()
    first, second = (ids for ids, _, _, _ in sampler.asked)
    assert (first, second) == (segment.ids[:3], segment.ids[:10])


def test_turns_stop_at_the_end_of_turn_and_have_seeds_of_their_own():
    sampler, _ = two_turns()
    assert [stop for _, stop, _, _ in sampler.asked] == [(END,), (END,)]
    assert [seed for *_, seed in sampler.asked] == [KEY.turn_seed(0), KEY.turn_seed(1)]


def one_turn(turn, *, chat=None, limit=9, **settings):
    sampler, talk = conversation(turn, chat=chat, **settings)

    async def run():
        async with talk:
            return await talk.speak(limit)

    return sampler, asyncio.run(run())


def test_a_turn_reports_its_numbers():
    _, spoken = one_turn(sampled(2, 4, version=3), temperature=0.7)
    assert (spoken.tokens, spoken.entropy, spoken.weight_version) == (2, 3.0, 3)
    assert spoken.temperature == 0.7
    assert spoken.message.text == "words"


def test_a_turn_of_no_tokens_has_no_entropy():
    _, spoken = one_turn(sampled(finish=Finish.CONTEXT_FULL))
    assert (spoken.tokens, spoken.entropy) == (0, 0.0)
    assert spoken.finish is Finish.CONTEXT_FULL


@pytest.mark.parametrize(("limit", "own", "expected"), [(5, 9, 5), (9, 5, 5), (4, 4, 4)])
def test_the_tighter_limit_of_tokens_holds_and_the_rest_of_the_settings_stay(limit, own, expected):
    sampler, _ = one_turn(sampled(1), limit=limit, max_tokens=own, temperature=0.7, top_p=0.9)
    assert sampler.asked[0][2] == SamplingSettings(max_tokens=expected, temperature=0.7, top_p=0.9)


def test_thinking_that_was_not_closed_is_told_only_of_a_turn_that_ended_by_itself():
    unclosed = LossyFormat(unclosed=True)
    _, ended = one_turn(sampled(1, END), chat=unclosed)
    _, cut = one_turn(sampled(1, finish=Finish.TOKEN_LIMIT), chat=unclosed)
    assert ended.finish is Finish.UNCLOSED_THINKING
    assert cut.finish is Finish.TOKEN_LIMIT


def test_calls_are_numbered_through_the_conversation():
    chat = LossyFormat(calls=2)
    _, talk = conversation(sampled(1), sampled(1), sampled(1), chat=chat)

    async def run():
        async with talk:
            return [await talk.speak(9) for _ in range(3)]

    turns = asyncio.run(run())
    assert chat.first_ids == [0, 2, 4]
    assert [one.id for turn in turns for one in turn.message.calls] == [
        f"call_{n}" for n in range(6)
    ]


def test_a_seat_is_taken_on_entering_and_given_up_on_leaving_whatever_happens():
    sampler, talk = conversation(PolicyError("the engine broke"))
    assert sampler.seated == 0

    async def run():
        async with talk:
            assert (sampler.seated, sampler.left) == (1, 0)
            await talk.speak(9)

    with pytest.raises(PolicyError, match="the engine broke"):
        asyncio.run(run())
    assert (sampler.seated, sampler.left) == (1, 1)


def test_a_conversation_is_entered_before_it_speaks():
    _, talk = conversation(sampled(1))
    with pytest.raises(ValueError, match="entered before it speaks"):
        asyncio.run(talk.speak(9))


def test_ids_that_no_text_would_encode_to_are_kept():
    words = tokenizer()
    chat = chat_format("compact", words)
    byte = [words.token_to_id(each) for each in ("Ã", "©")]  # é as two tokens, and é cut in half
    odd = (*byte, byte[0], chat.end_of_turn)
    sampler, talk = conversation(sampled(*odd), sampled(chat.end_of_turn), chat=chat, tools=())

    async def run():
        async with talk:
            await talk.speak(9)
            await talk.hear([reply("ok")])
            await talk.speak(9)

    asyncio.run(run())
    opening = chat.opening(QUESTION, ())
    assert sampler.asked[1][0] == (*opening, *odd, *chat.hear([reply("ok")]))
    assert words.encode(words.decode(odd[:-1])).ids != list(odd[:-1])


class Merging(LossyFormat):
    """A format over a tokenizer that would write `abc` with other ids than those it came in."""

    words = Tokenizer(BPE({"a": 11, "b": 12, "c": 13, "bc": 99}, [("b", "c")]))

    def opening(self, messages, tools):
        return []

    def hear(self, messages):
        return [50, 51]

    def read(self, ids, tools, first_id):
        return Parsed(message=Assistant(text=decode(self.words, ids)))


def test_ids_that_the_tokenizer_would_merge_are_trained_as_they_were_sampled():
    assert Merging.words.decode([11, 12, 13]).replace(" ", "") == "abc"
    assert Merging.words.encode("abc").ids == [11, 99]
    chosen = Sampled(
        ids=(11, 12, 13),
        logprobs=(-0.1, -0.2, -0.3),
        entropies=(0.0,) * 3,
        finish=Finish.END_OF_TURN,
        weight_version=0,
    )
    _, talk = conversation(chosen, chat=Merging())

    async def run():
        async with talk:
            await talk.speak(9)
            await talk.hear([reply("xy")])
            return talk.segments

    (segment,) = asyncio.run(run())
    assert segment.ids == (11, 12, 13, 50, 51)
    assert segment.sampled == (True, True, True, False, False)
    assert segment.logprobs == (-0.1, -0.2, -0.3, 0.0, 0.0)
    batch = pad([segment], [1.0])
    assert batch.ids_BT.tolist() == [[11, 12, 13, 50, 51]]
    assert batch.ids_BT.shape == batch.mask_BT.shape == batch.sampled_logprobs_BT.shape


@pytest.mark.parametrize(("marks", "logprobs"), [(2, 3), (4, 3), (3, 2), (3, 4)])
def test_a_stretch_whose_parts_differ_in_length_is_never_made(marks, logprobs):
    with pytest.raises(ValueError, match=f"got 3, {marks} and {logprobs}"):
        Tokens(ids=(1, 2, 3), sampled=(True,) * marks, logprobs=(0.0,) * logprobs)


def spoken_words(name, *said):
    """The one segment of a conversation whose turns are sampled in these words."""
    words = small_tokenizer()
    chat = chat_format(name, words)
    turns = [words.encode(each, add_special_tokens=False).ids for each in said]
    _, talk = conversation(*(sampled(*ids) for ids in turns), chat=chat, tools=TOOLS)

    async def run():
        async with talk:
            spoken = []
            for number in range(len(said)):
                if number:
                    await talk.hear([reply("42")])
                spoken.append(await talk.speak(900))
            return spoken, talk.segments[0]

    spoken, segment = asyncio.run(run())
    return chat, turns, [each.message for each in spoken], segment


def test_the_newline_after_the_end_of_a_turn_is_there_and_is_not_trained():
    called = Assistant(text="", calls=(python_call("6*7"),))
    words = small_tokenizer()
    first = decode(words, chat_format("hermes", words).assistant(called))
    chat, turns, said, segment = spoken_words("hermes", first, "42<|im_end|>")
    assert said == [called, Assistant(text="42")]
    prompt, heard = chat.opening(QUESTION, TOOLS), chat.hear([reply("42")])
    assert list(segment.ids) == [*prompt, *turns[0], *heard, *turns[1]]
    assert decode(words, heard).startswith("\n<|im_start|>user\n<tool_response>")
    marks = [False] * len(prompt) + [True] * len(turns[0])
    marks += [False] * len(heard) + [True] * len(turns[1])
    assert list(segment.sampled) == marks
    assert turns[0][-1] == turns[1][-1] == chat.end_of_turn
    whole = chat.opening((*QUESTION, said[0], reply("42"), said[1], User(text="?")), TOOLS)
    assert whole[: len(segment)] == list(segment.ids)


def test_a_prompt_that_opens_thinking_is_continued_by_what_was_sampled_and_nothing_else():
    said = "six times seven is 42\n</think>\n\n42<|im_end|>"
    chat, (turn,), (message,), segment = spoken_words("hermes-thinking", said)
    prompt = chat.opening(QUESTION, TOOLS)
    assert list(segment.ids) == [*prompt, *turn]
    text = decode(small_tokenizer(), segment.ids)
    assert text.endswith(f"<|im_start|>assistant\n<think>\n{said}")
    assert (text.count("<think>"), text.count("</think>")) == (1, 1)
    assert (message.thinking, message.text) == ("six times seven is 42", "42")
