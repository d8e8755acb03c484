"""What must hold between who sampled and who learns, for a gradient to mean what it says.

Whether the same weights give the same log-probabilities is seen in the losses' own numbers.
"""

from collections.abc import Sequence

from forethought.core.errors import RecipeError
from forethought.core.trajectory import Group
from forethought.learning.metrics import prefix_breaks


def refuse_other_temperature(groups: Sequence[Group], temperature: float) -> None:
    """Raise `RecipeError` when a turn was sampled at another temperature than the learner's.

    The ratio of two log-probabilities at different temperatures is no importance ratio.
    """
    for group in groups:
        for episode in group.measured:
            turns = (turn for one in episode.trajectories for turn in one.turns)
            other = next((t for t in turns if t.tokens and t.temperature != temperature), None)
            if other is not None:
                raise RecipeError(
                    f"attempt {episode.id} was sampled at temperature {other.temperature}, but the "
                    f"learner compares log-probabilities at {temperature}: build both with the "
                    "same sampling.temperature"
                )


def refuse_prefix_breaks(groups: Sequence[Group], share: float) -> None:
    """Raise `RecipeError` when the prompts of more than `share` of the attempts were broken.

    Broken is an attempt in which what the policy saw once did not extend what it had seen and
    said before. Each part is trained in a row of its own; only the repeated context costs.

    >>> refuse_prefix_breaks([], 0.0)
    """
    attempts = [episode for group in groups for episode in group.measured]
    broken = sum(prefix_breaks(episode) > 0 for episode in attempts)
    if broken > share * len(attempts):
        raise RecipeError(
            f"in {broken} of {len(attempts)} attempts ({broken / len(attempts):.0%}) a prompt does "
            "not extend what was said before it, more than rl.limits.prefix_breaks = "
            f'{share}: sampling.thinking = "strip" breaks it after each turn that thought; take '
            '"keep", or raise the limit, and begin in another --run folder'
        )
