import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from forethought.core.errors import PolicyError, RecipeError
from forethought.core.messages import Assistant, System, ToolReply, ToolSpec, User
from forethought.core.randomness import RolloutKey
from forethought.core.trajectory import Finish
from forethought.policy.protocol import Conversation, Policy, SamplingSettings, Spoken
from forethought.policy.remote import RemotePolicy, RemoteSettings, check_endpoint
from policy.endpoint import Answer, serving

PYTHON = ToolSpec(
    name="python",
    description="Run Python.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string"}},
        "required": ["code"],
    },
)
KEY = RolloutKey(seed=0, group="exam/0/0/p", rollout=1)


def said(message: Mapping[str, Any], reason: str | None = "stop") -> Answer:
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **message}}
    return 200, {"choices": [choice], "usage": {"completion_tokens": 7}}


def tool_call(name: object, arguments: object) -> dict[str, Any]:
    return {"id": "", "type": "function", "function": {"name": name, "arguments": arguments}}


def ask_once(settings: RemoteSettings) -> Spoken:
    async def converse() -> Spoken:
        async with (
            RemotePolicy(settings, SamplingSettings()) as policy,
            policy.open((User(text="6 * 7?"),), (PYTHON,), KEY) as conversation,
        ):
            return await conversation.speak(100)

    return asyncio.run(converse())


@pytest.mark.parametrize(
    ("key", "refused", "least"),
    [("concurrency", 0, 1), ("timeout_seconds", 0.0, 0.5), ("retries", -1, 0)],
)
def test_limits_under_which_no_request_could_be_sent_are_refused(
    key: str, refused: float, least: float
) -> None:
    address = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
    with pytest.raises(ValidationError, match=key):
        RemoteSettings.model_validate({**address, key: refused})
    assert getattr(RemoteSettings.model_validate({**address, key: least}), key) == least


def test_a_conversation_with_a_tool_goes_there_and_back():
    thinking = {"content": None, "reasoning_content": "six sevens\n"}
    first = said(thinking | {"tool_calls": [tool_call("python", '{"code": "6*7"}')]}, "tool_calls")

    async def converse(settings: RemoteSettings) -> tuple[Spoken, Spoken]:
        remote = RemotePolicy(settings, SamplingSettings(temperature=0.5, max_tokens=64))
        policy: Policy = remote
        async with remote:
            conversation: Conversation = policy.open(
                (System(text="Be brief."), User(text="6 * 7?")), (PYTHON,), KEY
            )
            async with conversation:
                called = await conversation.speak(1000)
                reply = ToolReply(call_id=called.message.calls[0].id, name="python", text="42")
                await conversation.hear((reply,))
                answered = await conversation.speak(10)
                assert conversation.segments == ()
                return called, answered

    with serving(first, said({"content": "It is 42."})) as endpoint:
        called, answered = asyncio.run(converse(endpoint.settings()))

    assert called.message.thinking == "six sevens"
    assert [(call.id, call.fault) for call in called.message.calls] == [("call_0", "")]
    assert (called.finish, called.tokens) == (Finish.END_OF_TURN, 7)
    assert answered.message == Assistant(text="It is 42.")
    before, after = endpoint.asked
    assert before["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "6 * 7?"},
    ]
    assert before["tools"][0]["function"]["name"] == "python"
    assert (before["temperature"], before["max_tokens"], after["max_tokens"]) == (0.5, 64, 10)
    assert [before["seed"], after["seed"]] == [KEY.turn_seed(turn) % 2**31 for turn in range(2)]
    function = {"name": "python", "arguments": '{"code": "6*7"}'}
    assert after["messages"][2:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "42", "tool_call_id": "call_0"},
    ]


def test_earlier_thinking_is_sent_back_only_where_it_is_kept():
    async def converse(settings: RemoteSettings) -> None:
        async with RemotePolicy(settings, SamplingSettings()) as policy:
            conversation = policy.open((User(text="?"),), (), KEY)
            await conversation.speak(10)
            await conversation.speak(10)

    answer = said({"content": "<think>hm</think>so"})
    for kept in (True, False):
        with serving(answer, answer) as endpoint:
            asyncio.run(converse(endpoint.settings(thinking="keep" if kept else "strip")))
        row = endpoint.asked[1]["messages"][1]
        assert row["content"] == "so"
        assert ("reasoning_content" in row) is kept


