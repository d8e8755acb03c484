"""Records in other shapes become rows of OpenAI's form, and what is none of them is named."""

import json
from typing import Any

import pytest

from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant, Message, System, ToolCall, ToolReply, User
from forethought.policy.openai_form import messages_from_openai
from forethought.policy.published_form import conversation, own_tools

CALL = ToolCall(id="call_0", name="f", arguments='{"n": 1}')
TOLD = (
    System(text="Be brief."),
    User(text="?"),
    Assistant(text="", calls=(CALL,)),
    ToolReply(call_id="call_0", name="f", text="2"),
    Assistant(text="Two."),
)
CALLED = json.dumps({"name": "f", "arguments": {"n": 1}})


def read(**fields: Any) -> tuple[Message, ...]:
    return messages_from_openai(conversation(fields, "row 1"), "row 1")


@pytest.mark.parametrize("called", [CALLED, f"[{CALLED}]"])
def test_sharegpt_has_calls_and_observations_as_entries(called: str):
    entries = [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "?"},
        {"from": "function_call", "value": called},
        {"from": "observation", "value": "2"},
        {"from": "gpt", "value": "Two."},
    ]
    assert read(conversations=entries) == TOLD
    assert read(conversations=entries[1:], system="Be brief.") == TOLD
    assert read(conversations=entries, system="Be long.") == TOLD


def test_content_in_parts_holds_thinking_and_calls():
    def message(role: str, *parts: tuple[str, str]) -> dict[str, Any]:
        return {"role": role, "content": [{"type": kind, "value": text} for kind, text in parts]}

    system, question, call, reply, answer = TOLD
    assert isinstance(call, Assistant)
    assert read(
        messages=[
            message("system", ("text", "Be brief.")),
            message("user", ("text", "?")),
            message("assistant", ("reasoning", "hm"), ("tool_call", CALLED)),
            message("tool", ("text", "2")),
            message("assistant", ("text", "Two.")),
        ]
    ) == (system, question, Assistant(text="", thinking="hm", calls=call.calls), reply, answer)


def test_items_of_a_response_are_turns():
    given = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}]
    said = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I ask."}],
        },
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"n": 1}'},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": '{"n": 2}'},
        {"type": "function_call_output", "call_id": "b", "output": "4"},
        {"type": "function_call_output", "call_id": "a", "output": "2"},
        {"type": "message", "role": "assistant", "content": "Two."},
    ]
    found = read(responses_create_params={"input": given}, response={"output": said})
    calls = (
        ToolCall(id="a", name="f", arguments='{"n": 1}'),
        ToolCall(id="b", name="f", arguments='{"n": 2}'),
    )
    assert found == (
        *TOLD[:2],
        Assistant(text="I ask.", thinking="hm", calls=calls),
        ToolReply(call_id="b", name="f", text="4"),
        ToolReply(call_id="a", name="f", text="2"),
        Assistant(text="Two."),
    )
    alone = read(responses_create_params={"input": "?"}, response={"output": said[-1:]})
    assert alone == (TOLD[1], TOLD[-1])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"prompt": "?", "completion": "!"},
            "needs a list of `messages`.*it has prompt, completion",
        ),
        ({"messages": []}, "needs a list of `messages`"),
        ({"messages": "?"}, "needs a list of `messages`"),
        ({}, "it has nothing"),
        ({"conversations": [{"from": "narrator", "value": "x"}]}, "message 0: the role 'narrator'"),
        ({"conversations": [{"from": "function_call", "value": "f("}]}, "message 0, call: 'f\\('"),
        ({"messages": [7]}, "message 0: needs an object"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "value": "x"}]}]},
            "which is no text",
        ),
        ({"response": {"output": [{"type": "web_search_call"}]}}, "the role 'web_search_call'"),
        ({"response": {"output": [7]}}, "message 0: needs an object"),
    ],
)
def test_a_record_in_no_known_shape_is_an_error(fields: dict[str, Any], reason: str):
    with pytest.raises(RecipeError, match=f"row 1.*{reason}"):
        read(**fields)


def test_tools_are_listed_or_written_as_text_or_not_there():
    tools = [{"type": "function", "function": {"name": "f"}}, {"name": "g", "parameters": {}}]
    for listed in (tools, json.dumps(tools)):
        assert [tool.name for tool in own_tools({"tools": listed}, "row 1") or ()] == ["f", "g"]
    assert own_tools({"responses_create_params": {"tools": []}}, "row 1") == ()
    for absent in ({}, {"tools": None}, {"tools": " "}):
        assert own_tools(absent, "row 1") is None


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        ("f(", "tools: 'f\\(' is not JSON"),
        ({"name": "f"}, "`tools` is no list"),
        ([7], "tool 0: 7"),
    ],
)
def test_tools_that_are_none_are_an_error(listed: Any, reason: str):
    with pytest.raises(RecipeError, match=f"row 1.*{reason}"):
        own_tools({"tools": listed}, "row 1")
