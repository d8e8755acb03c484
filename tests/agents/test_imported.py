"""Rows of a file become episodes, as they are; what cannot be used is told with its row."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from forethought.agents.imported import ImportedFile, imported
from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant, System, ToolCall, ToolReply, ToolSpec, User
from forethought.core.trajectory import Episode, Stop
from forethought.core.verdict import Outcome
from scripted import PYTHON

DATA = Path(__file__).parents[2] / "../shared/data"
ASK = {"role": "user", "content": "6 * 7?"}
SAY = {"role": "assistant", "content": "It is 42."}
REPLY = {"role": "tool", "content": "42"}


def calling(name: str = "python", **arguments: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"function": {"name": name, "arguments": arguments}}],
    }


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(folder: Path, *rows: Any) -> ImportedFile:
    return imported(written(folder, *rows), [PYTHON])


def episodes(found: ImportedFile) -> list[Episode]:
    return [episode for group in found.groups for episode in group.episodes]


def test_a_row_becomes_the_one_attempt_at_a_problem_of_its_own(tmp_path: Path):
    first = {"messages": [ASK, calling(code="print(6*7)"), REPLY, SAY], "answer": 42}
    second = {"id": 7, "domain": "sums", "messages": [ASK, SAY]}
    found = read(tmp_path, first, second)
    assert found.unusable == ()
    (one, two) = episodes(found)
    assert [group.id for group in found.groups] == ["collect/mine-1", "collect/7"]
    assert (one.id, one.right, one.problem.prompt, one.problem.answer) == (
        "collect/mine-1/0",
        True,
        "6 * 7?",
        "42",
    )
    assert (two.problem.id, two.problem.domain, two.problem.answer) == ("7", "sums", "")
    (trajectory,) = one.trajectories
    call = ToolCall(id="call_0", name="python", arguments='{"code": "print(6*7)"}')
    reply = ToolReply(call_id="call_0", name="python", text="42")
    assert trajectory.opening == (User(text="6 * 7?"),)
    assert [(turn.message.calls, turn.replies) for turn in trajectory.turns] == [
        ((call,), (reply,)),
        ((), ()),
    ]
    assert (trajectory.stop, trajectory.tools, trajectory.segments) == (Stop.ANSWERED, None, ())


def test_a_conversation_goes_on_after_what_others_say_and_keeps_its_end(tmp_path: Path):
    system = {"role": "system", "content": "Be brief."}
    more, thanks = ({"role": "user", "content": text} for text in ("And 7 * 7?", "Thanks."))
    rows = [system, ASK, calling(code="1"), REPLY, SAY, more, {**SAY, "content": "49."}, thanks]
    (episode,) = episodes(read(tmp_path, {"messages": rows}))
    (trajectory,) = episode.trajectories
    assert trajectory.opening == (System(text="Be brief."), User(text="6 * 7?"))
    assert [turn.heard for turn in trajectory.turns] == [
        (),
        (User(text="And 7 * 7?"),),
        (User(text="Thanks."),),
    ]
    assert [message.role for message in trajectory.messages] == [row["role"] for row in rows]


def test_a_record_may_end_with_a_call_that_nothing_answers(tmp_path: Path):
    (episode,) = episodes(read(tmp_path, {"messages": [ASK, calling(code="1")]}))
    assert episode.trajectories[0].stop is Stop.TURN_LIMIT
    assert episode.right


def test_a_row_may_bring_the_tools_that_its_agent_was_told_of(tmp_path: Path):
    tools = [{"type": "function", "function": {"name": "search", "description": "Find."}}]
    row = {"messages": [ASK, calling("search", q="x"), REPLY, SAY], "tools": tools}
    (one, two) = episodes(read(tmp_path, row, {"messages": [ASK, SAY], "tools": []}))
    nothing = {"type": "object", "properties": {}}
    search = ToolSpec(name="search", description="Find.", parameters=nothing)
    assert one.trajectories[0].tools == (search,)
    assert one.problem.tools == ("search",)
    assert two.trajectories[0].tools == ()


@pytest.mark.parametrize(
    ("says", "outcome", "score"),
    [
        ({}, Outcome.RIGHT, 1.0),
        ({"reward": None}, Outcome.RIGHT, 1.0),
        ({"reward": 1}, Outcome.RIGHT, 1.0),
        ({"reward": 2.0}, Outcome.RIGHT, 1.0),
        ({"reward": 0.25}, Outcome.WRONG, 0.25),
        ({"reward": -1.0}, Outcome.WRONG, 0.0),
        ({"outcome": "right", "reward": -1.0}, Outcome.RIGHT, 1.0),
        ({"outcome": "wrong", "reward": 1.25}, Outcome.WRONG, 0.0),
        ({"outcome": "not_measured"}, Outcome.NOT_MEASURED, 0.0),
    ],
)
def test_a_row_is_right_unless_it_says_otherwise(
    tmp_path: Path, says: Any, outcome: Any, score: Any
):
    (episode,) = episodes(read(tmp_path, {"messages": [ASK, SAY], **says}))
    assert (episode.verdict.outcome, episode.verdict.score) == (outcome, score)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"prompt": "?"}, "needs a list of `messages`"),
        ({"messages": [ASK]}, "the assistant says nothing in it: leave the row out"),
        ({"messages": [SAY, ASK, SAY]}, "it begins with the assistant"),
        ({"messages": [ASK, {**SAY, "content": " "}]}, "message 1: the assistant says nothing"),
        (
            {"messages": [ASK, {**SAY, "content": None, "reasoning_content": "hm"}]},
            "message 1: the assistant says nothing: mend the row",
        ),
        ({"messages": [{**ASK, "content": ""}, SAY]}, "message 0: the user says nothing"),
        ({"messages": [ASK, REPLY, SAY]}, "message 1: the reply answers a call"),
        ({"messages": [ASK, {"role": "bot", "content": "x"}]}, "the role 'bot' is unknown"),
        (
            {"messages": [ASK, calling("search", q="x")]},
            "it calls 'search', and the tools are: python;",
        ),
        (
            {"messages": [ASK, calling(code="1")], "tools": []},
            "the tools are: none; list that tool",
        ),
        (
            {"messages": [ASK, calling(text="1")]},
            "the call of 'python': the argument code is missing",
        ),
        ({"messages": [ASK, SAY], "reward": "good"}, 'the reward is "good": give a number'),
        ({"messages": [ASK, SAY], "reward": float("nan")}, "the reward is NaN"),
        (
            {"messages": [ASK, SAY], "outcome": "solved"},
            'the outcome is "solved": use right, wrong',
        ),
        ({"messages": [ASK, SAY], "id": ["a"]}, "'id' is .*: give text"),
        ({"messages": [ASK, SAY], "tools": [7]}, "tool 0: 7 is no tool"),
    ],
)
def test_a_row_that_cannot_be_used_is_left_to_the_reader_with_its_reason(
    tmp_path: Path, row: Any, complaint: str
):
    found = read(tmp_path, {"messages": [ASK, SAY]}, row)
    assert len(found.groups) == 1
    (reason,) = found.unusable
    assert reason.startswith("row 2")
    with pytest.raises(RecipeError, match=complaint):
        raise RecipeError(reason)


def test_an_id_that_is_used_twice_is_an_error(tmp_path: Path):
    row = {"id": "a", "messages": [ASK, SAY]}
    with pytest.raises(RecipeError, match=r"mine\.jsonl, row 2: the id 'a' is taken: make ids"):
        read(tmp_path, row, row)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "is no file"),
        ("", "holds no rows"),
        ('{"messages": [\n', "row 1: not JSON"),
        ('{"messages": []}\n[1]', "row 2: needs a JSON object"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, complaint: str):
    path = tmp_path / "mine.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RecipeError, match=rf"mine\.jsonl.*{complaint}"):
        imported(path, [PYTHON])


def real(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not present")
    return path


@pytest.mark.parametrize(
    ("name", "rows", "unusable", "replies", "thinking"),
    [
        ("sharegpt_tools/glaive_toolcall_en_300.json", 300, 0, 211, 0),
        ("sharegpt_tools/glaive_toolcall_zh_300.json.gz", 298, 2, 216, 0),
        ("sharegpt_tools/reason_tool_use_50.jsonl", 49, 1, 41, 110),
        ("tora/tora_examples_30.jsonl", 30, 0, 0, 0),
        ("gym_rollouts/ns_tools.jsonl.gz", 5, 0, 21, 26),
        ("gym_rollouts/tau2_retail.jsonl.gz", 5, 0, 20, 0),
        ("gym_rollouts/xlam_fc.jsonl", 5, 0, 6, 10),
    ],
)
def test_published_files_are_read_as_they_are(
    name: str, rows: int, unusable: int, replies: int, thinking: int
):
    found = imported(real(name), [PYTHON])
    told = [episode.trajectories[0] for episode in episodes(found)]
    turns = [turn for one in told for turn in one.turns]
    assert (len(found.groups), len(found.unusable)) == (rows, unusable)
    assert sum(len(one.replies) for one in told) == replies
    assert sum(bool(turn.message.thinking) for turn in turns) == thinking
    assert all(isinstance(turn.message, Assistant) for turn in turns)


def test_recorded_episodes_with_a_reward_need_only_their_tools(tmp_path: Path):
    recorded = json.loads(
        gzip.decompress(real("tau_trajectories/gpt-4o-airline.json.gz").read_bytes())
    )
    tools = json.loads(real("tau_bench/airline/tools.json").read_text())
    bare = read(tmp_path, *recorded[:2])
    assert "it calls 'get_user_details', and the tools are: python" in bare.unusable[0]
    found = read(tmp_path, *({**row, "tools": tools} for row in recorded))
    assert found.unusable == ()
    assert Counter(episode.right for episode in episodes(found)) == {True: 59, False: 101}
    said = [episode.trajectories[0].messages for episode in episodes(found)]
    assert [len(one) for one in said] == [len(row["traj"]) for row in recorded]
