"""Problems in, verdicts out."""

from typing import Protocol

from forethought.core.problem import Problem
from forethought.core.trajectory import Trajectory
from forethought.core.verdict import Verdict


class Grader(Protocol):
    """Reads a trajectory and says whether it solved the problem."""

    async def grade(self, problem: Problem, trajectory: Trajectory) -> Verdict:
        """The verdict. Reads only the policy's own final text; never raises for bad text."""
        ...
