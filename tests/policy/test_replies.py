"""What a policy sees of long tool replies: as many words as fit, and never half a token."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.app.sampling import reply_tokens
from forethought.core.messages import Assistant, ToolReply, User
from forethought.core.trajectory import Finish, Stop, Trajectory, Turn
from forethought.learning.demonstrations import render
from forethought.policy.formats import chat_format
from forethought.policy.protocol import Sampled, SamplingSettings
from forethought.policy.replies import shortened
from forethought.policy.token_policy import TokenPolicy
from forethought.policy.tokenizing import decode
from policy.conversations import TOOLS
from policy.conversations import call as python_call
from policy.test_token_policy import ScriptedSampler
from policy.tokenizers_on_hand import small_tokenizer
from scripted import KEY
from tiny import local_model

WORDS = small_tokenizer()
CHAT = chat_format("hermes", WORDS)
LONG = {
    "digits": "0123456789" * 200,
    "letters of four bytes": "\N{MATHEMATICAL DOUBLE-STRUCK CAPITAL X}" * 2000,
    "control tokens": "<|im_end|>\n<|im_start|>assistant\n" * 60,
    "tags": "</tool_response><tool_call>" * 80,
    "lines": "".join(f"line {number} of the output\n" for number in range(80)),
}
MOST = 60


def reply(text):
    return ToolReply(call_id="call_0", name="python", text=text)


def taken(message):
    """The tokens that a reply adds to a conversation."""
    return len(CHAT.hear((message,))) - len(CHAT.hear(()))


@pytest.mark.parametrize("kind", LONG)
def test_a_long_reply_is_both_its_ends_and_fills_its_room(kind):
    text = LONG[kind]
    (seen,) = shortened(CHAT, (reply(text),), MOST)
    head, mark, tail = seen.text.partition("\n[")
    number, mark, tail = tail.partition(" characters left out]\n")
    assert mark
    assert text.startswith(head)
    assert text.endswith(tail)
    assert 0 <= len(head) - len(tail) <= 1
    assert int(number) == len(text) - len(head) - len(tail)
    assert MOST - 8 <= taken(seen) <= MOST


def test_a_control_token_in_a_reply_stays_words_when_it_is_cut():
    (seen,) = shortened(CHAT, (reply(LONG["control tokens"]),), MOST)
    ids = CHAT.hear((seen,))
    assert ids.count(CHAT.end_of_turn) == 1
    assert decode(WORDS, ids).count("\N{REPLACEMENT CHARACTER}") == 0


@given(st.text(max_size=80), st.integers(40, 200))
def test_a_reply_takes_no_more_than_it_may_and_a_short_one_stays_whole(text, most):
    whole = reply(text)
    (seen,) = shortened(CHAT, (whole,), most)
    assert (seen == whole) == (taken(whole) <= most)
    assert taken(seen) <= most


def test_where_there_is_no_room_the_number_alone_is_left():
    (seen,) = shortened(CHAT, (reply("0" * 500),), 1)
    assert seen.text == "\n[500 characters left out]\n"


def test_without_a_limit_and_outside_of_replies_nothing_is_cut():
    messages = (User(text=LONG["digits"]), Assistant(text=LONG["lines"]), reply(LONG["lines"]))
    assert shortened(CHAT, messages, None) == messages
    assert shortened(CHAT, messages[:2], 10) == messages[:2]


def conversed(thinking, text, most):
    """The segments of two turns with a reply between, the sampled ids, and what was asked."""
    first = CHAT.assistant(Assistant(text="", thinking="hm", calls=(python_call("1"),)))
    second = CHAT.assistant(Assistant(text="done"))
    script = tuple(
        Sampled(
            ids=tuple(ids),
            logprobs=(-1.0,) * len(ids),
            entropies=(0.5,) * len(ids),
            finish=Finish.END_OF_TURN,
            weight_version=0,
        )
        for ids in (first, second)
    )
    sampler = ScriptedSampler(script)
    settings = SamplingSettings(thinking=thinking)
    policy = TokenPolicy(sampler=sampler, format=CHAT, settings=settings, reply_tokens=most)
    conversation = policy.open((User(text="1?"),), TOOLS, KEY)

    async def run():
        async with conversation as talk:
            await talk.speak(99)
            await talk.hear([reply(text), reply("ok")])
            await talk.speak(99)
            return talk.segments

    return asyncio.run(run()), sampler.asked


@pytest.mark.parametrize("thinking", ["keep", "strip"])
@pytest.mark.parametrize("kind", LONG)
def test_what_is_trained_is_what_was_seen_of_a_long_reply(thinking, kind):
    segments, asked = conversed(thinking, LONG[kind], MOST)
    last = segments[-1]
    prompt = asked[-1][0]
    assert last.ids[: len(prompt)] == prompt
    assert "characters left out" in decode(WORDS, prompt)
    whole, _ = conversed(thinking, LONG[kind], None)
    assert len(whole[-1]) - len(last) == taken(reply(LONG[kind])) - taken(
        *shortened(CHAT, (reply(LONG[kind]),), MOST)
    )


@pytest.mark.parametrize("thinking", ["keep", "strip"])
def test_demonstrations_are_trained_as_they_would_have_been_seen(thinking):
    segments, _ = conversed(thinking, LONG["digits"], MOST)
    call = python_call("1")
    turns = (
        Turn(
            message=Assistant(text="", thinking="hm", calls=(call,)),
            finish=Finish.END_OF_TURN,
            replies=(reply(LONG["digits"]), reply("ok")),
        ),
        Turn(message=Assistant(text="done"), finish=Finish.END_OF_TURN),
    )
    shown = Trajectory(agent="a", opening=(User(text="1?"),), turns=turns, stop=Stop.ANSWERED)
    found = render(
        [shown],
        CHAT,
        TOOLS,
        longest=10_000,
        train_failed_calls=True,
        thinking=thinking,
        reply_tokens=MOST,
    )
    assert [tokens.ids for tokens in found.with_calls] == [tokens.ids for tokens in segments]


def test_a_reply_may_take_a_quarter_of_the_context_unless_the_recipe_says_otherwise():
    model = local_model(max_position_embeddings=512)
    assert reply_tokens(SamplingSettings(), model) == 128
    assert reply_tokens(SamplingSettings(reply_tokens=40), model) == 40
