"""A run's folder: who may write it, what it refuses, and what it says then."""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from disks import as_nobody
from forethought.core.errors import RecipeError
from forethought.journal.files import written_beside
from forethought.journal.run import Run
from journal.journal_values import small_group

SOURCE = Path(__file__).parents[2] / "src"
RECIPE = {"seed": 7, "name": "été"}


def test_a_new_run_has_its_recipe_and_a_place_for_checkpoints(tmp_path):
    with Run.create_or_open(tmp_path / "deep" / "run", RECIPE) as run:
        assert run.checkpoints.is_dir()
        assert json.loads((run.path / "recipe.json").read_text(encoding="utf-8")) == RECIPE
    with Run.read(run.path) as again:
        assert again.recipe == RECIPE
        assert again.stages() == []


def test_a_run_goes_on_where_it_was_left(tmp_path):
    with Run.create_or_open(tmp_path, RECIPE) as run:
        run.stage("rl").commit(0)
    with Run.create_or_open(tmp_path, RECIPE) as run:
        assert run.stage("rl").next_step == 1


def test_a_changed_recipe_is_kept_only_once_a_stage_accepts_it(tmp_path):
    with Run.create_or_open(tmp_path, RECIPE) as run:
        run.stage("sft").begin({"seed": 7})
        run.stage("sft").commit(0)
    with Run.create_or_open(tmp_path, {"seed": 8}) as run:
        with pytest.raises(RecipeError, match="seed was 7, is now 8"):
            run.stage("sft").begin({"seed": 8})
        assert json.loads((tmp_path / "recipe.json").read_text(encoding="utf-8")) == RECIPE
        run.stage("rl").begin({"seed": 8})
        assert json.loads((tmp_path / "recipe.json").read_text(encoding="utf-8")) == {"seed": 8}


def test_a_folder_with_something_else_in_it_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"not a run \(thesis.tex\).*--run"):
        Run.create_or_open(tmp_path, RECIPE)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("kind", ["text", "database"])
def test_a_journal_of_another_program_is_refused(tmp_path, kind):
    journal = tmp_path / "journal.sqlite"
    if kind == "text":
        journal.write_text("dear diary " * 100, encoding="utf-8")
    else:
        with closing(sqlite3.connect(journal)) as connection:
            connection.execute("create table diary (entry text)")
    before = journal.read_bytes()
    with pytest.raises(RecipeError, match="not a run"):
        Run.create_or_open(tmp_path, RECIPE)
    assert journal.read_bytes() == before


def test_a_journal_from_before_rewards_were_kept_is_read_and_gone_on_with(tmp_path):
    with Run.create_or_open(tmp_path, RECIPE) as run:
        stage = run.stage("rl")
        stage.keep(0, [small_group("g")])
        stage.commit(0)
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as connection:
        for column in ("reward", "components"):
            connection.execute(f"alter table episodes drop column {column}")
        connection.execute("pragma user_version = 1")
    with Run.read(tmp_path) as run:
        assert (run.rewards("rl", 0), [group.id for group in run.groups("rl")]) == ({}, ["g"])
    for step in (1, 2):
        with Run.create_or_open(tmp_path, RECIPE) as run:
            stage = run.stage("rl")
            stage.keep(step, [small_group(f"{step}")])
            stage.keep_rewards(step, {f"{step}/1": {"outcome": -1.0}})
            stage.commit(step)
    with Run.read(tmp_path) as run:
        found = [run.rewards("rl", step) for step in range(3)]
        assert found == [{}, {"1/1": {"outcome": -1.0}}, {"2/1": {"outcome": -1.0}}]


def test_a_journal_of_another_format_is_refused(tmp_path):
    with Run.create_or_open(tmp_path, RECIPE):
        pass
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as connection:
        connection.execute("pragma user_version = 99")
    with pytest.raises(RecipeError, match="format 99"):
        Run.create_or_open(tmp_path, RECIPE)
    with pytest.raises(RecipeError, match="format 99"):
        Run.read(tmp_path)


def test_a_file_where_the_folder_should_be_is_refused(tmp_path):
    (tmp_path / "run").write_text("", encoding="utf-8")
    with pytest.raises(RecipeError, match="folder"):
        Run.create_or_open(tmp_path / "run", RECIPE)


def refused_after(folder, work):
    with pytest.raises(RecipeError), Run.create_or_open(folder, RECIPE) as run:
        work(run)
        raise RecipeError("no")


