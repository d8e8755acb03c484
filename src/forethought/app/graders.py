"""Who grades the attempts at a recipe's problems."""

from forethought.agents.code_grader import CodeGrader
from forethought.app.problems import CodeProblems
from forethought.app.recipe import Recipe
from forethought.tasks.graders import BoxedGrader
from forethought.tasks.protocol import Grader
from forethought.tools.python_tool import PythonTool


def grader_for(recipe: Recipe, tool: PythonTool) -> Grader:
    """The grader for its problems; programs are tested where `tool`, which is open, runs them."""
    if isinstance(recipe.problems, CodeProblems):
        return CodeGrader(tool.opened.backend)
    return BoxedGrader()
