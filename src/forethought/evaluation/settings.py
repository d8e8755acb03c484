"""What a recipe says about exams."""

from pydantic import Field

from forethought.core.settings import Settings


class ExamSettings(Settings):
    """How large an exam is, and how much of it may break."""

    attempts: int = Field(default=8, ge=1)
    """Sampled attempts a problem: the k of avg@k, pass@k and maj@k."""
    problems: int = Field(default=100, ge=1)
    """Problems at most: the first of those given."""
    max_not_measured: float = Field(default=0.1, ge=0.0, le=1.0)
    """The share of attempts that broken infrastructure may take before the exam is refused."""