def test_a_run_that_is_refused_before_anything_is_kept_leaves_no_folder(tmp_path):
    refused_after(tmp_path / "deep" / "run", lambda run: run.stage("rl").begin({}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "work",
    [
        lambda run: run.stage("rl").commit(0),
        lambda run: run.stage("rl").finish(),
        lambda run: (run.checkpoints / "rl").mkdir(),
        lambda run: (run.path / "failure.txt").touch(),
    ],
)
def test_a_run_that_is_refused_keeps_what_is_in_it(tmp_path, work):
    refused_after(tmp_path / "run", work)
    assert (tmp_path / "run" / "journal.sqlite").is_file()


def test_a_folder_that_was_there_before_a_run_was_refused_stays(tmp_path):
    refused_after(tmp_path, lambda run: None)
    with Run.read(tmp_path) as run:
        assert run.stages() == []


@pytest.mark.parametrize("leftover", [(), ("writer.lock",), ("journal.sqlite", "writer.lock")])
def test_a_run_killed_while_it_was_being_made_is_made_again(tmp_path, leftover):
    for name in leftover:
        (tmp_path / name).touch()
    with Run.create_or_open(tmp_path, RECIPE) as run:
        run.stage("sft").commit(0)
        assert run.steps("sft") == [0]


def test_a_second_writer_is_refused_by_the_first_ones_number(tmp_path):
    with Run.create_or_open(tmp_path, RECIPE) as run:
        run.stage("sft").commit(0)
        code = (
            "import sys; from pathlib import Path; from forethought.journal.run import Run\n"
            "Run.create_or_open(Path(sys.argv[1]), {})"
        )
        second = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env={"PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"being written by process {os.getpid()}" in second.stderr
        assert "--run" in second.stderr
    with Run.create_or_open(tmp_path, RECIPE) as run:
        assert run.stage("sft").next_step == 1


def test_reading_where_there_is_no_run_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="holds no run"):
        Run.read(tmp_path / "nowhere")


def test_a_reader_cannot_write(tmp_path):
    with Run.create_or_open(tmp_path, RECIPE):
        pass
    with Run.read(tmp_path) as run, pytest.raises(RecipeError, match="readonly"):
        run.stage("rl").commit(0)


def test_a_damaged_journal_is_a_message_and_not_a_traceback(tmp_path):
    with Run.create_or_open(tmp_path, RECIPE) as run:
        run.stage("rl").put("note", {"text": "x" * 100_000})
    journal = tmp_path / "journal.sqlite"
    data = bytearray(journal.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    journal.write_bytes(data)
    with (
        pytest.raises(RecipeError, match=r"journal\.sqlite cannot be used.*intact"),
        Run.create_or_open(tmp_path, RECIPE) as run,
    ):
        run.stage("rl").put("note", {"text": "y"})


def test_a_folder_that_cannot_be_written_is_named_and_can_still_be_read():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with Run.create_or_open(folder / "run", RECIPE) as run:
            run.stage("rl").keep(0, [small_group("g")])
            run.stage("rl").put("note", {})
        with as_nobody():
            with pytest.raises(RecipeError, match="allow this user to write"):
                Run.create_or_open(folder / "run", RECIPE)
            with pytest.raises(RecipeError, match="allow this user to write"):
                Run.create_or_open(folder / "other", RECIPE)
            with Run.read(folder / "run") as run:
                assert run.document("rl", "note") == {}


@pytest.mark.parametrize("part", ["", "journal.sqlite", "recipe.json"])
def test_a_run_that_may_not_be_read_is_named_with_what_to_do(part):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        with Run.create_or_open(folder, RECIPE):
            pass
        Path(name).chmod(0o755)
        (folder / part).chmod(0o700)
        told = rf"{part} cannot be read \(Permission denied\): allow this user to read it"
        with as_nobody(), pytest.raises(RecipeError, match=told):
            Run.read(folder)


def test_a_name_that_no_folder_can_have_is_refused_by_reader_and_writer(tmp_path):
    folder = tmp_path / ("n" * 300)
    with pytest.raises(RecipeError, match=r"File name too long.*name another path"):
        Run.create_or_open(folder, RECIPE)
    with pytest.raises(RecipeError, match=r"File name too long.*name another path"):
        Run.read(folder)


def damaged_journal(folder, statement):
    with Run.create_or_open(folder, RECIPE) as run:
        stage = run.stage("rl")
        stage.keep(0, [small_group("g")])
        stage.commit(0)
    with closing(sqlite3.connect(folder / "journal.sqlite")) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "update groups set problem = x'00'",
        "update episodes set body = x'00'",
        "drop table episodes",
        "drop table steps",
        "update groups set group_id = cast(x'0aff' as text)",
    ],
)
def test_a_journal_that_lost_something_is_called_damaged_by_reader_and_writer(tmp_path, statement):
    damaged_journal(tmp_path, statement)
    for opened in (Run.read(tmp_path), Run.create_or_open(tmp_path, RECIPE)):
        with opened as run, pytest.raises(RecipeError, match=r"journal\.sqlite.*not an intact"):
            list(run.groups("rl"))


