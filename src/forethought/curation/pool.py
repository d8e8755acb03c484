"""A fixed pool of problems, dealt out in batches. Does not adapt to how the policy fares."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.core.randomness import derive_seed
from forethought.core.trajectory import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Every problem once an epoch, in a new order each epoch (a curriculum).

    A batch depends on the seed and the step alone, not on earlier draws nor on the order of the
    problems. The end of an epoch that does not fill a batch begins the next one, so no problem is
    left out, and that batch may hold a problem twice.
    """

    problems: tuple[Problem, ...]
    batch: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= len(self.problems):
            raise RecipeError(
                f"a batch of {self.batch} problems cannot be drawn from {len(self.problems)}: "
                "set the batch between 1 and the number of problems, or add problems"
            )
        twice = [name for name, n in Counter(p.id for p in self.problems).items() if n > 1]
        if twice:
            raise RecipeError(f"the pool holds problem {twice[0]} twice: give each its own id")

    def draw(self, step: int) -> list[Problem]:
        """The problems of this step."""
        size = len(self.problems)
        start = step * self.batch
        epochs = range(start // size, (start + self.batch - 1) // size + 1)
        dealt = [problem for epoch in epochs for problem in self._order(epoch)]
        first = start - epochs[0] * size
        return dealt[first : first + self.batch]

    def learn(self, groups: Sequence[Group]) -> None:
        """Take note of what came of a draw: a fixed pool has no use for it."""

    @property
    def state(self) -> Mapping[str, Any]:
        """What a checkpoint must hold: nothing, since a step's draw follows from the seed."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint. Raises `RecipeError` for another curriculum's state."""
        if state:
            raise RecipeError(
                f"the checkpoint holds the state of an adaptive curriculum ({', '.join(state)}), "
                "but the recipe asks for a fixed pool: use the recipe that wrote the checkpoint"
            )

    def _order(self, epoch: int) -> list[Problem]:
        return sorted(
            self.problems, key=lambda problem: derive_seed(self.seed, "pool", epoch, problem.id)
        )
