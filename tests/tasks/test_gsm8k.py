import json
import subprocess
import sys
from pathlib import Path

import pytest

from forethought.core.errors import RecipeError
from forethought.tasks.answers import same_value
from forethought.tasks.gsm8k import calculations, gsm8k_problems

DATA = Path(__file__).parents[2] / "../shared/data/gsm8k"
real_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the GSM8K files")

NATALIA = {
    "question": "48 clips in April, half in May. Sum?",
    "answer": "She sold 48/2 = <<48/2=24>>24 in May.\nIn all 48+24 = <<48+24=72>>72.\n#### 72",
}


def problem(tmp_path, **fields):
    path = tmp_path / "few.jsonl"
    path.write_text(json.dumps(NATALIA | fields))
    (only,) = gsm8k_problems(path)
    return only


def printed(program):
    run = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_a_solution_becomes_a_plan_a_program_and_an_answer(tmp_path):
    found = problem(tmp_path)
    assert (found.id, found.domain, found.answer) == ("gsm8k-few-1", "gsm8k", "72")
    assert found.data["plan"] == "She sold 48/2 = 24 in May.\nIn all 48+24 = 72."
    assert found.data["program"] == 'x1 = 48/2\nx2 = 48+24\nprint(f"{x2:.10g}")'
    assert printed(found.data["program"]) == "72"


def test_commas_leave_the_answer(tmp_path):
    assert problem(tmp_path, answer="many\n#### 1,234").answer == "1234"


@pytest.mark.parametrize(
    ("mark", "output"),
    [
        ("<<20%*50=10>>", "10"),
        ("<<0.1*3=.3>>", "0.3"),
        ("<<1,000*2=2000>>", "2000"),
        ("<<007+1=8>>", "8"),
        ("<<100/3=33.33>>", "33.33333333"),
        ("<<1234567890+1=1234567891>>", "1234567891"),
    ],
)
def test_a_marked_calculation_prints_its_value(tmp_path, mark, output):
    assert printed(problem(tmp_path, answer=f"{mark}\n#### 1").data["program"]) == output


ODD_MARKS = ["", "<<5x=10>>", "<<(1+2=3>>", "<<=3>>", "<<__import__=3>>"]
TOO_MUCH = [f"<<{'(' * 5000}1{')' * 5000}=1>>", f"<<{'-' * 100_000}1=1>>", f"<<{'9' * 5000}=1>>"]


@pytest.mark.parametrize("mark", [*ODD_MARKS, *TOO_MUCH], ids=range(8))
def test_without_plain_arithmetic_there_is_no_program(tmp_path, mark):
    found = problem(tmp_path, answer=f"so {mark}\n#### 3")
    assert "program" not in found.data
    assert found.data["plan"] == "so"


@pytest.mark.parametrize("answer", ["no mark", "empty ####", "#### , "])
def test_a_row_without_a_final_answer_is_named(tmp_path, answer):
    with pytest.raises(RecipeError, match=r"few\.jsonl, row 1: 'answer' must end in '####"):
        problem(tmp_path, answer=answer)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(RecipeError, match="is no file"):
        gsm8k_problems(tmp_path / "none.jsonl.gz")


@real_data
@pytest.mark.parametrize(("name", "rows"), [("test.jsonl", 1319), ("train.jsonl.gz", 7473)])
def test_the_real_files_are_read_in_full(name, rows):
    problems = gsm8k_problems(DATA / name)
    assert len({found.id for found in problems}) == rows
    assert sum("program" in found.data for found in problems) > 0.98 * rows
    assert all(same_value(found.answer, str(float(found.answer))) for found in problems)


@real_data
def test_most_real_programs_lead_to_the_answer():
    problems = [p for p in gsm8k_problems(DATA / "test.jsonl") if "program" in p.data][:300]
    outputs = printed("\n".join(p.data["program"] for p in problems)).split("\n")
    right = [same_value(out, p.answer) for out, p in zip(outputs, problems, strict=True)]
    assert sum(right) > 0.9 * len(right)


def test_a_problem_knows_how_many_calculations_its_solution_marks(tmp_path):
    rows = [
        {"question": "q1", "answer": "6*7=<<6*7=42>>42\n42-2=<<42-2=40>>40\n#### 40"},
        {"question": "q2", "answer": "It is plain.\n#### 1"},
    ]
    path = tmp_path / "two.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [calculations(problem) for problem in gsm8k_problems(path)] == [2, 0]
