"""What can go wrong, named by the boundary it crossed."""

from collections.abc import Generator
from contextlib import contextmanager


class ForethoughtError(Exception):
    """Base of every error this package raises on purpose."""


class RecipeError(ForethoughtError):
    """The user asked for something that cannot be done: the message says what to change."""


class UnmeasuredError(RecipeError):
    """More attempts broke than a limit allows; `trace` is how one of them did, where it is known.

    >>> UnmeasuredError("9 of 10 attempts were not measured", "Traceback ...").trace
    'Traceback ...'
    """

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace


class RolloutError(ForethoughtError):
    """Infrastructure broke during one attempt: it is *not measured*, and the run goes on."""


class PolicyError(RolloutError):
    """The inference engine could not answer."""


class SandboxError(RolloutError):
    """A tool's sandbox could not run (its program failing is a reply, not an error)."""


class GradingError(RolloutError):
    """A grader broke while reading an attempt."""


PROGRAMMING = (
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    TypeError,
)
"""What Python raises where a program is wrong, and not what it works with."""


def is_programming(error: BaseException) -> bool:
    """Whether an error, or what it was raised from, says that a program is wrong.

    >>> is_programming(KeyError("x")), is_programming(ConnectionError("gone"))
    (True, False)
    """
    return isinstance(error, PROGRAMMING) or (
        error.__cause__ is not None and is_programming(error.__cause__)
    )


@contextmanager
def boundary(kind: type[RolloutError], what: str) -> Generator[None]:
    """Attribute whatever escapes this block to `kind`, unless a boundary within already did.

    A `ForethoughtError` passes unchanged: it has been named where it was raised.
    """
    try:
        yield
    except ForethoughtError:
        raise
    except Exception as error:
        raise kind(f"{what}: {type(error).__name__}: {error}") from error
