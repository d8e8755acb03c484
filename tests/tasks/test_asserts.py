"""An assert is a test of a program only where nothing that is expected stands in what is asked."""

import pytest

from forethought.tasks.asserts import UncheckableError, assertion
from forethought.tasks.cases import MOST_SHOWN

MARK = "\nmark\n"


def judged(line, value):
    """Whether a program passes that shows `value`."""
    return assertion(line).judge(f"noise{MARK}{value!r}{MARK}", MARK)


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("assert f(1) == 2", "f(1)"),
        ("assert 2 == f(1)", "f(1)"),
        ("assert (f([1])) is True, 'with a message'", "f([1])"),
        ("assert set(f(1)) == {2}", "set(f(1))"),
        ("assert len(sorted(f(1))) >= 2", "len(sorted(f(1)))"),
        ("assert abs(f(1) - 2.0 / 3) < 1e-6", "f(1)"),
        ("assert abs(f(1)) < 3", "abs(f(1))"),
        ("assert math.isclose(f(1), 0.5, rel_tol=0.01)", "f(1)"),
        ("assert f(1)", "bool(f(1))"),
        ("assert not f(1)", "bool(f(1))"),
    ],
)
def test_a_program_is_asked_for_its_value_and_not_told_the_expected_one(line, asked):
    case = assertion(line)
    assert (case.expression, case.function) == (asked, "f")


@pytest.mark.parametrize(
    "line",
    [
        "assert f(1) == g(1)",
        "assert f(1) == f(2)",
        "assert 1 < f(2) < 3",
        "assert f(1) == x",
        "assert f(1) + 1 == 3",
        "assert f(1) == 2 or f(1) == 3",
        "assert all(x == 2 for x in f(1))",
        "assert isinstance(f(1), int)",
        "assert abs(f(1) - g(1)) < 3",
        "assert abs(f(1) * 2) < 3",
        "assert isclose(f(1), 2 * x)",
        "assert sum(1, 2) == 3",
        "assert f.g(1) == 2",
        "assert 1 == 1",
        "assert (f(1), g(2)) == (1, 2)",
        "x = 1",
        "assert",
        "assert f(1) == 2; x = 1",
        "",
    ],
)
def test_an_assert_that_would_tell_what_is_expected_is_none(line):
    with pytest.raises(UncheckableError):
        assertion(line)


@pytest.mark.parametrize(
    "line",
    [
        "assert f(1) == 1e999",
        "assert 1e999 == f(1)",
        "assert f(1) == 1e308 * 10",
        "assert f(1) == 1e999 - 1e999",
        "assert f(1) == 1e999j",
        "assert f(1) == [{1: (-1e999,)}]",
        "assert f(1) in 5",
        "assert f(1) not in None",
        "assert math.isclose(f(1), 'a')",
        "assert math.isclose(f(1), 1e999)",
        "assert math.isclose(f(1), 0.5, foo=1)",
        "assert math.isclose(f(1), 0.5, rel_tol=-1)",
        "assert abs(f(1) - 'a') < 1",
        "assert abs(f(1) - 1) < 0",
    ],
)
def test_an_assert_that_no_program_can_pass_is_none(line):
    with pytest.raises(UncheckableError):
        assertion(line)


@pytest.mark.parametrize("around", ["assert f(1) == {}", "assert {} == f(1)"])
def test_a_value_to_be_equal_to_is_no_longer_than_what_is_shown(around):
    longest = "1" * (MOST_SHOWN - 2)
    assert assertion(around.format(repr(longest))).judge(f"{MARK}{longest!r}{MARK}", MARK)
    with pytest.raises(UncheckableError):
        assertion(around.format(repr(longest + "1")))
    assert judged(f"assert f(1) in {[longest, '12']}", "12")


TOO_DEEP = {
    "a long sum": "+".join("1" * 20_000),
    "signs": "-" * 5000 + "1",
    "many signs": "-" * 100_000 + "1",
    "brackets": "(" * 5000 + ")" * 5000,
}


@pytest.mark.parametrize("part", TOO_DEEP.values(), ids=TOO_DEEP)
def test_an_assert_that_is_nested_too_deeply_is_none(part):
    for line in (f"assert f(1) == {part}", f"assert f({part}) == 1"):
        with pytest.raises(UncheckableError) as caught:
            assertion(line)
        assert len(str(caught.value)) < 700


def test_a_call_that_can_be_read_and_not_be_written_again_is_none():
    part = "+".join("1" * 800)
    assert judged(f"assert f(1) == {part}", 800)
    with pytest.raises(UncheckableError):
        assertion(f"assert f({part}) == 800")


@pytest.mark.parametrize("name", ["a long sum", "signs", "many signs", "brackets"])
def test_a_setup_that_is_nested_too_deeply_is_refused(name):
    with pytest.raises(UncheckableError, match="its setup"):
        assertion("assert f(1) == 2", f"x = {TOO_DEEP[name]}")


@pytest.mark.parametrize(
    "setup",
    [
        "from mine import f",
        "import f",
        "from mine import *",
        "def f(x): return x",
        "f = g",
        "def f(",
    ],
)
def test_a_function_of_the_setup_is_not_the_programs(setup):
    with pytest.raises(UncheckableError):
        assertion("assert f(1) == 2", setup)


@pytest.mark.parametrize(
    ("line", "passing", "failing"),
    [
        ("assert f(1) == 2", [2, 2.0], [3, "2", None]),
        ("assert 2 < f(1)", [3], [2, "3"]),
        ("assert f(1) == (1 + 2, 2 * 3.5, -1)", [(3, 7.0, -1)], [[3, 7.0, -1]]),
        ("assert tuple(f(1)) == tuple([1, 2])", [(1, 2)], [[1, 2]]),
        ("assert f(1) == [set(), {1: (2,)}]", [[set(), {1: (2,)}]], [[set(), {1: [2]}]]),
        ("assert f(1) in ('a', 'b')", ["a"], ["c", 1]),
        ("assert f(1) in {1: 2}", [1], [2, "1"]),
        ("assert f(1) == frozenset([1, 'inf'])", [{1, "inf"}], [{1}]),
        ("assert f(1) is None", [None], [0, False]),
        ("assert f(1)", [True], [False, 1]),
        ("assert not f(1)", [False], [True, 0]),
        ("assert abs(f(1) - 0.5) < 1e-6", [0.5000001, 0.5], [0.51, "0.5", 10**400]),
        ("assert abs(f(1) - 1) <= 0.5", [0.5, 1.5, True], [0.4]),
        ("assert math.isclose(f(1), 10, rel_tol=0.1)", [9.5, 10], [8.5, "10", 1j]),
        ("assert isclose(f(1), 10, abs_tol=2)", [9, 12], [13]),
    ],
)
def test_what_is_shown_is_judged_as_the_assert_would(line, passing, failing):
    assert [judged(line, value) for value in passing] == [True] * len(passing)
    assert [judged(line, value) for value in failing] == [False] * len(failing)


@pytest.mark.parametrize(
    "written",
    ["2", f"{MARK}2", f"{MARK}f(1){MARK}", f"{MARK}{'-' * 60_000}1{MARK}", f"{MARK}{MARK}"],
)
def test_what_is_no_value_between_marks_passes_nothing(written):
    assert not assertion("assert f(1) != 3").judge(written, MARK)


def test_a_long_test_is_not_repeated_whole():
    with pytest.raises(UncheckableError) as caught:
        assertion(f"assert f({'1' * 9999}) == x")
    assert len(str(caught.value)) < 500
