"""Graders that compare a final answer with the known one."""

from forethought.core.problem import Problem
from forethought.core.trajectory import Stop, Trajectory
from forethought.core.verdict import Verdict
from forethought.tasks.answers import boxed_answer, same_value


class BoxedGrader:
    r"""Grades the last `\boxed{...}` of the policy's final message by `same_value`.

    The final message is the last turn's text, without thinking; a message that still calls a tool
    is not final, and what a tool printed is never read. The verdict does not depend on how the
    attempt ended, unless it failed: a box in a message that ran out of tokens counts.
    """

    async def grade(self, problem: Problem, trajectory: Trajectory) -> Verdict:
        """Right, wrong with the reason, or not measured when the attempt failed."""
        if trajectory.stop is Stop.FAILED:
            return Verdict.not_measured(trajectory.error or "the attempt failed")
        answer = boxed_answer(final_text(trajectory))
        if answer is None:
            return Verdict.wrong(why=f"no final answer in \\boxed{{}} ({trajectory.stop})")
        if same_value(answer, problem.answer):
            return Verdict.right(answer=answer)
        return Verdict.wrong(answer=answer, why=f"{answer} is not {problem.answer}")


def final_text(trajectory: Trajectory) -> str:
    """The text of the policy's final message; "" where it has none, or it still calls a tool."""
    if not trajectory.turns:
        return ""
    message = trajectory.turns[-1].message
    return "" if message.calls else message.text
