"""Episodes leave as JSON lines that any program can read."""

import json
import math
from dataclasses import replace

import pytest

from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant, ToolCall, ToolSpec
from forethought.core.trajectory import Episode, Group
from forethought.journal.export import export_jsonl, openai_message
from forethought.journal.run import Run
from journal.journal_values import small_group


@pytest.fixture
def run(tmp_path):
    with Run.create_or_open(tmp_path / "run", {}) as run:
        yield run


def test_an_episode_is_one_line_in_messages_form(run, tmp_path):
    stage = run.stage("rl")
    stage.keep(0, [small_group("g")])
    stage.commit(0)
    path = tmp_path / "episodes.jsonl"
    assert export_jsonl(run, ["rl"], path) == {"rl": 2}
    right, wrong = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    assert right["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "6 * 7?"},
        {
            "role": "assistant",
            "content": "compute",
            "reasoning_content": "hm",
            "tool_calls": [
                {
                    "id": "call_0",
                    "type": "function",
                    "function": {"name": "python", "arguments": '{"code": "print(6 * 7)"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_0", "content": "42\u2028"},
        {"role": "assistant", "content": "42"},
    ]
    assert (right["outcome"], right["stop"], wrong["outcome"]) == ("right", "answered", "wrong")


def test_stages_follow_one_another_and_each_line_says_its_own_and_its_step(run, tmp_path):
    for name, steps in (("measure", 1), ("rl", 2)):
        stage = run.stage(name)
        for step in range(steps):
            stage.keep(step, [small_group(f"{name}/{step}", size=1)])
            stage.commit(step)
    run.stage("sft_first").commit(0)
    assert run.attempts() == {"measure": 1, "rl": 2}
    path = tmp_path / "episodes.jsonl"
    assert export_jsonl(run, ["rl", "measure"], path) == {"rl": 2, "measure": 1}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert [(line["id"], line["stage"], line["step"]) for line in lines] == [
        ("rl/0/0", "rl", 0),
        ("rl/1/0", "rl", 1),
        ("measure/0/0", "measure", 0),
    ]


def test_what_an_attempt_earned_goes_with_it_and_what_is_not_known_is_null(run, tmp_path):
    stage = run.stage("rl")
    for step in range(2):
        stage.keep(step, [small_group(f"{step}")])
    stage.keep_rewards(0, {"0/0": {"outcome": 1.0, "tool_bonus": 0.25}})
    stage.keep_rewards(1, {"1/1": {"outcome": -1.0, "judge": math.nan}})
    for step in range(2):
        stage.commit(step)
    path = tmp_path / "episodes.jsonl"
    export_jsonl(run, ["rl"], path)
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert {line["id"]: (line["reward"], line["components"]) for line in lines} == {
        "0/0": (1.25, {"outcome": 1.0, "tool_bonus": 0.25}),
        "0/1": (None, None),
        "1/0": (None, None),
        "1/1": (None, {"outcome": -1.0, "judge": None}),
    }


DEEP = '{"a":' * 100_000


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("python", '{"code": '),
        ("python", "print(1)"),
        ("python", ""),
        ("python", '["print(1)"]'),
        ("python", '{"code": NaN}'),
        ("python", DEEP),
        ("", '{"name": "", "arguments": {}}'),
    ],
)
def test_a_call_that_is_none_is_exported_as_one_that_other_programs_take(name, arguments):
    call = ToolCall(id="call_0", name=name, arguments=arguments, fault="not a call")
    [row] = openai_message(Assistant(text="", calls=(call,)))["tool_calls"]
    assert row["function"]["name"] == (name or "unreadable")
    assert json.loads(row["function"]["arguments"]) == {"unreadable": arguments}


def test_arguments_that_are_an_object_are_exported_as_the_model_wrote_them():
    written = '{ "code" : "print(1)" , "extra": {}}'
    call = ToolCall(id="call_0", name="python", arguments=written, fault="unknown argument extra")
    [row] = openai_message(Assistant(text="", calls=(call,)))["tool_calls"]
    assert row["function"] == {"name": "python", "arguments": written}


def test_a_teams_further_sides_follow_and_an_empty_episode_has_no_messages(run, tmp_path):
    group = small_group("g", size=1)
    one = group.episodes[0]
    sides = one.trajectories * 3
    team = Episode(id="t", problem=one.problem, trajectories=sides, verdict=one.verdict)
    empty = Episode(id="e", problem=one.problem, trajectories=(), verdict=one.verdict)
    stage = run.stage("rl")
    stage.keep(0, [Group(id="g", problem=group.problem, episodes=(team, empty))])
    stage.commit(0)
    path = tmp_path / "episodes.jsonl"
    export_jsonl(run, ["rl"], path)
    first, second = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    assert [side["messages"] for side in first["teammates"]] == [first["messages"]] * 2
    assert second["messages"] == []


def test_the_tools_that_were_an_episodes_own_go_with_it(run, tmp_path):
    group = small_group("g", size=1)
    search = ToolSpec(name="search", description="Find.", parameters={"type": "object"})
    told = replace(group.episodes[0].trajectories[0], tools=(search,))
    stage = run.stage("collect")
    stage.keep(0, [replace(group, episodes=(replace(group.episodes[0], trajectories=(told,)),))])
    stage.commit(0)
    path = tmp_path / "episodes.jsonl"
    export_jsonl(run, ["collect"], path)
    (line,) = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    function = {"name": "search", "description": "Find.", "parameters": {"type": "object"}}
    assert line["tools"] == [{"type": "function", "function": function}]


def test_an_export_that_fails_leaves_the_old_file_and_nothing_beside_it(run, tmp_path):
    path = tmp_path / "out" / "episodes.jsonl"
    with pytest.raises(RecipeError, match=r"episodes\.jsonl cannot be written"):
        export_jsonl(run, ["rl"], path)
    path.parent.mkdir()
    path.mkdir()
    with pytest.raises(RecipeError, match=r"episodes\.jsonl cannot be written"):
        export_jsonl(run, ["rl"], path)
    assert list(path.parent.iterdir()) == [path]
