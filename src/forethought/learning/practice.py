"""A round's attempts, and what they are worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from forethought.agents.groups import Flow, attempt_groups, refuse_unmeasured
from forethought.agents.protocol import Solver
from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.core.trajectory import Group
from forethought.journal.protocol import StageJournal
from forethought.learning.agreement import refuse_other_temperature, refuse_prefix_breaks
from forethought.learning.keeping import Companion
from forethought.learning.rl_settings import RLSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Too many rounds in a row without an update; none where there were fewer.

    Of each, the share of attempts that were right and of groups that differ within.
    """

    accuracies: tuple[float, ...] = ()
    informative: tuple[float, ...] = ()

    @property
    def mastered(self) -> bool:
        """Whether nothing was left to learn: every attempt of these rounds was right."""
        return bool(self.accuracies) and min(self.accuracies) == 1.0


def best_rounds_first(accuracies: Sequence[tuple[int, float]], rounds: int) -> list[int]:
    """The steps by the mean accuracy of the last `rounds` measured up to each, the highest first.

    Each round tries other problems, and with the weights from before its updates: a single one
    tells little of the weights that it leaves. Of equals the earliest comes first.

    >>> best_rounds_first([(0, 0.9), (1, 0.1), (2, 0.6), (3, 0.6)], rounds=2)
    [0, 3, 1, 2]
    """
    values = [accuracy for _, accuracy in accuracies]
    means = {
        step: fmean(values[max(0, place + 1 - rounds) : place + 1])
        for place, (step, _) in enumerate(accuracies)
    }
    return sorted(means, key=lambda step: -means[step])


class Curriculum(Companion, Protocol):
    """What to practise next."""

    def draw(self, step: int) -> Sequence[Problem]:
        """The problems of one draw; a pure function of its number and of what was learnt."""
        ...

    def learn(self, groups: Sequence[Group]) -> None:
        """Take in how a round went."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RLPlan:
    """What one run of reinforcement learning does, apart from who does it."""

    settings: RLSettings
    seed: int
    flow: Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """All groups that were attempted, and those of them that are to teach."""

    groups: tuple[Group, ...]
    chosen: tuple[Group, ...]
    draws: int


async def attempt_round(plan: RLPlan, solver: Solver, curriculum: Curriculum, step: int) -> Round:
    """Attempt a draw of problems; if `rl.selection.draws` allows, others until enough can teach.

    A group can teach when some of its measured attempts are right and some are not, whatever they
    earn (dynamic sampling; DAPO, 2503.14476, sec. 3.2). Of those the first stay, as many as one
    draw has problems. Without further draws everything stays.
    """
    settings = plan.settings
    found: list[Group] = []
    most = settings.selection.draws
    wanted = draws = 0
    for draw in range(most):
        problems = curriculum.draw(step * most + draw)
        wanted, draws = wanted or len(problems), draw + 1
        found += await attempt_groups(
            solver,
            problems,
            size=settings.group_size,
            seed=plan.seed,
            stage=f"rl/{step}" if draw == 0 else f"rl/{step}.{draw}",
            flow=plan.flow,
        )
        if sum(map(is_mixed, found)) >= wanted:
            break
    chosen = found if most == 1 else [*filter(is_mixed, found)][:wanted]
    return Round(groups=tuple(found), chosen=tuple(chosen), draws=draws)


def is_mixed(group: Group) -> bool:
    """Whether some measured attempts of a group are right and some are not."""
    return 0 < sum(episode.right for episode in group.measured) < len(group.measured)


def refuse_round(groups: Sequence[Group], settings: RLSettings, temperature: float) -> None:
    """Raise `RecipeError` for a round that would teach something else than it seems to."""
    refuse_unmeasured(groups, settings.limits.not_measured, "rl.limits.not_measured")
    refuse_prefix_breaks(groups, settings.limits.prefix_breaks)
    if settings.needs_critic:
        _refuse_parts(groups)
    refuse_other_temperature(groups, temperature)


def idle_rounds(journal: StageJournal, step: int, report: Mapping[str, float], most: int) -> Idle:
    """The last `most` rounds, of which `step` with its report is one, if none had an update."""
    if not most or report["updates"]:
        return Idle()

    def told(metric: str, otherwise: float) -> tuple[float, ...]:
        found = {**dict(journal.series(metric)), step: report.get(metric, otherwise)}
        return tuple(found.get(one, otherwise) for one in range(step - most + 1, step + 1))

    if any(told("updates", 1.0)):
        return Idle()
    return Idle(accuracies=told("accuracy", 0.0), informative=told("groups/informative", 0.0))


def refuse_idle(idle: Idle, step: int, settings: RLSettings) -> None:
    """Raise `RecipeError` for rounds that taught nothing, though not every attempt was right."""
    if not idle.accuracies or idle.mastered:
        return
    right = fmean(idle.accuracies)
    remedy = (
        f"in no group did any that is trained earn more than another. Take "
        f"{'harder' if right > 0.5 else 'easier'} problems, more attempts at each "
        f"(rl.group_size = {settings.group_size}), or more draws of problems in a round "
        f"(rl.selection.draws = {settings.selection.draws})"
    )
    if any(idle.informative):
        remedy = (
            "where they earned more than others, no token counts: widen what "
            "rl.off_policy.correction leaves"
        )
    raise RecipeError(
        f"rl: rounds {step + 1 - len(idle.accuracies)} to {step} taught nothing "
        f"(rl.limits.rounds_without_update = {len(idle.accuracies)}): {right:.0%} of their "
        f"attempts were right, and {remedy}. The same command with a higher limit, or with 0, "
        "goes on: what was learnt is kept"
    )


def _refuse_parts(groups: Sequence[Group]) -> None:
    """Raise `RecipeError` where a return would end before the attempt does."""
    for group in groups:
        for episode in group.measured:
            if any(trajectory.prefix_breaks for trajectory in episode.trajectories):
                raise RecipeError(
                    f"attempt {episode.id} was seen by the model in several parts, and "
                    'rl.credit.type = "gae" follows rewards along one: set sampling.thinking = '
                    '"keep", or take another type of credit'
                )
