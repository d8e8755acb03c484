import gzip
import json
from typing import Any

import pytest

from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant, System, ToolCall, ToolReply, ToolSpec, User
from forethought.policy.openai_form import (
    messages_from_openai,
    messages_to_openai,
    tool_from_openai,
)
from policy.tokenizers_on_hand import DATA

CALL = {"id": "a", "type": "function", "function": {"name": "python", "arguments": "{}"}}


def test_a_conversation_survives_the_way_there_and_back():
    messages = (
        System(text="Be brief."),
        User(text="Été?"),
        Assistant(
            text="So",
            thinking="hm",
            calls=(
                ToolCall(id="call_0", name="python", arguments='{"code": "é\\n"}'),
                ToolCall(id="call_1", name="python", arguments="{}"),
            ),
        ),
        ToolReply(call_id="call_1", name="python", text="b"),
        ToolReply(call_id="call_0", name="python", text="a"),
        Assistant(text="Yes"),
    )
    rows = json.loads(json.dumps(messages_to_openai(messages)))
    assert messages_from_openai(rows, "row 1") == messages


def test_a_call_that_could_not_be_read_is_written_as_a_bounded_object():
    broken = ToolCall(id="call_0", name="", arguments='{"code": ' + "x" * 999, fault="incomplete")
    (row,) = messages_to_openai([Assistant(text="", calls=(broken,))])
    function = row["tool_calls"][0]["function"]
    assert function["name"] == "unreadable"
    assert 0 < len(json.loads(function["arguments"])["unreadable"]) <= 200


def test_replies_without_a_call_id_answer_the_calls_in_order():
    calls = [CALL | {"id": "a"}, CALL | {"id": "b"}]
    rows: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": [{"type": "text", "text": "1"}]},
        {"role": "tool", "content": "2"},
    ]
    messages = messages_from_openai(rows, "row 1")
    assert messages[1:] == (
        ToolReply(call_id="a", name="python", text="1"),
        ToolReply(call_id="b", name="python", text="2"),
    )


@pytest.mark.parametrize("arguments", ["print(1)", "[1]", None, ["a"], '{"code": '])
def test_recorded_arguments_that_are_no_object_are_an_error_naming_the_row(arguments: object):
    call = {"id": "a", "function": {"name": "python", "arguments": arguments}}
    rows = [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [call]}]
    with pytest.raises(RecipeError, match=r"file\.jsonl row 7, message 1: .*'python'.*mend"):
        messages_from_openai(rows, "file.jsonl row 7")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"role": "narrator", "content": "x"}], "role 'narrator' is unknown"),
        ([{"content": "x"}], "role None is unknown"),
        ([{"role": "tool", "tool_call_id": "a", "content": "x"}], "answers the call 'a'"),
        (
            [
                {"role": "assistant", "tool_calls": [CALL]},
                *[{"role": "tool", "tool_call_id": "a", "content": "x"}] * 2,
            ],
            "message 2: the reply answers the call 'a'",
        ),
    ],
)
def test_a_record_that_is_no_conversation_is_an_error(rows: list[dict[str, Any]], reason: str):
    with pytest.raises(RecipeError, match=reason):
        messages_from_openai(rows, "row 1")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (7, "needs an object with `role` and `content`, got 7"),
        ({"role": "user", "content": 7}, "the content holds 7, which is no text"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "x"}]},
            'holds .*"image_url".*, which is no text: leave the record out',
        ),
        ({"role": "assistant", "tool_calls": "x"}, 'tool_calls is "x": give a list'),
        ({"role": "assistant", "tool_calls": ["x"]}, 'the call "x" has no name'),
        ({"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]}, "has no name"),
        ({"role": "assistant", "reasoning": ["x"]}, r'the reasoning is \["x"\]: give text'),
        ({"role": "assistant", "content": "<think>so"}, "<think> is not closed by </think>"),
        ({"role": "assistant", "content": "<tool_call>x</tool_call>"}, "the call: not JSON.*mend"),
        ({"role": "tool", "content": "x"}, "the reply answers a call, which .* does not make"),
        ({"role": ["user"], "content": "x"}, r"the role \['user'\] is unknown"),
    ],
)
def test_a_message_that_cannot_be_taken_as_it_is_is_named_with_its_place(row: Any, reason: str):
    rows = [{"role": "user", "content": "?"}, row]
    with pytest.raises(RecipeError, match=f"^row 3, message 1: .*{reason}"):
        messages_from_openai(rows, "row 3")


def test_a_reply_that_stands_after_other_words_answers_no_call():
    rows: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "user", "content": "well?"},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]
    with pytest.raises(RecipeError, match="message 2: the reply answers the call 'a'"):
        messages_from_openai(rows, "row 1")


def test_thinking_and_calls_that_were_written_into_the_text_are_read_there():
    arguments = '{"code": "print(6 * 7)"}'
    called = f'<tool_call>\n{{"name": "python", "arguments": {arguments}}}\n</tool_call>'
    rows = [
        {"role": "assistant", "content": f"<think>\nhm\n</think>\n\nI compute.\n{called}"},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": " It is 42.\n"},
    ]
    call = ToolCall(id="call_0", name="python", arguments=arguments)
    assert messages_from_openai(rows, "row 1") == (
        Assistant(text="I compute.", thinking="hm", calls=(call,)),
        ToolReply(call_id="call_0", name="python", text="42"),
        Assistant(text=" It is 42.\n"),
    )


def test_a_call_in_tags_is_typed_by_its_tool():
    tool = tool_from_openai(
        {"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}}, ""
    )
    text = "<tool_call><function=f><parameter=n>7</parameter></function></tool_call>"
    (message,) = messages_from_openai([{"role": "assistant", "content": text}], "row 1", [tool])
    assert isinstance(message, Assistant)
    assert message.calls == (ToolCall(id="call_0", name="f", arguments='{"n": 7}'),)


def test_the_older_form_of_a_single_call_is_read():
    rows: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
    ]
    assert messages_from_openai(rows, "row 1") == (
        Assistant(text="", calls=(ToolCall(id="call_0", name="f", arguments="{}"),)),
        ToolReply(call_id="call_0", name="f", text="1"),
    )


def test_a_tool_survives_the_way_there_and_back():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = ToolSpec(name="f", description="Count.", parameters=schema)
    assert tool_from_openai(tool.as_function(), "row 1") == tool
    bare = tool_from_openai({"name": "f"}, "row 1")
    assert bare.parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("f", '"f" is no tool'),
        ({"parameters": {}}, "is no tool: give it a name"),
        ({"name": "f", "parameters": 3}, "is no tool"),
        ({"name": "f", "parameters": {"properties": []}}, "the properties of the tool 'f' are"),
    ],
)
def test_what_is_no_tool_is_an_error(entry: Any, reason: str):
    with pytest.raises(RecipeError, match=f"row 1: .*{reason}"):
        tool_from_openai(entry, "row 1")


def test_real_recorded_conversations_are_read_whole():
    path = DATA / "tau_trajectories/gpt-4o-airline.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is not present")
    for number, record in enumerate(json.loads(gzip.decompress(path.read_bytes()))):
        messages = messages_from_openai(record["traj"], f"record {number}")
        assert len(messages) == len(record["traj"])
        assert messages_from_openai(messages_to_openai(messages), "again") == messages
