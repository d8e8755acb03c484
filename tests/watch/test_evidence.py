"""A recovery is seen in what was called and printed, not in the verdict alone."""

import pytest

from forethought.core.messages import ToolStatus
from forethought.core.verdict import Verdict
from forethought.watch.evidence import prints, read_off, recovered
from watch.synthetic_run import attempt, called, problem, said

RIGHT, WRONG = Verdict.right("5"), Verdict.wrong("5", "5 is not 6")
BAD = called("print(x)", "NameError", ToolStatus.MODEL_ERROR)
GOOD = called("print(5)", "5")


def tried(*turns, verdict=RIGHT):
    return attempt("a", problem(0), [*turns, said("5")], verdict)


@pytest.mark.parametrize("status", [ToolStatus.MODEL_ERROR, ToolStatus.TIMEOUT, ToolStatus.MEMORY])
def test_a_changed_call_that_prints_the_right_answer_is_a_recovery(status):
    assert recovered(tried(called("while True: 1", "", status), GOOD))


@pytest.mark.parametrize(
    "episode",
    [
        tried(GOOD),
        tried(GOOD, BAD),
        tried(BAD),
        tried(BAD, called("print(7)", "7")),
        tried(BAD, called("print(x)", "5")),
        tried(BAD, called("print(5)", "5", ToolStatus.TRUNCATED)),
        tried(called("print(5)", "", ToolStatus.INFRASTRUCTURE), called("print( 5)", "5")),
        tried(BAD, GOOD, verdict=WRONG),
        tried(BAD, GOOD, verdict=Verdict.not_measured("the sandbox died")),
    ],
    ids=[
        "nothing failed",
        "failed last",
        "no call went well",
        "printed something else",
        "the same call again",
        "cut off",
        "not the model's failure",
        "wrong",
        "not measured",
    ],
)
def test_anything_less_is_none(episode):
    assert not recovered(episode)


def test_an_answer_is_read_off_where_a_call_that_went_well_printed_it():
    assert read_off(tried(called("print(5.0)", "5.0\n")))
    assert read_off(tried(called("print('x =', 5)", "x = 5")))
    assert not read_off(tried(called("print(6)", "5\n6")))
    assert not read_off(tried(BAD))
    assert not read_off(tried())


def test_nothing_printed_is_no_answer():
    assert not prints("", "")
    assert not prints(" \n", "5")
