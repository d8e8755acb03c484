import gzip
import json
from typing import Any

import pytest

from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant, System, ToolCall, ToolReply, User
from forethought.policy.openai_form import messages_from_openai, messages_to_openai
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


def test_real_recorded_conversations_are_read_whole():
    path = DATA / "tau_trajectories/gpt-4o-airline.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is not present")
    for number, record in enumerate(json.loads(gzip.decompress(path.read_bytes()))):
        messages = messages_from_openai(record["traj"], f"record {number}")
        assert len(messages) == len(record["traj"])
        assert messages_from_openai(messages_to_openai(messages), "again") == messages
