"""Where a training loop keeps things, so that a run that was stopped goes on as if it had not been.

What a checkpoint must hold beside weights and optimiser, for example what steers a setting, keeps
its own state as a `Companion`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from forethought.journal.protocol import StageJournal
from forethought.learning.checkpoint import Checkpoints, intact, read_state
from forethought.learning.learner import Learner

Watcher = Callable[[int, dict[str, float]], None]
"""Who is told how far a loop is: a step that has been committed, and its numbers."""
Resumed = Callable[[int, int], None]
"""Who is told, before a loop goes on, from which step on, and how many steps it does again."""


def _nobody(first: int, again: int) -> None:
    """Who is told when nobody listens."""


class Companion(Protocol):
    """What changes from step to step beside the weights."""

    @property
    def state(self) -> Mapping[str, Any]:
        """All that is needed to go on, as plain values that JSON can write."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. Raises `RecipeError` for one that something else left."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """A loop's journal, its checkpoints, and by name what they hold the state of.

    `resumed` is told where steps that were committed before are gone on from.
    """

    journal: StageJournal
    checkpoints: Checkpoints
    companions: Mapping[str, Companion] = field(default_factory=dict[str, Companion])
    resumed: Resumed = _nobody

    def resume(self, learner: Learner, steps: int) -> range:
        """Put everything back to the newest checkpoint that the journal knows; what is left.

        Later checkpoints go: the steps that led to them will be taken again, perhaps otherwise.
        """
        committed = self.journal.next_step
        found = self.checkpoints.newest(committed - 1)
        if found is None:
            self.checkpoints.forget_after(-1)
            self.journal.rewind(0)
            return self._left(0, committed, steps)
        step, folder = found
        self.checkpoints.forget_after(step)
        with intact(folder):
            learner.read(folder)
            state = read_state(folder)
            done = state["done"]
        for name, companion in self.companions.items():
            companion.restore(state.get(name, {}))
        self.journal.rewind(step + 1)
        self.checkpoints.forget_old()  # a kill may have come between a step and this
        return range(0) if done else self._left(step + 1, committed, steps)

    def _left(self, first: int, committed: int, steps: int) -> range:
        if committed:
            self.resumed(first, committed - first)
        return range(first, steps)

    def close_step(self, step: int, learner: Learner, *, save: bool, done: bool) -> None:
        """Save a checkpoint if it is time or the end, then let the step become visible."""
        if save or done:
            with self.journal.timed(step, "save"):
                states = {name: each.state for name, each in self.companions.items()}
                state = {**learner.state, **states, "done": done}
                self.checkpoints.save(str(step), learner.write, state)
        self.journal.commit(step)
        self.checkpoints.forget_old()
