"""Commands on trajectories from a file: what was recorded elsewhere is imitated here."""

import json
import re
from pathlib import Path

import pytest
from benchmarks.small import coins

from app.small import forethought, outcome, refused
from forethought.core.trajectory import Stop
from forethought.core.verdict import Outcome
from forethought.journal.run import Run

FEW = ("--sft.phases.0.steps=2", "--sft.phases.1.steps=1", "--sft.held_out=0.1")
DATA = Path(__file__).parents[2] / "../shared/data/sharegpt_tools"
SEARCH = {"name": "search", "parameters": {"properties": {"q": {"type": "string"}}}}


def conversation(coin, kind):
    """A row of one of four kinds: with the run's tool, with none, with another, and a wrong one."""
    ask = {"role": "user", "content": coin["prompt"]}
    said = f"so \\boxed{{{coin['answer']}}}"
    answer = {"role": "assistant", "content": said, "reasoning_content": "easy"}
    if kind == "plain":
        return {"messages": [ask, answer]}
    if kind == "wrong":
        return {"messages": [ask, {**answer, "content": "so \\boxed{4}"}], "reward": 0.0}
    name, key = ("python", "code") if kind == "called" else ("search", "q")
    function = {"name": name, "arguments": json.dumps({key: coin["program"]})}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": function}]}
    reply = {"role": "tool", "tool_call_id": "a", "content": str(coin["answer"])}
    more = {"role": "user", "content": "and once more?"}
    row = {"id": coin["id"], "messages": [ask, call, reply, answer, more, answer]}
    return row if kind == "called" else {**row, "tools": [SEARCH]}


def written(folder, *more, count=300):
    """A file of so many rows, every fourth of a kind, and `more` rows after them."""
    kinds = ("called", "plain", "searched", "wrong")
    rows = [conversation(coin, kinds[n % 4]) for n, coin in enumerate(coins(count, "train"))]
    path = folder / "theirs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (*rows, *more)))
    return path


def taking(path, **others):
    """The override that takes the trajectories of a file."""
    keys = {"trajectories": str(path), **others}
    return f"--collect={{{', '.join(f'{key}={json.dumps(value)}' for key, value in keys.items())}}}"


def test_trajectories_of_a_file_are_recorded_and_imitated(recipe, tmp_path, capsys):
    folder, words = tmp_path / "run", (taking(written(tmp_path)), *FEW)
    assert forethought("collect", recipe, "--run", folder, *words) == 0
    said = capsys.readouterr().out
    assert "are taken from a file as they are" in said
    assert "recording: 300/300" in said
    assert "300 trajectories (225 right, 75 wrong, 0 not measured)" in said
    with Run.read(folder) as run:
        recorded = [episode for group in run.groups("collect") for episode in group.episodes]
        assert run.steps("collect") == [0, 1]
    kinds = {Outcome.RIGHT: 225, Outcome.WRONG: 75}
    assert {kind: sum(e.verdict.outcome is kind for e in recorded) for kind in kinds} == kinds
    (told,) = recorded[2].trajectories
    assert [tool.name for tool in told.tools or ()] == ["search"]
    assert [len(turn.heard) for turn in told.turns] == [0, 1, 0]
    assert told.stop is Stop.ANSWERED
    assert forethought("sft", recipe, "--run", folder, *words) == 0
    counts = (
        r"(\d+) trajectories with calls, (\d+) without, 0 left out(?:.|\n)*?(\d+) more are held"
    )
    found = re.search(counts, capsys.readouterr().out)
    assert found is not None
    assert sum(map(int, found.groups())) == 225
    trained = outcome(folder)
    assert len(trained.metrics["sft_first"]["loss"]) == 2
    assert trained.weights["sft_second"]
    assert forethought("report", folder) == 0
    assert "was given demonstrations from a file" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("name", "recorded"),
    [
        ("glaive_toolcall_en_300.json", "300 trajectories (300 right"),
        ("glaive_toolcall_zh_300.json.gz", "298 trajectories (298 right"),
        ("reason_tool_use_50.jsonl", "49 trajectories (49 right"),
    ],
)
def test_published_trajectories_are_imitated(recipe, tmp_path, capsys, name, recorded):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not present")
    long = ("--sft.longest=4000", "--model.context=4000", "--sft.phases.0.batch=2")
    words = ("--run", tmp_path / "run", taking(path, unusable="leave_out"), *FEW, *long)
    assert forethought("collect", recipe, *words) == 0
    assert recorded in capsys.readouterr().out
    assert forethought("sft", recipe, *words) == 0
    assert outcome(tmp_path / "run").weights["sft_second"]


def test_trajectories_decides_which_file_is_imitated(recipe, tmp_path, capsys):
    first = written(tmp_path, count=8)
    other = first.rename(tmp_path / "others.jsonl")
    words = ("collect", recipe, "--run", tmp_path / "run")
    assert forethought(*words, taking(other)) == 0
    assert "8 trajectories (6 right, 2 wrong, 0 not measured)" in capsys.readouterr().out
    written(tmp_path, count=12)
    assert "collect.trajectories was" in refused(capsys, *words, taking(first))
    assert forethought(*words[:-1], tmp_path / "again", taking(first)) == 0
    assert "12 trajectories (9 right, 3 wrong, 0 not measured)" in capsys.readouterr().out


def test_unusable_decides_whether_rows_are_left_out(recipe, tmp_path, capsys):
    path = written(tmp_path, {"messages": [{"role": "user", "content": "?"}]}, count=8)
    words = ("collect", recipe, "--run", tmp_path / "run")
    message = refused(capsys, *words, taking(path))
    assert "theirs.jsonl: 1 of 9 rows cannot be used (the first: row 9: the assistant" in message
    assert 'set collect.unusable = "leave_out"' in message
    assert forethought(*words, taking(path, unusable="leave_out")) == 0
    said = capsys.readouterr().out
    assert "1 of 9 rows are left out, since they cannot be used (the first: row 9: " in said
    assert "8 trajectories (6 right" in said


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([], "holds no rows"),
        ([{"prompt": "?"}], "1 of 1 rows cannot be used"),
        ([conversation({"prompt": "?", "answer": 3}, "wrong")], "none of 1 rows is right by its"),
    ],
)
def test_a_file_with_nothing_to_imitate_is_refused(recipe, tmp_path, capsys, rows, complaint):
    path = written(tmp_path, *rows, count=0)
    words = ("collect", recipe, "--run", tmp_path / "run", taking(path, unusable="leave_out"))
    assert complaint in refused(capsys, *words)


def test_a_file_that_is_not_there_is_named(recipe, tmp_path, capsys):
    words = ("--run", tmp_path / "run", taking(tmp_path / "none.jsonl"))
    assert "none.jsonl is no file: give the path" in refused(capsys, "collect", recipe, *words)


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ({"problems": 12}, "collect.problems"),
        ({"demonstrators": {"styles": {"direct": 1.0}}}, "collect.demonstrators"),
        ({"teacher": {"base_url": "http://127.0.0.1:9/v1", "model": "m"}}, "collect.teacher"),
    ],
)
def test_a_file_beside_somebody_who_shows_problems_is_refused(
    recipe, tmp_path, capsys, others, named
):
    overrides = [f"--collect.{key}={table(value)}" for key, value in others.items()]
    words = ("--run", tmp_path / "run", taking(written(tmp_path, count=4)), *overrides)
    message = refused(capsys, "collect", recipe, *words)
    assert f"all of the file is taken and nobody shows problems; remove {named}, or" in message


def table(value):
    """A value as TOML has it on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={table(part)}" for key, part in value.items()) + "}"
    return json.dumps(value)
