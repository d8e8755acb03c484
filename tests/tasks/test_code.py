"""Rows of published code benchmarks become problems; what cannot be checked is set apart."""

import ast
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.tasks.cases import MOST_KEPT, InputCase
from forethought.tasks.code import cases_of, code_problems
from forethought.tasks.programs import ASKED, last_program

DATA = Path(__file__).parents[2] / "../shared/data"
real_data = pytest.mark.skipif(not (DATA / "mbpp").is_dir(), reason="needs the benchmarks' files")

MBPP = {
    "text": "Write a function to add.",
    "code": "def add(a, b):\r\n\treturn a + b",
    "test_list": ["assert add(1, 2) == 3", "assert add(2, 2) == 4", "assert add(0, 1) == 1"],
}
HUMANEVAL = {
    "prompt": 'import math\n\n\ndef half(n):\n    """ Half of n. """\n',
    "canonical_solution": "    return n / 2\n",
    "entry_point": "half",
    "test": "METADATA = {}\n\n\ndef check(candidate):\n    'tests'\n"
    "    assert candidate(4) == 2.0, 'no'\n    assert abs(candidate(1) - 0.5) < 1e-6\n"
    "    assert True, 'one more'\n",
}
LIVE = {
    "question_content": "Add the numbers.",
    "code": "print(sum(map(int, input().split())))",
    "public_test_cases": json.dumps(
        [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}, {"input": "0", "output": ""}]
    ),
}


def read(tmp_path, *rows, shown_tests=1):
    path = tmp_path / "few.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return code_problems(path, shown_tests)


def only(tmp_path, row, **changes):
    (problem,) = read(tmp_path, row | changes).problems
    return problem


def printed(program):
    run = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_a_question_names_the_function_shows_a_test_and_says_how_to_answer(tmp_path):
    found = only(tmp_path, MBPP)
    assert (found.id, found.domain, found.tools) == ("few-1", "code", ("python",))
    assert found.prompt == (
        "Write a function to add.\n\nThe function is called `add`.\n\nThis must hold:\n"
        f"assert add(1, 2) == 3\n\n{ASKED}"
    )


@pytest.mark.parametrize(("shown", "tests"), [(0, 0), (1, 1), (2, 2), (9, 3)])
def test_as_many_tests_are_shown_as_is_said(tmp_path, shown, tests):
    (found,) = read(tmp_path, MBPP, shown_tests=shown).problems
    assert found.prompt.count("assert add(") == tests
    assert len(cases_of(found)) == 3


@pytest.mark.parametrize(
    ("row", "result"), [(MBPP, "3"), (HUMANEVAL, "2.0"), (LIVE, "3")], ids=["mbpp", "human", "live"]
)
def test_a_solution_becomes_a_program_to_try_and_a_closing_that_answers(tmp_path, row, result):
    found = only(tmp_path, row)
    assert printed(found.data["program"]) == result
    assert last_program(found.data["closing"]) == found.answer
    assert "\r" not in found.answer
    ast.parse(found.answer)


@pytest.mark.parametrize("row", [MBPP, HUMANEVAL, LIVE], ids=["mbpp", "human", "live"])
def test_without_a_solution_a_problem_has_tests_and_nothing_to_show(tmp_path, row):
    row = {name: each for name, each in row.items() if name not in ("code", "canonical_solution")}
    found = only(tmp_path, row)
    assert found.answer == f"a program that passes {len(cases_of(found))} tests"
    assert (found.data["closing"], found.data.get("program")) == ("", None)


def test_a_function_check_becomes_asserts_about_the_function_that_is_asked_for(tmp_path):
    found = only(tmp_path, HUMANEVAL)
    assert [case.expression for case in cases_of(found)] == ["half(4)", "half(1)"]
    assert found.prompt.startswith("Complete this program:\n\n```python\nimport math\n\n\ndef half")
    assert found.answer == HUMANEVAL["prompt"] + "    return n / 2"
    assert "assert" not in found.prompt


def test_inputs_and_outputs_become_cases(tmp_path):
    found = only(tmp_path, LIVE)
    assert cases_of(found) == (
        InputCase(stdin="1 2\n", stdout="3\n"),
        InputCase(stdin="0", stdout=""),
    )
    listed = only(tmp_path, LIVE, public_test_cases=json.loads(LIVE["public_test_cases"]))
    assert listed == found


def test_imports_and_setup_of_tests_are_kept_for_the_call(tmp_path):
    found = only(
        tmp_path,
        MBPP,
        test_imports=["import math"],
        test_setup_code="one = 1\r\n",
        test_list=["assert math.isclose(add(one, 2), 3)"],
    )
    (case,) = cases_of(found)
    assert (case.setup, case.expression) == ("import math\none = 1", "add(one, 2)")


def test_what_a_row_may_leave_out_may_be_null(tmp_path):
    found = only(tmp_path, MBPP, test_imports=None, test_setup_code=None)
    assert found == only(tmp_path, MBPP)


def test_blanks_that_do_not_count_make_no_output_too_long(tmp_path):
    longest = "1" * (MOST_KEPT - 1)
    tests = [{"input": "", "output": f"{longest}  \n\n"}]
    assert len(cases_of(only(tmp_path, LIVE, public_test_cases=tests))) == 1