@pytest.mark.parametrize(
    ("calls", "faults"),
    [
        ([tool_call("python", '{"code": "1"')], ["incomplete JSON"]),
        ([tool_call("python", "")], ["the arguments"]),
        ([tool_call("python", None)], ["no arguments"]),
        ([tool_call(None, "{}")], ["no name"]),
        ([tool_call("none", "{}")], ["no tool none"]),
        ([tool_call("python", "[]")], ["must be a JSON object"]),
        ([{"id": "x"}, "python", 1, None], ["no name"] * 4),
        ([tool_call("python", "{"), tool_call("python", {"code": "1"})], ["incomplete", ""]),
        ([tool_call("python", '{"code": "\ud800", "\ud800": 1}')], ["unknown argument"]),
    ],
)
def test_a_malformed_call_is_kept_with_a_fault_and_can_be_sent_back(
    calls: list[object], faults: list[str]
):
    async def converse(settings: RemoteSettings) -> Assistant:
        async with RemotePolicy(settings, SamplingSettings()) as policy:
            conversation = policy.open((User(text="?"),), (PYTHON,), KEY)
            spoken = await conversation.speak(10)
            await conversation.speak(10)
            return spoken.message

    answers = said({"content": "", "tool_calls": calls}), said({"content": "Sorry."})
    with serving(*answers) as endpoint:
        message = asyncio.run(converse(endpoint.settings()))
    assert len(message.calls) == len(faults)
    for place, (call, fault) in enumerate(zip(message.calls, faults, strict=True)):
        assert call.id == f"call_{place}"
        assert fault in call.fault
        assert bool(call.fault) is bool(fault)
        sent = endpoint.asked[1]["messages"][1]["tool_calls"][place]["function"]
        assert sent["name"]
        assert isinstance(json.loads(sent["arguments"]), dict)


def test_calls_that_the_server_left_in_the_text_are_read_there():
    text = '<think>hm</think><tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>'
    with serving(said({"content": text})) as endpoint:
        message = ask_once(endpoint.settings()).message
    assert (message.thinking, message.text) == ("hm", "")
    assert [(call.arguments, call.fault) for call in message.calls] == [('{"code": "1"}', "")]


@pytest.mark.parametrize(
    ("message", "reason", "finish"),
    [
        ({"content": "4"}, "stop", Finish.END_OF_TURN),
        ({"content": "4"}, None, Finish.END_OF_TURN),
        ({"content": "4"}, "length", Finish.TOKEN_LIMIT),
        ({"content": "<think>4"}, "length", Finish.TOKEN_LIMIT),
        ({"content": "<think>4"}, "stop", Finish.UNCLOSED_THINKING),
        ({"content": None}, "content_filter", Finish.REFUSED),
        ({"content": None, "refusal": "I cannot."}, "stop", Finish.REFUSED),
    ],
)
def test_why_a_turn_ended_is_told_in_our_terms(
    message: dict[str, Any], reason: str | None, finish: Finish
):
    with serving(said(message, reason)) as endpoint:
        assert ask_once(endpoint.settings()).finish is finish


def test_a_conversation_too_long_for_the_model_ends_as_context_full():
    error = {"message": "maximum context length is 10 tokens", "type": "invalid_request_error"}
    with serving((400, {"error": error})) as endpoint:
        spoken = ask_once(endpoint.settings())
    assert (spoken.finish, spoken.message) == (Finish.CONTEXT_FULL, Assistant(text=""))


def test_a_request_is_repeated_after_a_server_error():
    with serving((500, {}), (503, "busy"), said({"content": "42"})) as endpoint:
        assert ask_once(endpoint.settings()).message.text == "42"
    assert len(endpoint.asked) == 3


