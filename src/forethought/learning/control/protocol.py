"""What steers a setting while a run goes on, and how its state is kept.

A rule is a pure step function over a small frozen state; `Held` holds the state that lives. Rules
know nothing of each other: `Controllers` (`controllers`) puts them together.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from forethought.core.errors import RecipeError


class State(Protocol):
    """A frozen dataclass of plain numbers."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


S = TypeVar("S", bound=State)


class Rule(Protocol[S]):
    """How a state goes on. All three are pure."""

    def begin(self) -> S:
        """The state before the first step."""
        ...

    def step(self, state: S, metrics: Mapping[str, float]) -> S:
        """The state after a step with these metrics."""
        ...

    def settings(self, state: S) -> dict[str, float]:
        """The loss settings that a state stands for, by name."""
        ...


class Controller(Protocol):
    """Tells the settings of the next step from the metrics of the last."""

    @property
    def settings(self) -> dict[str, float]:
        """The settings in force, by the names that the loss has for them."""
        ...

    def observe(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Take in a step's metrics; the settings of the next step."""
        ...

    @property
    def state(self) -> dict[str, Any]:
        """All that is needed to go on, as plain values that JSON can write."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. Raises `RecipeError` for one that another controller left."""
        ...


@dataclass(slots=True)
class Held(Generic[S]):
    """A rule with its state (a `Controller`)."""

    rule: Rule[S]
    now: S

    @property
    def settings(self) -> dict[str, float]:
        """The settings in force."""
        return self.rule.settings(self.now)

    def observe(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """One step of the rule."""
        self.now = self.rule.step(self.now, metrics)
        return self.settings

    @property
    def state(self) -> dict[str, Any]:
        """The rule's state by field."""
        return asdict(self.now)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put the state back."""
        begun = self.rule.begin()
        known = asdict(begun)
        if set(state) != set(known):
            raise RecipeError(
                f"control: the checkpoint holds {', '.join(sorted(state)) or 'nothing'} where "
                f"{', '.join(sorted(known))} is needed: go on with the recipe that it was made with"
            )
        self.now = replace(begun, **state)


def held(rule: Rule[S]) -> Held[S]:
    """A rule before its first step."""
    return Held(rule, rule.begin())


def measured(metrics: Mapping[str, float], name: str) -> float | None:
    """A metric, or None where a step has none: it was not measured, or is not finite.

    >>> measured({"entropy": float("nan")}, "entropy") is None
    True
    """
    value = metrics.get(name)
    return value if value is not None and math.isfinite(value) else None