def test_data_survives_json(tmp_path):
    for row in (MBPP, HUMANEVAL, LIVE):
        found = only(tmp_path, row)
        assert json.loads(json.dumps(found.data)) == found.data


@pytest.mark.parametrize(
    ("row", "changes", "why"),
    [
        (MBPP, {"test_list": []}, "no tests"),
        (MBPP, {"test_list": ["assert add(1, 2) == add(2, 1)"]}, "could not be kept"),
        (MBPP, {"test_list": ["for i in range(3): assert add(i, 0) == i"]}, "no assert statement"),
        (MBPP, {"test_list": ["assert a(1) == 1", "assert b(1) == 1"]}, "functions: a, b"),
        (MBPP, {"test_setup_code": "def add(a, b): return 0"}, "could not be kept"),
        (MBPP, {"test_setup_code": "def add("}, "is no Python"),
        (
            HUMANEVAL,
            {"test": "def check(candidate):\n    x = 1\n    assert candidate(x) == 1"},
            "x",
        ),
        (HUMANEVAL, {"test": "def check(candidate):\n    assert True"}, "no tests"),
        (HUMANEVAL, {"test": "def test(candidate):\n    assert candidate(1)"}, "check"),
        (HUMANEVAL, {"test": f"def check(f):\n    assert f({'+'.join('1' * 800)})"}, "too deeply"),
        (LIVE, {"public_test_cases": []}, "no tests"),
        (
            LIVE,
            {"public_test_cases": [{"input": "1", "output": "1" * MOST_KEPT + "\n"}]},
            f"expects {MOST_KEPT + 1} bytes of output",
        ),
        (
            LIVE,
            {"public_test_cases": [{"input": "1", "output": "1", "testtype": "functional"}]},
            "calls a function",
        ),
    ],
)
def test_a_row_that_cannot_be_checked_is_set_apart_with_the_reason(tmp_path, row, changes, why):
    found = read(tmp_path, MBPP, row | changes, HUMANEVAL)
    assert [problem.id for problem in found.problems] == ["few-1", "few-3"]
    (reason,) = found.uncheckable
    assert reason.startswith("row 2: ")
    assert why in reason


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"text": "add", "code": "x"}, "no tests: give 'test_list'"),
        (MBPP | {"test_list": "assert f(1)"}, "'test_list' must be a list of texts"),
        (MBPP | {"test_list": [1]}, "'test_list' must be a list of texts"),
        (MBPP | {"test_imports": "math"}, "'test_imports' must be a list"),
        (MBPP | {"test_setup_code": 5}, "'test_setup_code' must be text"),
        (MBPP | {"code": ["x"]}, "'code' must be text"),
        (HUMANEVAL | {"canonical_solution": False}, "'canonical_solution' must be text"),
        (LIVE | {"code": {}}, "'code' must be text"),
        (MBPP | {"text": ""}, "'text' must be text"),
        (HUMANEVAL | {"prompt": 3}, "'prompt' must be text"),
        (HUMANEVAL | {"test": None}, "'test' must be text"),
        (HUMANEVAL | {"test": "def check("}, "'test' is no Python"),
        (HUMANEVAL | {"test": f"x = {'-' * 100_000}1"}, "'test' is no Python"),
        (HUMANEVAL | {"test": f"x = {'+'.join('1' * 20_000)}"}, "'test' is no Python"),
        (LIVE | {"public_test_cases": "["}, "'public_test_cases': "),
        (LIVE | {"public_test_cases": [{"input": "1"}]}, "must be a list of objects"),
        (LIVE | {"public_test_cases": {}}, "must be a list of objects"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path, row, complaint):
    with pytest.raises(RecipeError, match="row 2: ") as caught:
        read(tmp_path, MBPP, row)
    assert complaint in str(caught.value)


def test_a_problem_from_elsewhere_has_no_cases():
    with pytest.raises(RecipeError, match=r'problem p .*problems\.type = "code"'):
        cases_of(Problem(id="p", prompt="?", answer="1"))


@real_data
def test_nearly_every_row_of_mbpp_can_be_checked():
    found = code_problems(DATA / "mbpp/mbpp.jsonl", 1)
    assert len(found.problems) == 972
    # 126 tests a function that it calls `sum`; 596 expects what `sys.getsizeof` says here.
    assert [each.partition(":")[0] for each in found.uncheckable] == ["row 126", "row 596"]


@real_data
def test_nearly_every_row_of_humaneval_can_be_checked():
    found = code_problems(DATA / "humaneval/HumanEval.jsonl.gz", 1)
    assert len(found.problems) == 157
    # Six test with loops and random inputs, and 34 compares with a call of its own.
    rows = [each.partition(":")[0] for each in found.uncheckable]
    assert rows == [f"row {number}" for number in (33, 34, 39, 45, 51, 54, 152)]


@real_data
def test_samples_of_statements_become_problems(tmp_path):
    with gzip.open(DATA / "livecodebench/atcoder_samples.jsonl.gz") as file:
        rows = [json.loads(line) for line in file]
    live = [
        {"question_content": row["statement"], "public_test_cases": row["sample_tests"]}
        for row in rows
    ]
    found = read(tmp_path, *live)
    assert (len(found.problems), found.uncheckable) == (len(rows), ())
    assert sum(len(cases_of(each)) for each in found.problems) > 2 * len(rows)
