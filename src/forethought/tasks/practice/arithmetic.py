"""Practice families of plain arithmetic, told as small stories or as what to do."""

from random import Random

from forethought.tasks.practice.family import Exercise, Family, Item, Shape

_NAMES = ("tom", "ann", "bob", "eve", "sam", "kim")
_THINGS = ("pens", "figs", "cups", "hats", "nuts", "eggs")

_STORIES = {
    "*+": Shape(
        wordings=(
            "{name} buys {a} boxes of {b} {thing} and gets {c} more. how many {thing} now?",
            "{name} has {a} bags with {b} {thing} each and {c} more {thing}. what is the total?",
            "there are {a} rows of {b} {thing} and {c} more. how many {thing} in all?",
            "{name} makes {a} bags of {b} {thing} and has {c} more. how many in all?",
        ),
        plan="multiply then add.",
        program="print({a}*{b}+{c})",
        check="x>{c}",
    ),
    "*-": Shape(
        wordings=(
            "{name} buys {a} boxes of {b} {thing} and loses {c}. how many are left?",
            "from {a} bags with {b} {thing} each {name} takes {c}. what is left?",
            "there were {a} rows of {b} {thing}, but {c} are lost. how many {thing} now?",
            "{name} had {a} bags of {b} {thing} and lost {c}. what is left?",
        ),
        plan="multiply then subtract.",
        program="print({a}*{b}-{c})",
        check="x>0",
    ),
    "+*": Shape(
        wordings=(
            "a box holds {a} {thing} and {b} more. how many {thing} do {c} boxes hold?",
            "{name} makes {c} bags, each with {a} old and {b} new {thing}. what is the total?",
            "each of {c} rows has {a} {thing} and {b} more. how many {thing} in all?",
            "{name} makes {c} rows, each with {a} {thing} and {b} more. how many in all?",
        ),
        plan="add for one then multiply.",
        program="print(({a}+{b})*{c})",
        check="x%{c}==0",
    ),
    "-*": Shape(
        wordings=(
            "a box held {a} {thing} but lost {b}. how many {thing} do {c} such boxes hold?",
            "{name} has {c} bags of {a} {thing} and takes {b} from each. what is left?",
            "each of {c} rows had {a} {thing} and lost {b}. how many {thing} are left?",
            "from each of {c} boxes with {a} {thing} {name} takes {b}. how many are left?",
        ),
        plan="subtract for one then multiply.",
        program="print(({a}-{b})*{c})",
        check="x%{c}==0",
    ),
}

_CHAIN = Shape(
    wordings=(
        "{name} has {first} {thing}, {deeds}. how many {thing} now?",
        "what is {expression}?",
        "start at {first}, {moves}. where do you end?",
        "{name} had {first} {thing} and {deeds}. how many are left?",
    ),
    plan="add and subtract in order.",
    program="print({expression})",
    check="x>=0",
)

_DIGITS = Shape(
    wordings=(
        "what is the digit sum of {a} times {b}?",
        "multiply {a} by {b} and add the digits.",
        "add all digits of {a} times {b}.",
        "find {a} times {b}. what is its digit sum?",
    ),
    plan="multiply and add the digits.",
    program="print(sum(map(int,str({a}*{b}))))",
    check="x%9=={a}*{b}%9",
)


def _story(item: Item, rng: Random) -> Exercise | None:
    # The generator works from left to right, without precedence: a sum before a product is taken
    # first, which is how the stories tell it.
    a, first, b, second, c = str(item.facts["expression"]).split()
    shape = _STORIES.get(first + second)
    if shape is None or min(int(a), int(b), int(c)) < 2 or int(item.answer) < 1:
        return None
    dress = {"name": rng.choice(_NAMES), "thing": rng.choice(_THINGS)}
    return Exercise(shape=shape, values={"a": a, "b": b, "c": c, **dress}, answer=item.answer)


def _chain(item: Item, rng: Random) -> Exercise | None:
    first, *rest = str(item.facts["expression"]).split()
    steps = list(zip(rest[::2], map(int, rest[1::2]), strict=True))
    left = int(first)
    for sign, number in steps:
        left += number if sign == "+" else -number
        if left < 0:  # nobody can lose more than there is
            return None
    values = {
        "first": first,
        "expression": first + "".join(rest),
        "deeds": " and ".join(f"{'gets' if sign == '+' else 'loses'} {n}" for sign, n in steps),
        "moves": ", ".join(f"go {'up' if sign == '+' else 'down'} {n}" for sign, n in steps),
        "name": rng.choice(_NAMES),
        "thing": rng.choice(_THINGS),
    }
    return Exercise(shape=_CHAIN, values=values, answer=item.answer)


def _digit_sum(item: Item, rng: Random) -> Exercise | None:
    del rng  # the item leaves nothing open
    # In order, so that a pair and its mirror image are one exercise.
    a, b = sorted(map(int, str(item.facts["expression"]).split(" * ")))
    answer = str(sum(map(int, item.answer)))
    return Exercise(shape=_DIGITS, values={"a": a, "b": b}, answer=answer)


_PLAIN = {"operators": ("+", "-", "*"), "allow_parentheses": False}

FAMILIES = (
    Family(
        name="stories",
        dataset="basic_arithmetic",
        easy={"min_terms": 3, "max_terms": 3, "min_digits": 1, "max_digits": 2, **_PLAIN},
        hard={"min_terms": 3, "max_terms": 3, "min_digits": 2, "max_digits": 3, **_PLAIN},
        read=_story,
    ),
    Family(
        name="chains",
        dataset="chain_sum",
        easy={"min_terms": 3, "max_terms": 3, "min_digits": 2, "max_digits": 2},
        hard={"min_terms": 3, "max_terms": 4, "min_digits": 3, "max_digits": 3},
        read=_chain,
    ),
    Family(
        name="digits",
        dataset="products",
        easy={"min_digits": 2, "max_digits": 2},
        hard={"min_digits": 3, "max_digits": 3},
        read=_digit_sum,
    ),
)
"""Families whose numbers are added, subtracted and multiplied."""
