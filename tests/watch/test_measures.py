"""The interval that a row is said to have is the one that the exam gave it."""

import pytest

from forethought.evaluation.estimators import average, pass_at
from forethought.evaluation.exam import summarise_exam
from forethought.evaluation.intervals import (
    bootstrap_interval,
    normal_interval,
    wilson_interval,
)
from forethought.watch.exams import SatExam
from forethought.watch.measures import BOOTSTRAP, NORMAL, WILSON, methods, table
from watch.synthetic_run import CONDITIONS, groups

METHODS = {NORMAL: normal_interval, BOOTSTRAP: bootstrap_interval}


@pytest.fixture(scope="module")
def result():
    ability = {"problems": range(30), "size": 4, "tool": 0.5, "right_with": 0.4}
    greedy = groups("e/greedy", seed=2, **(ability | {"size": 1}))
    return summarise_exam("e", groups("e/sampled", seed=1, **ability), greedy, CONDITIONS)


def rows(result):
    return {row.name: row for row in table([SatExam(key="e", stage="eval", result=result)])}


def test_every_row_with_an_interval_names_its_method_and_no_other_does(result):
    for row in rows(result).values():
        assert bool(row.cells[0].interval) == bool(row.method)


def test_the_methods_named_are_the_ones_that_were_used(result):
    said = {name: row.method for name, row in rows(result).items()}
    each = result.problems
    scores = {
        "avg@k": ([average(one.n, one.c) for one in each], result.average),
        "pass@k": ([pass_at(4, one.n, one.c) for one in each], result.coverage),
        "maj@k": ([one.majority for one in each], result.majority),
    }
    for name, (values, estimate) in scores.items():
        right = METHODS[said[name]]
        [wrong] = [method for method in METHODS.values() if method is not right]
        assert right(values) == estimate != wrong(values)
    assert said["greedy"] == WILSON
    assert wilson_interval(sum(one.greedy for one in each), len(each)) == result.greedy


def test_rows_of_one_method_are_named_together(result):
    told = methods(list(rows(result).values()))
    assert told == f"avg@k: {NORMAL}; pass@k and maj@k: {BOOTSTRAP}; greedy: {WILSON}"
