"""How many conversations the benchmark of a slow tool opens, and what it counts."""

import pytest
from benchmarks.speed.figures import Trial
from benchmarks.speed.parts.tools import CASE, INSTANT, SECONDS, SLOW, WAITING, enough, lines
from benchmarks.speed.subjects.ours_tools import figures

TASK = {"warm_seconds": 10.0, "seconds": 30.0, "tool_seconds": 2.0, "open": 100}


def test_at_most_a_quarter_of_the_conversations_wait_within_the_bounds():
    for calls_per_s in (128.0, 170.3, 512.0):
        waiting = calls_per_s * SECONDS[SLOW]
        count = enough(calls_per_s, 1024, 4096)
        assert waiting <= WAITING * count < waiting + 1
    assert enough(0.0, 1024, 4096) == 1024
    assert enough(600.0, 1024, 4096) == 4096


def test_turns_and_calls_count_once_it_is_warm_and_until_the_time_is_up():
    turns = [(14.9, 1000), (15.0, 40), (44.9, 20), (45.0, 1000)]
    calls = [14.9, *(15.0 + second for second in range(30)), 45.0]
    found = figures(TASK, 5.0, turns, calls)
    assert found["tokens"] == 60
    assert found["tokens_per_s"] == pytest.approx(2.0)
    assert found["calls_per_s"] == pytest.approx(1.0)
    assert found["waiting_share"] == pytest.approx(0.02)


def test_the_number_of_conversations_and_who_waits_are_shown_where_they_are_known():
    def trial(subject, **more):
        told = {"tokens_per_s": 100.0, **more}
        return Trial(subject=subject, case=CASE, round=0, figures=told)

    assert [line.unit for line in lines([trial(INSTANT), trial(SLOW)])] == ["tokens/s"]
    instant = trial(INSTANT, open=1360, waiting_share=0.0)
    _, count, waiting = lines([instant, trial(SLOW, open=1360, waiting_share=0.24)])
    assert (count.ours.middle, count.theirs.middle) == (1360, 1360)
    assert waiting.ours.middle == pytest.approx(24.0)
