"""The speed benchmarks of gradients and of the Python tool, run at their smallest."""

from types import SimpleNamespace

import pytest
from benchmarks.sandbox_load import PLAIN
from benchmarks.sandbox_speed import LOADED, QUIET
from benchmarks.sandbox_speed import main as measure_sandbox
from benchmarks.speed.parts import sandbox, training
from benchmarks.speed.rounds import OURS, Contestant, Options, take_turns
from benchmarks.training_speed import options_of, report

WORDS = ["small", "--rows", "2", "--turns", "1", "--ways", "padded", "packed"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The trials of two contestants of one name, measured once each."""
    place = tmp_path_factory.mktemp("speed")
    options = Options(cache=place, results=place, problems=None, rounds=1, threads=1, quick=True)
    gradients = {"cases": [{"name": "2 rows", "words": WORDS}]}
    calls = {"programs": [("print", 2)], "calls": 20, "load_seconds": 0.5}
    contestants = [
        Contestant(name=OURS, subject="ours_training", task=gradients),
        Contestant(name=OURS, subject="ours_sandbox", task=calls),
    ]
    trials = take_turns(contestants, options).trials
    return SimpleNamespace(
        training=[each for each in trials if each.case.startswith("2 rows")],
        sandbox=[each for each in trials if not each.case.startswith("2 rows")],
    )


def figures(trials):
    return {each.case: each.figures for each in trials}


def test_padded_and_packed_rows_have_one_gradient_and_are_compared(measured, capsys):
    found = figures(measured.training)
    assert found.keys() == {"2 rows: padded", "2 rows: packed"}
    padded, packed = found.values()
    assert packed["norm"] == pytest.approx(padded["norm"], rel=1e-4)
    assert packed["honest_gflops"] < packed["gflops"]
    lines = [line for line in training.lines(measured.training) if line.ours is not None]
    assert [line.unit for line in lines if line.ratio] == ["tokens/s", "GFLOP/s", "GB"]
    report(options_of(WORDS), {"padded": padded, "packed": packed})
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("small: 2 rows, ")
    assert [line.split()[0] for line in said[2:]] == ["padded", "packed"]


def test_benign_calls_are_timed_alone_and_beside_hostile_ones(measured):
    found = figures(measured.sandbox)
    assert [*found] == ["print, 2 clients", QUIET, LOADED]
    assert found[QUIET]["hostile_share"] == 0
    assert 0 < found[LOADED]["hostile_share"] <= 0.1
    assert found[QUIET]["wrong_replies"] == 0
    latency, wrong = (line for line in sandbox.lines(measured.sandbox) if line.goal is not None)
    assert latency.ratio is not None
    assert wrong.theirs.middle == sum(each["benign_calls"] for each in found.values())
    (tier,) = {each.facts["sandbox"] for each in measured.sandbox}
    assert tier in {"namespaces", "landlock-uid", "landlock"}


def test_the_script_prints_a_line_for_each_program(capsys):
    measure_sandbox(["--calls", "20"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("what")
    assert [row.partition(",")[0] for row in rows] == [*PLAIN, "print"]
    assert "wrong" not in "".join(rows)
