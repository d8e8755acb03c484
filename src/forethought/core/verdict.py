"""What a grader says of an attempt: right, wrong, or not measured."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """The three outcomes. *Not measured* leaves every numerator and every denominator."""

    RIGHT = "right"
    WRONG = "wrong"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """An outcome with a score in [0, 1], the answer that was read (None: none given), and why.

    >>> Verdict.wrong(answer="41", why="41 is not 42").score
    0.0
    """

    outcome: Outcome
    score: float
    answer: str | None = None
    why: str = ""

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise ValueError(f"a verdict's score lies in [0, 1], got {self.score}")

    @classmethod
    def right(cls, answer: str | None = None, why: str = "") -> "Verdict":
        """Correct, with the full score."""
        return cls(outcome=Outcome.RIGHT, score=1.0, answer=answer, why=why)

    @classmethod
    def wrong(cls, answer: str | None = None, why: str = "", score: float = 0.0) -> "Verdict":
        """Measured and not correct; `score` is partial credit."""
        return cls(outcome=Outcome.WRONG, score=score, answer=answer, why=why)

    @classmethod
    def not_measured(cls, why: str) -> "Verdict":
        """Infrastructure broke: nothing can be said about the policy."""
        return cls(outcome=Outcome.NOT_MEASURED, score=0.0, why=why)
