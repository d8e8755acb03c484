"""Where nothing moves, a bar is lines, and the last one says how much was done."""

import io

import pytest
from rich.console import Console

from forethought.app.show import Show


@pytest.fixture
def said():
    return io.StringIO()


@pytest.fixture
def watched(said):
    return Show(Console(file=said, width=60))


def test_a_bar_in_a_log_ends_with_its_total(watched, said):
    with watched.bar("sitting", 3) as bar:
        for step in range(3):
            bar.note(f"accuracy 0.{step}")
            bar.advance()
    assert said.getvalue() == "  sitting: 3/3  accuracy 0.2\n"


def test_work_that_ends_early_ends_with_what_was_done(watched, said):
    with watched.bar("phase first", 9) as bar:
        bar.advance(4)
    assert said.getvalue() == "  phase first: 4/9\n"


def test_work_that_breaks_does_not_look_finished(watched, said):
    with pytest.raises(ValueError, match="broken"), watched.bar("rounds", 2) as bar:
        bar.advance()
        raise ValueError("broken")
    assert said.getvalue() == ""


def test_a_line_now_and_then_tells_of_one_moment_and_none_twice(said):
    watched = Show(Console(file=said, width=60), line_every=-1.0)
    with watched.bar("rounds", 3, done=1) as bar:
        for step in (2, 3):
            bar.note(f"round {step}")
            bar.advance()
    assert said.getvalue() == "  rounds: 2/3  round 2\n  rounds: 3/3  round 3\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_that_goes_on_counts_what_is_done_again_once(said, terminal):
    watched = Show(Console(file=said, width=100, force_terminal=terminal))
    with watched.bar("rounds", 5, done=4) as bar:
        bar.go_on("round", 3, 1)
        bar.advance()
        bar.advance()
    assert "goes on at round 4 of 5; 1 round since the last checkpoint is done again" in (
        said.getvalue()
    )
    assert "5/5" in said.getvalue()
    assert "6/5" not in said.getvalue()


def test_why_a_stage_is_there_is_set_in_as_a_block(watched, said):
    watched.stage("Measure", "word " * 30)
    _, title, *lines = said.getvalue().splitlines()
    assert title == "Measure"
    assert len(lines) > 1
    assert all(line.startswith("  word") and len(line) <= 60 for line in lines)