def test_a_journal_whose_beginning_is_lost_is_called_damaged_by_reader_and_writer(tmp_path):
    with Run.create_or_open(tmp_path, RECIPE):
        pass
    (tmp_path / "journal.sqlite").write_bytes(b"\xff" * 8192)
    for opening in (Run.read, lambda path: Run.create_or_open(path, RECIPE)):
        with pytest.raises(RecipeError, match=r"journal\.sqlite.*not an intact"):
            opening(tmp_path)


@pytest.mark.parametrize("place", ["empty", "a folder"])
def test_a_journal_that_is_none_any_more_is_not_begun_again(tmp_path, place):
    with Run.create_or_open(tmp_path, RECIPE) as run:
        run.stage("rl").commit(0)
    journal = tmp_path / "journal.sqlite"
    journal.unlink()
    if place == "empty":
        journal.touch()
    else:
        journal.mkdir()
    with pytest.raises(RecipeError, match=r"journal\.sqlite.*not an intact journal; restore it"):
        Run.create_or_open(tmp_path, RECIPE)


def test_a_recipe_beside_the_journal_that_is_no_json_is_named(tmp_path):
    with Run.create_or_open(tmp_path, RECIPE):
        pass
    (tmp_path / "recipe.json").write_bytes(b"{\xff")
    for opening in (Run.read, lambda path: Run.create_or_open(path, RECIPE)):
        with pytest.raises(RecipeError, match=r"recipe\.json.*not an intact"):
            opening(tmp_path)


@pytest.mark.parametrize("text", ["[1]", "5", "null"])
def test_a_recipe_beside_the_journal_that_is_no_object_is_named(tmp_path, text):
    with Run.create_or_open(tmp_path, RECIPE):
        pass
    (tmp_path / "recipe.json").write_text(text)
    for opening in (Run.read, lambda path: Run.create_or_open(path, RECIPE)):
        with pytest.raises(RecipeError, match=r"recipe\.json.*an object.*not an intact"):
            opening(tmp_path)


@pytest.mark.parametrize(
    "statement",
    [
        "update documents set body = '[1]'",
        "update metrics set value = 'abc'",
        "update stages set begun_at = 'abc'",
        "update stages set ended_at = 'abc'",
    ],
)
def test_a_value_of_another_type_is_called_damage_by_reader_and_writer(tmp_path, statement):
    with Run.create_or_open(tmp_path, RECIPE) as run:
        stage = run.stage("rl")
        stage.log(0, {"loss": 1.0})
        stage.put("note", {})
        stage.commit(0)
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as connection, connection:
        connection.execute(statement)
    for opened in (Run.read(tmp_path), Run.create_or_open(tmp_path, RECIPE)):
        with opened as run, pytest.raises(RecipeError, match=r"expected.*not an intact"):
            (run.document("rl", "note"), run.series("rl", "loss"), run.stages())


@pytest.mark.parametrize("name", ["writer.lock", "checkpoints"])
def test_what_stands_in_the_place_of_a_part_of_a_run_is_named_with_what_to_do(tmp_path, name):
    with Run.create_or_open(tmp_path, RECIPE):
        pass
    if name == "checkpoints":
        (tmp_path / name).rmdir()
        (tmp_path / name).write_text("a file")
    else:
        (tmp_path / name).unlink()
        (tmp_path / name).mkdir()
    with pytest.raises(RecipeError, match=rf"{name} cannot.*remove or rename what stands"):
        Run.create_or_open(tmp_path, RECIPE)


def test_a_lock_that_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "writer.lock")
    with pytest.raises(RecipeError, match=r"writer\.lock.*no regular file.*remove or rename"):
        Run.create_or_open(tmp_path, RECIPE)


def test_a_folder_where_a_file_should_come_is_named_with_what_to_do(tmp_path):
    (tmp_path / "report.html").mkdir()
    with (
        pytest.raises(RecipeError, match=r"report\.html cannot.*remove or rename what stands"),
        written_beside(tmp_path / "report.html") as file,
    ):
        file.write("a report")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
