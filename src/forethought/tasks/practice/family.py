"""The nouns of the practice set: what one kind of question looks like, and where it comes from.

Parameters and correct answers are those of the `reasoning_gym` package; the words are ours, short
enough for a model of under a million parameters. This file holds no family itself.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What a generator supplied: its correct answer, and its parameters as `facts`.

    >>> Item(answer="4", facts={"numbers": [8, 12]}).answer
    '4'
    """

    answer: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of question as format strings: several wordings, a plan, and a program.

    The last wording is held out: no training problem uses it. `check` is a condition that a right
    answer `x` meets, for programs that test themselves.

    >>> shape = Shape(
    ...     wordings=("double {n}?", "twice {n}?"), plan="double it.", program="print(2*{n})"
    ... )
    >>> shape.wordings[-1].format(n=4)
    'twice 4?'
    """

    wordings: tuple[str, ...]
    plan: str
    program: str
    check: str = "x is not None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """A shape, the values that fill it, and the correct answer.

    The filled program names every value that matters and no other, so it is the exercise's
    identity: two exercises with one program differ in names and things at most.

    >>> shape = Shape(wordings=("double {n}?",), plan="double it.", program="print(2*{n})")
    >>> Exercise(shape=shape, values={"n": 4}, answer="8").program
    'print(2*4)'
    """

    shape: Shape
    values: Mapping[str, object]
    answer: str

    @property
    def program(self) -> str:
        """Python that prints the answer."""
        return self.shape.program.format_map(self.values)

    @property
    def check(self) -> str:
        """A condition on `x` that the answer meets."""
        return self.shape.check.format_map(self.values)

    def question(self, template: int) -> str:
        """The question in wording number `template`."""
        return self.shape.wordings[template].format_map(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A named source of exercises.

    `dataset` is the generator's name, `easy` and `hard` are its parameters. `read` turns an item
    into an exercise, or into None when the item makes no good question; its generator chooses
    what the item leaves open, such as whose pens are counted.
    """

    name: str
    dataset: str
    easy: Mapping[str, Any]
    hard: Mapping[str, Any]
    read: Callable[[Item, Random], Exercise | None]

    def exercises(self, *, hard: bool, seed: int) -> Iterator[Exercise]:
        """Exercises without end; the same ones for the same seed, some of them repeated."""
        rng = Random(seed)
        for item in _items(self.dataset, seed, self.hard if hard else self.easy):
            exercise = self.read(item, rng)
            if exercise is not None:
                yield exercise


def _items(dataset: str, seed: int, parameters: Mapping[str, Any]) -> Iterator[Item]:
    # Only here: the package takes a second or two to import.
    from reasoning_gym import factory  # noqa: PLC0415

    # It leaves these keywords without a type.
    source = factory.create_dataset(  # pyright: ignore[reportUnknownMemberType]
        dataset, seed=seed, **parameters
    )
    for index in count():
        row = source[index]
        yield Item(answer=row["answer"], facts=row["metadata"])
