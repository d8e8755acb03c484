"""A run's attempts leave as one file of JSON lines, through the command line."""

import json
import sqlite3

import pytest

from app.small import forethought, refused
from forethought.journal.run import Run
from journal.journal_values import small_group


def made(place, **groups):
    """A run whose stages have kept so many groups of two attempts, one a step."""
    with Run.create_or_open(place, {}) as run:
        for name, count in groups.items():
            stage = run.stage(name)
            for step in range(count):
                stage.keep(step, [small_group(f"{name}/{step}")])
                stage.commit(step)
            if not count:
                stage.commit(0)
    return place


def lines(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_every_attempt_of_a_run_is_a_line_with_what_it_earned(staged, tmp_path, capsys):
    file = tmp_path / "out" / "attempts.jsonl"
    assert forethought("export", staged.rl, file) == 0
    said = capsys.readouterr().out
    found = lines(file)
    with Run.read(staged.rl) as run:
        kept = run.attempts()
        assert list(kept) == ["collect", "measure", "rl"]
        expected = [
            (stage, step, group.id, episode.id, run.rewards(stage, step).get(episode.id))
            for stage in kept
            for step in run.steps(stage)
            for group in run.groups(stage, step)
            for episode in group.episodes
        ]
    told = ("stage", "step", "group", "id", "components")
    assert [tuple(line[name] for name in told) for line in found] == expected
    assert {line["stage"] for line in found if line["components"]} == {"rl"}
    assert all(line["messages"][-1]["role"] in {"assistant", "tool"} for line in found)
    counts = ", ".join(f"{name} {count}" for name, count in kept.items())
    assert f"{file} holds an attempt a line, {len(found)} in all: {counts}\n" in said
    assert f"Next: head -n 1 {file} shows the first; --stage rl writes that stage alone" in said


def test_one_stage_may_leave_alone(tmp_path, capsys):
    run, file = made(tmp_path / "run", measure=1, rl=3), tmp_path / "rl.jsonl"
    assert forethought("export", run, file, "--stage", "rl") == 0
    assert [line["stage"] for line in lines(file)] == ["rl"] * 6
    said = capsys.readouterr().out
    assert f"{file} holds an attempt a line, 6 in all: rl 6\n" in said
    assert said.endswith(f"Next: head -n 1 {file} shows the first\n")


def test_a_file_that_is_there_is_not_written_over(tmp_path, capsys):
    run, file = made(tmp_path / "run", rl=1), tmp_path / "mine.jsonl"
    file.write_text("mine")
    message = refused(capsys, "export", run, file)
    assert f"{file} is there already: name a new file" in message
    assert file.read_text() == "mine"


def test_a_file_may_be_called_by_its_ending_alone(tmp_path):
    file = tmp_path / ".jsonl"
    assert forethought("export", made(tmp_path / "run", rl=1), file) == 0
    assert len(lines(file)) == 2


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (f"{'n' * 300}.jsonl", "File name too long): name another path"),
        ("run/attempts.jsonl", "name a file outside of it"),
        ("mine/attempts.jsonl", "is no folder: name another place"),
    ],
)
def test_a_place_that_is_not_for_a_file_is_refused(tmp_path, capsys, place, message):
    run = made(tmp_path / "run", rl=1)
    (tmp_path / "mine").write_text("mine")
    assert message in refused(capsys, "export", run, tmp_path / place)
    assert (tmp_path / "mine").read_text() == "mine"
    assert [*tmp_path.rglob("*.jsonl"), *tmp_path.rglob("*.part")] == []


def test_an_unknown_stage_is_refused_with_those_there_are(tmp_path, capsys):
    run, file = made(tmp_path / "run", measure=1, sft_first=0, rl=1), tmp_path / "out.jsonl"
    for name in ("eval", "sft_first"):
        message = refused(capsys, "export", run, file, "--stage", name)
        assert f"--stage {name}: {run} holds no attempts of such a stage" in message
        assert "name one of measure, rl, or leave --stage out" in message
    assert not file.exists()


def test_a_run_without_attempts_is_refused(tmp_path, capsys):
    run, file = made(tmp_path / "run", sft_first=0), tmp_path / "out.jsonl"
    message = refused(capsys, "export", run, file)
    assert f"{run}: no stage has kept an attempt yet; run collect, measure, rl or eval" in message
    assert not file.exists()


def test_an_export_that_breaks_off_leaves_nothing(tmp_path, capsys):
    run, file = made(tmp_path / "run", rl=3), tmp_path / "out.jsonl"
    with sqlite3.connect(run / "journal.sqlite") as journal:
        journal.execute("update episodes set body = x'00' where step = 2")
    journal.close()
    assert "is not an intact journal" in refused(capsys, "export", run, file)
    assert list(tmp_path.iterdir()) == [run]


def test_a_stage_is_asked_of_a_file_and_not_of_a_model(tmp_path, capsys):
    run = made(tmp_path / "run", rl=1)
    message = refused(capsys, "export", run, tmp_path / "model", "--stage=rl")
    assert f"{tmp_path / 'model'} does not end in .jsonl" in message


def test_a_run_that_is_being_written_is_exported_up_to_its_last_step(tmp_path):
    folder, file = tmp_path / "run", tmp_path / "out.jsonl"
    made(folder, rl=2)
    with Run.create_or_open(folder, {}) as run:
        run.stage("rl").keep(2, [small_group("rl/2")])
        assert forethought("export", folder, file) == 0
    assert [line["step"] for line in lines(file)] == [0, 0, 1, 1]