@pytest.mark.parametrize(
    "answer",
    [
        (401, {}),
        (404, {}),
        (400, {}),
        (500, {}),
        (200, "<html>"),
        (200, {"choices": []}),
        (200, []),
    ],
)
def test_an_answer_that_is_none_is_an_error_naming_endpoint_and_model(answer: Answer):
    with serving(answer) as endpoint, pytest.raises(PolicyError) as failure:
        ask_once(endpoint.settings(retries=0))
    assert f"'m' at {endpoint.url}" in str(failure.value)


def test_an_endpoint_that_is_down_or_silent_is_an_error_naming_it():
    with serving((200, None)) as endpoint, pytest.raises(PolicyError, match=r"'m' at .*Timeout"):
        ask_once(endpoint.settings(retries=0, timeout_seconds=0.1))
    with pytest.raises(PolicyError, match=f"'m' at {endpoint.url}.*Connection"):
        ask_once(endpoint.settings(retries=0))


def test_no_more_requests_are_in_flight_than_allowed():
    async def converse(settings: RemoteSettings) -> None:
        async with RemotePolicy(settings, SamplingSettings()) as policy:
            open_ones = [policy.open((User(text="?"),), (), KEY) for _ in range(12)]
            await asyncio.gather(*(conversation.speak(10) for conversation in open_ones))

    with serving(*[said({"content": "x" * 10_000})] * 12) as endpoint:
        asyncio.run(converse(endpoint.settings(concurrency=2)))
    assert len(endpoint.asked) == 12
    assert 1 <= endpoint.peak <= 2


def test_a_start_finds_an_endpoint_that_knows_the_model():
    models = {"object": "list", "data": [{"id": "org/m", "object": "model"}]}
    with serving((200, models), (200, models)) as endpoint:
        asyncio.run(check_endpoint(endpoint.settings(), "model"))
        with pytest.raises(RecipeError, match=r"'other'.*no such model.*org/m"):
            asyncio.run(check_endpoint(endpoint.settings(model="other"), "model"))


@pytest.mark.parametrize(("status", "remedy"), [(401, "key_variable"), (404, "/v1")])
def test_a_start_says_what_to_change_where_the_endpoint_refuses(status: int, remedy: str):
    wanted = rf"'m' at http.*{status}.*{remedy}"
    with serving((status, {})) as endpoint, pytest.raises(RecipeError, match=wanted):
        asyncio.run(check_endpoint(endpoint.settings(), "model"))


@pytest.mark.parametrize(
    "body", ["<html>", "", [], {}, "null", {"data": []}, {"data": [{}]}, {"data": [3]}, {"data": 3}]
)
def test_a_start_says_that_what_answers_is_no_such_endpoint(body: object):
    wanted = "answers, but not as an OpenAI endpoint: check base_url"
    with serving((200, body)) as endpoint, pytest.raises(RecipeError, match=wanted):
        asyncio.run(check_endpoint(endpoint.settings(retries=0), "model"))


def test_a_start_says_what_to_change_where_nothing_listens():
    with serving() as endpoint:
        pass
    with pytest.raises(RecipeError, match=f"^model: .*{endpoint.url} cannot be reached.*start"):
        asyncio.run(check_endpoint(endpoint.settings(retries=0), "model"))


def test_the_key_comes_from_the_variable_that_the_settings_name():
    os.environ["FORETHOUGHT_TEST_KEY"] = "secret"
    with serving(said({"content": "42"}), said({"content": "42"})) as endpoint:
        ask_once(endpoint.settings(key_variable="FORETHOUGHT_TEST_KEY"))
        ask_once(endpoint.settings())
        assert endpoint.keys[0] == "Bearer secret"
        assert "secret" not in str(endpoint.keys[1])
        with pytest.raises(RecipeError, match=r"FORETHOUGHT_NO_KEY is not set.*clear key_variable"):
            ask_once(endpoint.settings(key_variable="FORETHOUGHT_NO_KEY"))
    del os.environ["FORETHOUGHT_TEST_KEY"]
