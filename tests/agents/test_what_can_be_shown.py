from forethought.agents.demonstrators import DemonstratorSettings, can_show
from forethought.core.problem import Problem

BARE = Problem(id="bare", prompt="6 * 7?", answer="42")
WITH_PROGRAM = Problem(
    id="full", prompt="6 * 7?", answer="42", data={"plan": "multiply.", "program": "print(6*7)"}
)


def test_scripts_show_a_problem_that_comes_with_a_program():
    assert can_show(WITH_PROGRAM, DemonstratorSettings())


def test_a_problem_without_a_program_can_only_be_shown_without_a_call():
    assert not can_show(BARE, DemonstratorSettings(styles={"direct": 1.0, "tool_free": 0.0}))
    assert can_show(BARE, DemonstratorSettings(styles={"direct": 1.0, "tool_free": 0.1}))
