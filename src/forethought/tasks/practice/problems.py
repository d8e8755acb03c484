"""Practice problems: endless small questions that a Python program answers.

Training and held-out problems share no parameters, whatever the seed. Half of the held-out
problems are also worded as no training problem is. What a problem's demonstrators may know is in
its `data`: `plan`, `program`, `check` (a condition that the answer `x` meets), `template` and,
when held out, `new_template`.
"""

from collections.abc import Iterator
from random import Random
from typing import Literal

from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.core.randomness import derive_seed
from forethought.tasks.practice import arithmetic, numbers, texts
from forethought.tasks.practice.family import Exercise, Family
from forethought.tasks.settings import PracticeSettings

Split = Literal["train", "held_out"]

FAMILIES = {
    family.name: family for family in (*arithmetic.FAMILIES, *numbers.FAMILIES, *texts.FAMILIES)
}
"""Every family by name. A new one is a `Family` in one of these modules, or in a new one here."""

_HELD_OUT_EVERY = 5
_PATIENCE = 1000


def practice_problems(
    settings: PracticeSettings,
    split: Split,
    count: int,
    seed: int,
    hard: float | None = None,
) -> list[Problem]:
    """`count` different problems, the families in equal shares and in a shuffled order.

    The same arguments give the same problems, and a larger `count` only adds to them. `hard`
    replaces the settings' share of hard problems. Every other held-out problem has a wording
    that no training problem has.

    Raises `RecipeError` for no family, for an unknown one, and when a family has no `count`th
    different problem left.
    """
    families = _named(settings.families)
    rng = Random(derive_seed("practice", split, seed))
    share = settings.hard if hard is None else hard
    wells = {
        (family.name, level): _exercises(family, split, seed, hard=level)
        for family in families
        for level in (False, True)
    }
    problems: dict[str, Problem] = {}
    turns = _turns(families, rng)
    for family in turns:
        if len(problems) == count:
            break
        well = wells[family.name, rng.random() < share]
        new_template = split == "held_out" and len(problems) % 2 == 1
        for _ in range(_PATIENCE):
            problem = _problem(family, next(well), split, rng, new_template=new_template)
            if problem.id not in problems:
                problems[problem.id] = problem
                break
        else:
            raise RecipeError(
                f"practice family {family.name!r} has no new {split} problem after "
                f"{len(problems)} of {count}: ask for fewer, or name more families"
            )
    return list(problems.values())


def _named(names: tuple[str, ...]) -> list[Family]:
    known = ", ".join(FAMILIES)
    if not names:
        raise RecipeError(f"practice.families is empty: name some of {known}")
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        raise RecipeError(
            f"practice.families names {', '.join(map(repr, unknown))}: known are {known}"
        )
    return [FAMILIES[name] for name in dict.fromkeys(names)]


def _turns(families: list[Family], rng: Random) -> Iterator[Family]:
    while True:
        yield from rng.sample(families, len(families))


def _exercises(family: Family, split: Split, seed: int, *, hard: bool) -> Iterator[Exercise]:
    """The family's exercises on this side of the split, without end."""
    own_seed = derive_seed("practice", family.name, split, seed, "hard" if hard else "easy")
    for exercise in family.exercises(hard=hard, seed=own_seed):
        held_out = derive_seed("split", family.name, exercise.program) % _HELD_OUT_EVERY == 0
        if held_out == (split == "held_out"):
            yield exercise


def _problem(
    family: Family, exercise: Exercise, split: Split, rng: Random, *, new_template: bool
) -> Problem:
    last = len(exercise.shape.wordings) - 1
    template = last if new_template else rng.randrange(last)
    data = {
        "plan": exercise.shape.plan,
        "program": exercise.program,
        "check": exercise.check,
        "template": template,
    }
    mark = derive_seed("problem", family.name, exercise.program, template)
    return Problem(
        id=f"{family.name}-{mark:016x}",
        prompt=exercise.question(template),
        answer=exercise.answer,
        domain=family.name,
        data=data if split == "train" else {**data, "new_template": new_template},
    )
