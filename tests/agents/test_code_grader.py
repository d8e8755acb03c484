"""Programs of final answers, graded in a real sandbox."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from forethought.agents.code_grader import CodeGrader
from forethought.agents.groups import Window, attempt_groups
from forethought.core.errors import RecipeError, SandboxError
from forethought.core.messages import Assistant, ToolReply
from forethought.core.problem import Problem
from forethought.core.trajectory import Finish, Stop, Trajectory, Turn
from forethought.core.verdict import Outcome, Verdict
from forethought.learning.lessons import score
from forethought.learning.rewards.settings import RewardSettings
from forethought.tasks.code import code_problems
from forethought.tasks.programs import fenced
from forethought.tools.python_tool import PythonTool
from forethought.tools.settings import PythonSettings
from scripted import ScriptedPolicy, call, says, tool_agent

DATA = Path(__file__).parents[2] / "../shared/data"
real_data = pytest.mark.skipif(not (DATA / "mbpp").is_dir(), reason="needs the benchmarks' files")

ADD = Problem(
    id="add",
    prompt="Write a function to add.",
    answer="def add(a, b): return a + b",
    domain="code",
    data={
        "tests": [f"assert add({a}, {b}) == {a + b}" for a, b in ((1, 2), (2, 2), (5, 5), (0, 7))],
        "setup": "",
    },
)
ECHO = Problem(
    id="echo",
    prompt="Repeat the input.",
    answer="print(input())",
    data={"tests": [{"input": "a\n", "output": "a\n"}, {"input": "", "output": ""}]},
)


@pytest.fixture(scope="module")
def sandbox():
    """An event loop, and a real sandbox that is open in it."""
    with asyncio.Runner() as runner:
        tool = PythonTool(PythonSettings(servers=1, wall_seconds=2.0, memory_mb=160))
        runner.run(tool.__aenter__())
        yield runner, tool
        runner.run(tool.__aexit__(None, None, None))


@pytest.fixture
def grade(sandbox):
    runner, tool = sandbox

    def run(problem, *texts, **parts):
        grader = CodeGrader(tool.opened.backend)
        return runner.run(grader.grade(problem, said(*texts, **parts)))

    return run


def said(*texts, calls=(), thinking="", stop=Stop.ANSWERED, error=""):
    """Somebody's side: turns with these texts, the calls and thoughts in the last of them."""
    *earlier, last = texts
    turns = [Assistant(text=text) for text in earlier]
    turns.append(Assistant(text=last, calls=calls, thinking=thinking))
    return Trajectory(
        agent="a",
        opening=(),
        turns=tuple(Turn(message=each, finish=Finish.END_OF_TURN) for each in turns),
        stop=stop,
        error=error,
    )


def test_a_program_that_passes_every_test_is_right(grade):
    verdict = grade(ADD, f"so the program is\n{fenced(ADD.answer)}")
    assert verdict == Verdict.right(answer=ADD.answer)


