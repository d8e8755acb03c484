"""Which calls of benign programs count: those whose reply is right, and no others."""

import asyncio
import itertools
import json

import pytest
from benchmarks.sandbox_load import BENIGN_TO_ONE, HEAVY, PLAIN, Served, crowded
from benchmarks.sandbox_speed import figures_of, serve, show
from benchmarks.speed.figures import Trial
from benchmarks.speed.parts import sandbox

from forethought.core.messages import ToolReply, ToolStatus
from forethought.tools.python_tool import PYTHON

RIGHT = ToolReply(call_id="1", name="python", text="2")
OTHER_TEXT = ToolReply(call_id="1", name="python", text="3")
OTHER_STATUS = ToolReply(call_id="1", name="python", text="2", status=ToolStatus.TIMEOUT)


class Scripted:
    """A tool that gives these replies over and over to benign calls."""

    specs = (PYTHON,)

    def __init__(self, *replies):
        self.replies = itertools.cycle(replies)
        self.benign = 0

    async def call(self, call):
        await asyncio.sleep(0.001)
        if json.loads(call.arguments)["code"] in HEAVY:
            return OTHER_STATUS
        self.benign += 1
        return next(self.replies)


def served(*replies, calls=30):
    made = Served()
    asyncio.run(serve(made, Scripted(*replies), PLAIN["print"], calls, 3, counted=True))
    return made


def test_wrong_replies_are_counted_and_are_neither_speed_nor_latency():
    made = served(RIGHT, OTHER_TEXT, OTHER_STATUS)
    assert (made.calls, len(made.latencies), made.wrong.total()) == (30, 10, 20)
    assert made.wrong == {"ok: '3'": 10, "timeout: '2'": 10}
    found = figures_of("print", made, 2.0, 3.0)
    assert found["calls_per_s"] == pytest.approx(5.0)
    assert found["cpu_ms"] == pytest.approx(100.0)
    assert (found["benign_calls"], found["wrong_replies"]) == (30, 20)


def test_nothing_is_told_where_every_reply_is_wrong():
    with pytest.raises(SystemExit, match=r"print: 30 of 30 replies were wrong.*timeout: '2'"):
        figures_of("print", served(OTHER_STATUS), 1.0, 1.0)


@pytest.mark.parametrize("hostile", [False, True])
def test_a_crowd_leaves_wrong_replies_out_of_its_latencies(hostile):
    tool = Scripted(RIGHT, OTHER_TEXT)
    crowd = asyncio.run(crowded(tool, 0.2, hostile=hostile))
    assert crowd.served.calls == tool.benign
    assert crowd.served.wrong.total() == tool.benign // 2
    assert 0 < len(crowd.served.latencies) <= tool.benign - tool.benign // 2
    assert bool(crowd.hostile) == hostile
    assert crowd.hostile <= crowd.served.calls / BENIGN_TO_ONE


def test_an_error_may_be_told_in_other_words_but_must_be_that_error():
    reply = ToolReply(
        call_id="1",
        name="python",
        text="Traceback: anyhow\nZeroDivisionError: division by zero",
        status=ToolStatus.MODEL_ERROR,
    )
    assert PLAIN["error"].answered_by(reply)
    assert not PLAIN["error"].answered_by(RIGHT)
    assert not PLAIN["print"].answered_by(reply)


def test_wrong_replies_are_shown_with_their_goal(capsys):
    told = figures_of("print", served(RIGHT, OTHER_TEXT), 1.0, 1.0)
    show({"print": told})
    assert capsys.readouterr().out.endswith("15 wrong replies\n")
    some = [Trial(subject="forethought", case="print", round=n, figures=told) for n in range(2)]
    *_, line = sandbox.lines(some)
    assert (line.ours.middle, line.theirs.middle) == (30, 60)
    assert not line.goal.met(line.ratio.middle)
    assert line.goal.met(0.0)


def test_results_that_did_not_look_for_wrong_replies_have_no_line_about_them():
    trial = Trial(subject="forethought", case="print", round=0, figures={"p50_ms": 4.0})
    assert "wrong" not in " ".join(line.what for line in sandbox.lines([trial]))
