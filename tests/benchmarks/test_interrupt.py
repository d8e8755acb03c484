"""What the benchmark of interrupted runs waits for, does and calls good."""

import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from benchmarks.interrupt import CHANGES, Commands, End, end, ends_of, interrupt, summary
from benchmarks.moments import (
    CALIBRATION,
    Moment,
    committed,
    foretold,
    has_come,
    is_calibrating,
    is_working,
    last_seconds,
    moments_of,
    stepped,
)
from benchmarks.small import write_recipe

from forethought.app.calibration import cores
from forethought.app.cli import STAGES
from forethought.app.recipe import read_recipe
from forethought.app.stopping import INTERRUPTED
from forethought.journal.run import Run
from forethought.journal.status import reported

ATTEMPT = Moment(stage="rl", part="attempt", amount=0.5)
LEARN = Moment(stage="rl", part="learn", amount=0.25)
SHARES = ["20% of it", "50% of it", "80% of it"]
END = End(moment=LEARN, seconds=0.5, code=INTERRUPTED, left=0, stood="rl, 3 steps")


def test_every_stage_has_moments_and_rl_has_them_in_both_parts_of_a_step():
    found = {stage: moments_of(stage, (0.2, 1.0)) for stage in STAGES}
    assert {moment.place for moments in found.values() for moment in moments} == {
        *("collect", "sft", "measure", "eval"),
        *("rl, attempt", "rl, learn"),
        *("sft, calibration", "rl, calibration"),
    }
    calibrating = ["0 s", "0.04 s", "0.08 s"]
    assert [str(moment) for moment in found["sft"]] == [*calibrating, "0.2 s", "1 s"]
    assert [str(moment) for moment in found["rl"]] == [*calibrating, *SHARES * 2]


def test_learning_comes_after_the_attempts_of_a_step():
    seconds = {"attempt": 8.0, "learn": 2.0}
    assert foretold(ATTEMPT, seconds) == pytest.approx(4.0)
    assert foretold(LEARN, seconds) == pytest.approx(8.5)


def test_a_step_counts_once_it_is_new_also_when_resuming_took_some_back(tmp_path):
    folder = tmp_path / "run"
    assert committed(folder, "rl") == 0
    with Run.create_or_open(folder, {}) as run:
        stage = run.stage("rl")
        stage.commit(0)
        stage.commit(1)
        more = stepped(folder, "rl")
        assert not more()
        stage.rewind(1)
        assert not more()
        stage.log(1, {"seconds/attempt": 3.0, "seconds/learn": 1.0})
        stage.commit(1)
        assert more()
    assert last_seconds(folder, "rl") == {"attempt": 3.0, "learn": 1.0}


def test_a_command_works_from_its_first_status_to_its_last(tmp_path):
    with Run.create_or_open(tmp_path / "run", {}) as run:
        assert not is_working(run.path)
        with reported(run, "collect"):
            assert is_working(run.path)
        assert not is_working(run.path)


def test_an_end_is_good_in_time_with_the_code_of_an_interrupt_and_nothing_left():
    late, ended, orphans = replace(END, seconds=2.5), replace(END, code=0), replace(END, left=1)
    assert END.good
    assert not any(each.good for each in (late, ended, orphans))
    lines = [*summary([END, late, replace(END, moment=ATTEMPT, seconds=0.25)])]
    assert lines == [
        "rl, learn        2 times, median 1.50 s, largest 2.50 s",
        "rl, attempt      1 times, median 0.25 s, largest 0.25 s",
        "largest of 3: 2.50 s (goal: 2 s); 1 not as they should",
    ]


def test_a_command_is_interrupted_and_then_goes_on_to_its_end(tmp_path):
    recipe = write_recipe(tmp_path)
    commands = Commands(recipe=recipe, folder=tmp_path / "run", changes=("--collect.problems=20",))
    (end,) = ends_of(commands, "collect", [Moment(stage="collect", amount=0.0)])
    assert end.code == INTERRUPTED, commands.log.read_text()
    with Run.read(commands.folder) as run:
        assert run.stage("collect").finished
    assert "Stopped." in commands.log.read_text()


@pytest.mark.skipif(cores() == 1, reason="one core: nothing to find out")
def test_a_stage_is_interrupted_while_it_calibrates(tmp_path):
    folder, recipe = tmp_path / "run", write_recipe(tmp_path)
    commands = Commands(recipe=recipe, folder=folder, changes=("--collect.problems=20",))
    assert commands.start("collect").wait() == 0, commands.log.read_text()
    moment = Moment(stage="sft", part=CALIBRATION, amount=0.0)
    process = commands.start_for(moment)
    try:
        assert has_come(moment, process, folder), commands.log.read_text()
        _, code, left = interrupt(process)
    finally:
        end(process)
    assert (code, left) == (INTERRUPTED, 0), commands.log.read_text()


@pytest.mark.parametrize(
    ("script", "kept", "seen"),
    [
        ("import os, time; os.fork(); time.sleep(60)", False, True),
        ("import os, time; os.fork(); time.sleep(60)", True, False),
        ("import subprocess; subprocess.run(['sleep', '60'])", False, False),
        ("", False, False),
    ],
)
def test_a_calibration_is_seen_by_forked_workers_until_it_is_kept(tmp_path, script, kept, seen):
    if kept:
        (tmp_path / "calibration.json").write_text("{}")
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        assert is_calibrating(0.2, process, tmp_path) == seen
    finally:
        end(process)


def test_a_command_that_does_not_end_says_where_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.interrupt.PATIENCE", 0.5)
    monkeypatch.setattr("benchmarks.interrupt.GOAL", 0.5)
    script = (
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint(1, flush=True)\n"
        "def stuck():\n    time.sleep(60)\nstuck()"
    )
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", script],
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=True,
        )
    with process:
        assert process.stdout.readline() == b"1\n"
        _, code, _ = interrupt(process)
    assert code == -signal.SIGABRT
    assert "in stuck" in log.read_text()
    assert "has not ended: its state is sleeping" in capsys.readouterr().out


def test_the_changes_of_the_benchmark_make_a_recipe(tmp_path):
    assert read_recipe(write_recipe(tmp_path), CHANGES).rl.steps == 24
