"""What an exam found, as it is stored and shown. How it is computed lives in `estimators`."""

from pydantic import BaseModel, ConfigDict


class Estimate(BaseModel):
    """A value with its 95 % interval over problems.

    >>> str(Estimate(value=0.5, low=0.4, high=0.6))
    '0.500 [0.400, 0.600]'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class ProblemResult(BaseModel):
    """One problem: `n` measured attempts of which `c` right, and the greedy attempt beside them.

    `majority` is maj@n of the sampled attempts (ties share), `greedy` None when not measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    domain: str
    n: int
    c: int
    majority: float
    greedy: bool | None


class ToolUse(BaseModel):
    """How attempts used their tool; rates lie in [0, 1], None where nothing was counted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: float
    """Share of attempts with at least one call."""
    calls: float
    """Calls an attempt."""
    success: float | None
    """Calls that went well, of all calls."""
    right_with_tool: float | None
    """Accuracy of the attempts that called the tool."""
    right_without_tool: float | None
    """Accuracy of the attempts that did not."""


class ExamResult(BaseModel):
    """One exam: sampled attempts at k a problem, one greedy attempt beside them.

    `settings` holds what the figures depend on: k, temperature, top-p, token and turn limits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    attempts: int
    settings: dict[str, float | int | str]
    problems: tuple[ProblemResult, ...]
    not_measured: int
    average: Estimate
    """avg@k"""
    coverage: Estimate
    """pass@k"""
    majority: Estimate
    """maj@k"""
    greedy: Estimate
    sampled_tools: ToolUse
    greedy_tools: ToolUse
    entropy: float
    """Mean full-vocabulary entropy of sampled tokens, nats."""
    tokens: float
    """Sampled tokens an attempt."""
    unfinished: float
    """Share of attempts that ran into a limit before answering."""
