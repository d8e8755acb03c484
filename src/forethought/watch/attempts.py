"""The attempts behind an exam's figures, read back from the run that kept them.

The ids of an exam's groups begin with its name, then `sampled` or `greedy`.
"""

from dataclasses import dataclass

from forethought.core.trajectory import Episode, Group
from forethought.journal.run import Run
from forethought.watch.exams import SatExam


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """One exam's groups; both are empty where the run kept none."""

    sampled: tuple[Group, ...]
    greedy: tuple[Group, ...]

    @property
    def episodes(self) -> list[Episode]:
        """Every attempt, the sampled ones first."""
        return [episode for group in (*self.sampled, *self.greedy) for episode in group.episodes]


def read_attempts(run: Run, exam: SatExam | None) -> Attempts:
    """The attempts of an exam of `run`; none of no exam."""
    groups = [] if exam is None else list(run.groups(exam.stage))
    name = "" if exam is None else exam.result.name
    return Attempts(
        sampled=tuple(group for group in groups if group.id.startswith(f"{name}/sampled/")),
        greedy=tuple(group for group in groups if group.id.startswith(f"{name}/greedy/")),
    )


def new_wordings(attempts: Attempts) -> dict[str, bool]:
    """Whether each problem is worded as no training problem is, by its id.

    Problems that do not say (a user's own, say) are left out.
    """
    problems = (group.problem for group in attempts.sampled)
    return {
        problem.id: bool(problem.data["new_template"])
        for problem in problems
        if "new_template" in problem.data
    }