@pytest.mark.parametrize(
    ("program", "share", "why"),
    [
        ("def add(a, b): return 2 * b", 0.5, "2 of 4 tests passed; of the others: 2 another"),
        ("def add(a, b): return 4", 0.25, "1 of 4 tests passed"),
        ("def add(a, b): return None", 0.0, "0 of 4 tests passed; of the others: 4 another"),
        ("def plus(a, b): return a + b", 0.0, "4 error"),
        ("def add(a, b: return a + b", 0.0, "4 error"),
        ("def add(a, b):\n    while a == 0: pass\n    return a + b", 0.75, "1 timeout"),
        ("while True: pass", 0.0, "4 timeout"),
        ("x = bytearray(10**9)", 0.0, "4 memory limit"),
        ("print('1' * 70_000)\ndef add(a, b): return 4", 0.0, "4 output limit"),
        ("import os\nos._exit(0)", 0.0, "4 another result"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", 0.0, "4 crash"),
    ],
)
def test_a_program_scores_the_share_of_tests_that_it_passes(grade, program, share, why):
    verdict = grade(ADD, fenced(program))
    assert (verdict.outcome, verdict.score) == (Outcome.WRONG, share)
    assert verdict.answer == program
    assert why in verdict.why


FORGED = {
    "says that it is right": "print('4 of 4 tests passed')\nprint({'outcome': 'right'})",
    "guesses at marks": "for i in range(99): print('\\n' + '0' * 32 + '\\n3', end='')",
    "leaves with success": "import sys\nprint('OK')\nsys.exit(0)",
    "finds the mark and writes the question": (
        "import sys\nframe = sys._getframe()\nwhile frame.f_back: frame = frame.f_back\n"
        "marks = [c for c in frame.f_code.co_consts if isinstance(c, str) and len(c) == 34]\n"
        "import os\nos.write(1, (marks[0] + 'add(1, 2)' + marks[0]).encode() if marks else b'')\n"
        "os._exit(0)"
    ),
    "is equal to everything": (
        "class Any:\n    def __eq__(self, other): return True\n    def __hash__(self): return 0\n"
        "def add(a, b): return Any()"
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_program_that_forges_a_verdict_is_wrong(grade, name):
    assert grade(ADD, fenced(FORGED[name])).score == 0.0


def test_programs_that_read_and_write_are_graded_by_what_they_write(grade):
    assert grade(ECHO, fenced("import sys\nprint(sys.stdin.read())")).outcome is Outcome.RIGHT
    assert grade(ECHO, fenced(ECHO.answer)).score == 0.5


def test_only_the_final_message_holds_an_answer(grade):
    right = fenced(ADD.answer)
    wrong = fenced("def add(a, b): return 0")
    assert grade(ADD, wrong, right).outcome is Outcome.RIGHT
    assert grade(ADD, right, wrong).score == 0.0
    assert grade(ADD, f"{right}\nno:\n{wrong}").score == 0.0
    for verdict in (
        grade(ADD, right, "that was it"),
        grade(ADD, "done", thinking=right),
        grade(ADD, right, calls=(call(),), stop=Stop.TURN_LIMIT),
        grade(ADD, "```python\ndef add(a, b): return a + b", stop=Stop.TOKEN_LIMIT),
    ):
        assert (verdict.outcome, verdict.answer) == (Outcome.WRONG, None)
        assert verdict.why.startswith("no program in a block of the final answer")


def test_a_failed_attempt_is_not_measured(grade):
    verdict = grade(ADD, fenced(ADD.answer), stop=Stop.FAILED, error="the engine died")
    assert verdict == Verdict.not_measured("the engine died")


class Dead:
    """A sandbox whose servers are gone."""

    async def run(self, code, stdin=""):
        raise SandboxError("no server")


@pytest.mark.parametrize("program", [ADD.answer, "while True: pass", "x ="])
def test_a_dead_sandbox_is_not_measured_whatever_the_program(program):
    verdict = asyncio.run(CodeGrader(Dead()).grade(ADD, said(fenced(program))))
    assert verdict == Verdict.not_measured("the tests could not be run: no server")


def test_a_problem_without_tests_is_a_mistake_of_the_recipe():
    with pytest.raises(RecipeError, match="no tests"):
        asyncio.run(
            CodeGrader(Dead()).grade(Problem(id="p", prompt="?", answer="1"), said(fenced("x")))
        )


def test_partial_pays_each_attempt_of_a_round_the_share_of_tests_that_it_passed(sandbox):
    runner, tool = sandbox
    programs = [ADD.answer, "def add(a, b): return 2 * b", "def add(a, b): return 4", "add = 1"]
    policy = ScriptedPolicy(lambda key: [says(fenced(programs[key.rollout]))])
    agent = tool_agent(policy, grader=CodeGrader(tool.opened.backend))
    groups = runner.run(
        attempt_groups(agent, [ADD], size=4, seed=0, stage="rl/0", flow=Window(at_once=4))
    )
    (lesson,) = score(groups, RewardSettings(variant="outcome", partial=0.8))
    paid = [each.reward.components["partial"] for each in lesson.graded]
    assert paid == pytest.approx([0.0, 0.4, 0.2, 0.0])
    totals = [each.reward.total for each in lesson.graded]
    assert totals == pytest.approx([1.0, -0.6, -0.8, -1.0])
    assert sorted(lesson.advantages, reverse=True) == list(lesson.advantages)
    assert len(set(lesson.advantages)) == 4


def test_what_a_tool_replied_is_no_answer(grade):
    reply = ToolReply(call_id="call_0", name="python", text=fenced(ADD.answer))
    turn = Turn(
        message=Assistant(text="", calls=(call(),)), finish=Finish.END_OF_TURN, replies=(reply,)
    )
    told = said("that was it")
    told = Trajectory(agent="a", opening=(), turns=(turn, *told.turns), stop=Stop.ANSWERED)
    verdict = asyncio.run(CodeGrader(Dead()).grade(ADD, told))
    assert verdict.answer is None


@real_data
def test_real_rows_are_graded_by_their_own_solutions(grade):
    problems = code_problems(DATA / "mbpp/mbpp.jsonl", 1).problems
    # Counters, default dictionaries, and functions that setup code has to come after.
    chosen = [each for each in problems if each.id in {f"mbpp-{n}" for n in (1, 2, 40, 367, 653)}]
    assert len(chosen) == 5
    for problem in chosen:
        verdict = grade(problem, problem.data["closing"])
        assert (problem.id, verdict.outcome, verdict.score) == (problem.id, Outcome.RIGHT, 1.0)
        assert grade(problem, fenced("pass")).score == 0.0


@real_data
def test_a_real_row_pays_a_part_for_a_program_that_passes_a_part(grade):
    problems = code_problems(DATA / "mbpp/mbpp.jsonl", 1).problems
    (problem,) = [each for each in problems if each.id == "mbpp-2"]
    once = fenced("def similar_elements(one, other): return (4, 5)")
    assert grade(problem, once).score == pytest.approx(1 / 3)


@real_data
def test_real_functions_are_graded_by_their_own_solutions(grade):
    for problem in code_problems(DATA / "humaneval/HumanEval.jsonl.gz", 1).problems[:8]:
        assert grade(problem, problem.data["closing"]).outcome is Outcome.RIGHT


@real_data
def test_real_scripts_are_right_where_they_were_right(grade, tmp_path):
    with gzip.open(DATA / "livecodebench/atcoder_samples.jsonl.gz") as file:
        rows = [json.loads(line) for line in file]
    right = [row for row in rows if row["graded"] and "exit()" in row["code"]][:3]
    lines = (
        {"question_content": row["statement"], "public_test_cases": row["sample_tests"]}
        | {"code": row["code"]}
        for row in right
    )
    path = tmp_path / "live.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    verdicts = [grade(each, each.data["closing"]) for each in code_problems(path, 1).problems]
    assert [verdict.outcome for verdict in verdicts] == [Outcome.RIGHT] * len(right)
    assert right != []
