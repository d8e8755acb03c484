"""The exams of a run, and what they say beside each other: differences, and parts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from forethought.core.errors import RecipeError
from forethought.evaluation.comparison import What, paired_difference
from forethought.evaluation.estimators import average
from forethought.evaluation.intervals import normal_interval
from forethought.evaluation.results import Estimate, ExamResult, ProblemResult
from forethought.journal.files import damaged
from forethought.journal.run import JOURNAL, Run

_PREFIX = "exam/"
BEFORE = "before"
"""The exam that training is compared with."""
CONTROL = "tool_only"
"""The exam after a phase of this name: by custom the one before tool-free demonstrations."""
_WORDINGS: dict[bool | None, str] = {False: "familiar wordings", True: "new wordings"}
_PartOf = Callable[[ProblemResult], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SatExam:
    """An exam with the stage that it belongs to; `key` is its document's name after "exam/"."""

    key: str
    stage: str
    result: ExamResult

    @property
    def title(self) -> str:
        """The exam's name as a reader sees it."""
        return self.key.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far the last exam is above an earlier one; `refusal` says why that is not known."""

    earlier: SatExam
    later: SatExam
    what: What
    estimate: Estimate | None
    refusal: str = ""

    @property
    def measure(self) -> str:
        """The figure that is compared, with its k."""
        name = {"average": "avg@", "coverage": "pass@", "greedy": ""}[self.what]
        return f"{name}{self.later.result.attempts}" if name else "greedy"

    @property
    def sign(self) -> int:
        """1 or -1 where the interval excludes zero, else 0."""
        if self.estimate is None:
            return 0
        return (self.estimate.low > 0) - (self.estimate.high < 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Sampled accuracy on some of the problems, before (where that is known) and after."""

    name: str
    problems: int
    before: Estimate | None
    after: Estimate
    difference: Difference | None


def read_exams(run: Run) -> list[SatExam]:
    """Every exam in the order in which it was sat."""
    return [
        SatExam(
            key=name.removeprefix(_PREFIX),
            stage=stage.name,
            result=read_exam(run, stage.name, name.removeprefix(_PREFIX)),
        )
        for stage in run.stages()
        for name in run.documents(stage.name)
        if name.startswith(_PREFIX)
    ]


def read_exam(run: Run, stage: str, key: str) -> ExamResult:
    """The result of the exam `key` of a stage. Raises `RecipeError` where it is none."""
    name = f"{_PREFIX}{key}"
    try:
        return ExamResult.model_validate(run.document(stage, name))
    except ValidationError as error:
        reason = f"its document {name} of {stage} is not the result of an exam"
        raise damaged(run.path / JOURNAL, reason) from error


def earlier_exam(exams: Sequence[SatExam], key: str) -> SatExam | None:
    """The exam called `key`, unless it is the last one."""
    return next((exam for exam in exams[:-1] if exam.key == key), None)


def starting_exam(exams: Sequence[SatExam]) -> SatExam | None:
    """What the last exam is compared with: "before", or else the first that is no control."""
    others = [exam for exam in exams[:-1] if exam.key != CONTROL]
    return earlier_exam(exams, BEFORE) or next(iter(others), None)


def compare(earlier: SatExam, later: SatExam, what: What) -> Difference:
    """The paired difference of two exams, or why there is none."""
    try:
        estimate = paired_difference(earlier.result, later.result, what)
    except RecipeError as error:
        return Difference(
            earlier=earlier, later=later, what=what, estimate=None, refusal=str(error)
        )
    return Difference(earlier=earlier, later=later, what=what, estimate=estimate)


def differences(exams: Sequence[SatExam]) -> list[Difference]:
    """The last exam against the one before training and against the control."""
    wanted: tuple[What, ...] = ("average", "greedy", "coverage")
    against = [starting_exam(exams), earlier_exam(exams, CONTROL)]
    return [
        compare(earlier, exams[-1], what)
        for earlier in against
        if earlier is not None
        for what in wanted
    ]


def families(exams: Sequence[SatExam]) -> list[Part]:
    """The last exam's accuracy by domain, beside the one before training where there is one."""
    return _parts(exams, lambda problem: problem.domain)


def wordings(exams: Sequence[SatExam], new: Mapping[str, bool]) -> list[Part]:
    """The same by wording: `new` says of a problem, by its id, whether no training problem has it.

    Problems that it does not name are in no part.
    """
    return _parts(exams, lambda problem: _WORDINGS.get(new.get(problem.id)))


def percent(value: float | None) -> str:
    """A share as a reader sees it.

    >>> percent(0.1234), percent(None)
    ('12.3 %', '—')
    """
    return "—" if value is None else f"{100 * value:.1f} %"


def interval(estimate: Estimate) -> str:
    """The interval of a share, in percent.

    >>> interval(Estimate(value=0.125, low=0.01, high=0.26))
    '[1.0, 26.0]'
    """
    return f"[{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def points(estimate: Estimate) -> str:
    """A difference of shares in percentage points, with its interval.

    >>> points(Estimate(value=0.125, low=0.01, high=0.26))
    '+12.5 points [+1.0, +26.0]'
    """
    return f"{signed(estimate.value)} points [{signed(estimate.low)}, {signed(estimate.high)}]"


def signed(share: float) -> str:
    """A difference of shares in points, with its sign.

    >>> signed(0.125)
    '+12.5'
    """
    return f"{100 * share:+.1f}".replace("-", "\N{MINUS SIGN}")


def _parts(exams: Sequence[SatExam], part_of: _PartOf) -> list[Part]:
    if not exams:
        return []
    names = {part_of(problem) for problem in exams[-1].result.problems}
    return [_part(exams, part_of, name) for name in sorted(name for name in names if name)]


def _part(exams: Sequence[SatExam], part_of: _PartOf, name: str) -> Part:
    def only(exam: SatExam) -> SatExam:
        kept = tuple(problem for problem in exam.result.problems if part_of(problem) == name)
        return replace(exam, result=exam.result.model_copy(update={"problems": kept}))

    start, after = starting_exam(exams), only(exams[-1])
    before = None if start is None else only(start)
    return Part(
        name=name,
        problems=len(after.result.problems),
        before=_accuracy(before.result) if before and before.result.problems else None,
        after=_accuracy(after.result),
        difference=None if before is None else compare(before, after, "average"),
    )


def _accuracy(result: ExamResult) -> Estimate:
    return normal_interval([average(problem.n, problem.c) for problem in result.problems])
