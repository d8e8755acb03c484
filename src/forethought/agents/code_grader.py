"""Grades a program by its tests, run in the sandbox; the verdict is made outside of it.

It stands in this room because it needs two that do not know each other: tasks and tools.
"""

from collections import Counter
from dataclasses import dataclass

from forethought.core.errors import SandboxError
from forethought.core.problem import Problem
from forethought.core.trajectory import Stop, Trajectory
from forethought.core.verdict import Verdict
from forethought.tasks.code import cases_of
from forethought.tasks.graders import final_text
from forethought.tasks.programs import last_program
from forethought.tools.checking import Checked, check
from forethought.tools.sandbox.outcome import Kind
from forethought.tools.sandbox.probe import Runner


@dataclass(frozen=True, slots=True)
class CodeGrader:
    """Grades the program in the policy's final message: the score is the share of tests passed.

    It is right when it passes them all. The program is what `last_program` reads in `final_text`;
    what stands in thoughts, calls or replies is never read. A test that the program's doing keeps
    from ending well, such as an endless loop, is one not passed.
    """

    runner: Runner

    async def grade(self, problem: Problem, trajectory: Trajectory) -> Verdict:
        """Right, wrong with the reason, or not measured: the attempt or the sandbox failed.

        Raises `RecipeError` for a problem without tests.
        """
        if trajectory.stop is Stop.FAILED:
            return Verdict.not_measured(trajectory.error or "the attempt failed")
        program = last_program(final_text(trajectory))
        if program is None:
            return Verdict.wrong(
                why=f"no program in a block of the final answer ({trajectory.stop})"
            )
        try:
            found = await check(self.runner, program, cases_of(problem))
        except SandboxError as error:
            return Verdict.not_measured(f"the tests could not be run: {error}")
        if found.right:
            return Verdict.right(answer=program)
        return Verdict.wrong(answer=program, why=_told(found), score=found.share)


def _told(found: Checked) -> str:
    """How many tests were passed, and how the others ended.

    >>> _told(Checked(kinds=(Kind.OK, Kind.OK, Kind.TIMEOUT), passed=(True, False, False)))
    '1 of 3 tests passed; of the others: 1 another result, 1 timeout'
    """
    failed = Counter(
        "another result" if kind is Kind.OK else kind.replace("_", " ")
        for kind, passed in zip(found.kinds, found.passed, strict=True)
        if not passed
    )
    others = ", ".join(f"{count} {kind}" for kind, count in failed.most_common())
    return f"{sum(found.passed)} of {len(found.passed)} tests passed; of the others: {others}"
