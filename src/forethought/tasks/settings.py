"""What a recipe may say about problems."""

from pydantic import Field

from forethought.core.settings import Settings


class PracticeSettings(Settings):
    """Which practice problems are made, and how hard they are."""

    families: tuple[str, ...] = (
        "stories",
        "chains",
        "gcd",
        "lcm",
        "primes",
        "divisors",
        "bases",
        "order",
        "letters",
        "bits",
        "digits",
        "weekdays",
        "dates",
    )
    """The families to draw from, in equal shares. The default is all of them."""
    hard: float = Field(default=0.5, ge=0.0, le=1.0)
    """The share of problems with large parameters."""
