"""An exam: every problem attempted k times as sampled and once greedily, and what came of it.

Covers one policy at one moment; `comparison` puts two exams side by side. Only verdicts are
read, never a reward. An attempt that is not measured leaves numerators and denominators.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean

from forethought.agents.groups import (
    Failure,
    Flow,
    attempt_groups,
    commonest_failure,
    refuse_unmeasured,
    unmeasured,
)
from forethought.agents.protocol import Solver
from forethought.core.errors import RecipeError, UnmeasuredError
from forethought.core.messages import ToolStatus
from forethought.core.problem import Problem
from forethought.core.trajectory import Episode, Group
from forethought.evaluation.estimators import average, majority_at, pass_at
from forethought.evaluation.intervals import (
    bootstrap_interval,
    normal_interval,
    wilson_interval,
)
from forethought.evaluation.results import ExamResult, ProblemResult, ToolUse
from forethought.evaluation.settings import ExamSettings


def plain_answer(answer: str) -> str:
    """The default form in which answers are counted as equal: case and spacing do not matter.

    >>> plain_answer("  Tuesday ")
    'tuesday'
    """
    return " ".join(answer.split()).casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """Problems and how to sit them.

    `conditions` is what else the figures depend on (temperature, top-p, token and turn limits):
    it is kept in the result, and exams under other conditions are not compared. `canonical`
    makes equal answers equal strings, for the majority vote.
    """

    problems: tuple[Problem, ...]
    settings: ExamSettings = field(default_factory=ExamSettings)
    conditions: Mapping[str, float | int | str] = field(
        default_factory=dict[str, float | int | str]
    )
    canonical: Callable[[str], str] = plain_answer

    def __post_init__(self) -> None:
        twice = [name for name, n in Counter(p.id for p in self.problems).items() if n > 1]
        if twice:
            raise RecipeError(f"an exam holds problem {twice[0]} twice: give each its own id")
        if not self.problems:
            raise RecipeError("an exam holds 0 problems: give it one at least")

    async def sit(
        self,
        solver: Solver,
        greedy_solver: Solver,
        *,
        name: str,
        seed: int,
        flow: Flow,
        progress: Callable[[Episode], None] | None = None,
    ) -> tuple[ExamResult, list[Group]]:
        """Attempt every problem k times with `solver` and once with `greedy_solver`.

        `name` must be unique within the run: the ids of groups begin with it. Returns the result
        and every group. Raises `RecipeError` when more than the configured share was not measured.
        """
        problems = self.problems[: self.settings.problems]
        sampled = await attempt_groups(
            solver,
            problems,
            size=self.settings.attempts,
            seed=seed,
            stage=f"{name}/sampled",
            flow=flow,
            progress=progress,
        )
        greedy = await attempt_groups(
            greedy_solver,
            problems,
            size=1,
            seed=seed,
            stage=f"{name}/greedy",
            flow=flow,
            progress=progress,
        )
        refuse_unmeasured(
            [*sampled, *greedy], self.settings.max_not_measured, "eval.max_not_measured"
        )
        result = summarise_exam(name, sampled, greedy, self.conditions, canonical=self.canonical)
        return result, [*sampled, *greedy]


def summarise_exam(
    name: str,
    sampled: Sequence[Group],
    greedy: Sequence[Group],
    settings: Mapping[str, float | int | str],
    *,
    canonical: Callable[[str], str] = plain_answer,
) -> ExamResult:
    """The figures of an exam from its attempts: one group a problem, all of k attempts.

    A problem without a measured sampled attempt leaves the exam. One with fewer than k counts in
    avg@k, and leaves pass@k and maj@k, which it cannot say. `not_measured` counts sampled and
    greedy attempts. Raises `RecipeError` when nothing is left to compute a figure from.
    """
    k = len(sampled[0].episodes) if sampled else 0
    if any(len(group.episodes) != k for group in sampled):
        raise ValueError(f"exam {name}: every problem needs the same number of attempts")
    answered = {group.problem.id: attempt for group in greedy for attempt in group.measured}
    problems = tuple(
        _summarise_problem(group, answered.get(group.problem.id), canonical)
        for group in sampled
        if group.measured
    )
    whole = [problem for problem in problems if problem.n == k]
    greedily = [problem.greedy for problem in problems if problem.greedy is not None]
    if not (whole and greedily):
        failure = commonest_failure([*sampled, *greedy])
        raise UnmeasuredError(
            f"exam {name}: of {len(sampled)} problems, {len(whole)} have all {k} sampled attempts "
            f"measured and {len(greedily)} the greedy one; {_commonest(failure)}: "
            "repair that and sit the exam again",
            "" if failure is None else failure.trace,
        )
    attempts = _measured(sampled)
    return ExamResult(
        name=name,
        attempts=k,
        settings=dict(settings),
        problems=problems,
        not_measured=len(unmeasured([*sampled, *greedy])),
        average=normal_interval([average(problem.n, problem.c) for problem in problems]),
        coverage=bootstrap_interval([pass_at(k, problem.n, problem.c) for problem in whole]),
        majority=bootstrap_interval([problem.majority for problem in whole]),
        greedy=wilson_interval(sum(greedily), len(greedily)),
        sampled_tools=summarise_tools(attempts),
        greedy_tools=summarise_tools(_measured(greedy)),
        entropy=mean_entropy(attempts),
        tokens=fmean(sum(t.sampled_tokens for t in one.trajectories) for one in attempts),
        unfinished=fmean(attempt.truncated for attempt in attempts),
    )


def summarise_tools(attempts: Sequence[Episode]) -> ToolUse:
    """How measured attempts, one at least, used their tools; a call counts once it is answered."""
    replies = [[reply for t in one.trajectories for reply in t.replies] for one in attempts]
    statuses = [reply.status is ToolStatus.OK for reply in chain.from_iterable(replies)]
    used = [one.right for one, said in zip(attempts, replies, strict=True) if said]
    unused = [one.right for one, said in zip(attempts, replies, strict=True) if not said]
    return ToolUse(
        rate=len(used) / len(attempts),
        calls=len(statuses) / len(attempts),
        success=_share(statuses),
        right_with_tool=_share(used),
        right_without_tool=_share(unused),
    )


def mean_entropy(attempts: Sequence[Episode]) -> float:
    """The mean over sampled tokens, so that long turns weigh as much as their tokens."""
    turns = [turn for one in attempts for t in one.trajectories for turn in t.turns]
    tokens = sum(turn.tokens for turn in turns)
    return sum(turn.entropy * turn.tokens for turn in turns) / tokens if tokens else 0.0


def _summarise_problem(
    group: Group, greedy: Episode | None, canonical: Callable[[str], str]
) -> ProblemResult:
    verdicts = [episode.verdict for episode in group.measured]
    right = [episode.right for episode in group.measured]
    answers = [
        None if verdict.answer is None else canonical(verdict.answer) for verdict in verdicts
    ]
    return ProblemResult(
        id=group.problem.id,
        domain=group.problem.domain,
        n=len(right),
        c=sum(right),
        majority=majority_at(len(right), answers, right),
        greedy=None if greedy is None else greedy.right,
    )


def _measured(groups: Sequence[Group]) -> list[Episode]:
    return [episode for group in groups for episode in group.measured]


def _commonest(failure: Failure | None) -> str:
    if failure is None:
        return "no attempt broke"
    return f"the commonest reason ({failure.count} times) is {failure.why!r}"


def _share(outcomes: Sequence[bool]) -> float | None:
    return fmean(outcomes) if outcomes else None
