"""Practice families about whole numbers: divisors, primes, bases, bits and order."""

from collections import Counter
from math import prod
from random import Random

from forethought.tasks.practice.family import Exercise, Family, Item, Shape

_GCD = Shape(
    wordings=(
        "what is the gcd of {a} and {b}?",
        "largest number that divides both {a} and {b}?",
        "{a} and {b} have which greatest common divisor?",
        "find the greatest number that divides {a} and {b}.",
    ),
    plan="use gcd from math.",
    program="import math\nprint(math.gcd({a},{b}))",
    check="{a}%x=={b}%x==0",
)

_LCM = Shape(
    wordings=(
        "what is the lcm of {a} and {b}?",
        "smallest number that both {a} and {b} divide?",
        "{a} and {b} have which least common multiple?",
        "find the smallest common multiple of {a} and {b}.",
    ),
    plan="use lcm from math.",
    program="import math\nprint(math.lcm({a},{b}))",
    check="x%{a}==x%{b}==0",
)

_PRIMES = Shape(
    wordings=(
        "how many primes are there from {a} to {b}?",
        "count the primes from {a} to {b}.",
        "find the number of primes in {a} to {b}.",
        "from {a} to {b}, how many are primes?",
    ),
    plan="a prime has no divisor.",
    program="print(sum(all(n%i for i in range(2,n)) for n in range({a},{b}+1)))",
    check="x>=0",
)

_DIVISORS = Shape(
    wordings=(
        "how many divisors does {n} have?",
        "count the divisors of {n}.",
        "find the number of divisors of {n}.",
        "{n} has how many divisors?",
    ),
    plan="test every number.",
    program="print(sum({n}%i==0 for i in range(1,{n}+1)))",
    check="x>1",
)

_TO_BASE = Shape(
    wordings=(
        "write {n} in base {base}.",
        "convert {n} to base {base}.",
        "what is {n} in base {base}?",
        "find {n} in base {base}.",
    ),
    plan="divide again and again.",
    program="n,s={n},''\nwhile n:s,n=str(n%{base})+s,n//{base}\nprint(s)",
    check="int(x,{base})=={n}",
)

_FROM_BASE = Shape(
    wordings=(
        "{digits} is in base {base}. what is its value?",
        "read {digits} from base {base}.",
        "what is the value of {digits} from base {base}?",
        "find the value of {digits} in base {base}.",
    ),
    plan="use int with the base.",
    program="print(int('{digits}',{base}))",
    check="x>0",
)

_BITS = Shape(
    wordings=(
        "how many ones are in {n} in base 2?",
        "count the ones of {n} in binary.",
        "write {n} in binary. how many ones?",
        "find the number of ones of {n} in base 2.",
    ),
    plan="write it in binary and count.",
    program="print(bin({n}).count('1'))",
    check="x>0",
)

_MEDIAN = Shape(
    wordings=(
        "what is the median of {shown}?",
        "find the middle value of {shown} in order.",
        "sort {shown} and take the median.",
        "sort {shown}. what is the middle value?",
    ),
    plan="sort and take the middle.",
    program="print(sorted([{listed}])[{k}])",
    check="x>0",
)

_FROM_TOP = Shape(
    wordings=(
        "what is number {k} from the top in {shown}?",
        "sort {shown}. which is number {k} from the top?",
        "find the number {k} largest of {shown}.",
        "in {shown}, which is the number {k} largest?",
    ),
    plan="sort and count from the end.",
    program="print(sorted([{listed}])[-{k}])",
    check="x>0",
)


def _pair(shape: Shape, item: Item) -> Exercise:
    # In order, so that a pair and its mirror image are one exercise.
    a, b = sorted(item.facts["numbers"])
    return Exercise(shape=shape, values={"a": a, "b": b}, answer=item.answer)


def _gcd(item: Item, rng: Random) -> Exercise | None:
    del rng  # the item leaves nothing open
    if int(item.answer) < 3:  # most pairs: kept, always answering 1 or 2 would do well
        return None
    return _pair(_GCD, item)


def _lcm(item: Item, rng: Random) -> Exercise | None:
    del rng  # the item leaves nothing open
    return _pair(_LCM, item)


def _primes(item: Item, rng: Random) -> Exercise | None:
    del rng  # the item leaves nothing open
    a, b = item.facts["start"], item.facts["end"]
    if b - a < 5:
        return None
    return Exercise(shape=_PRIMES, values={"a": a, "b": b}, answer=item.answer)


def _divisors(item: Item, rng: Random) -> Exercise | None:
    del rng  # the item leaves nothing open
    factors: list[int] = item.facts["factors"]
    answer = str(prod(power + 1 for power in Counter(factors).values()))
    return Exercise(shape=_DIVISORS, values={"n": item.facts["number"]}, answer=answer)


def _bases(item: Item, rng: Random) -> Exercise | None:
    n = item.facts["decimal_value"]
    if rng.random() < 0.5:
        values = {"n": n, "base": item.facts["target_base"]}
        return Exercise(shape=_TO_BASE, values=values, answer=item.facts["target_repr"])
    values = {"digits": item.facts["source_repr"], "base": item.facts["source_base"]}
    return Exercise(shape=_FROM_BASE, values=values, answer=str(n))


def _bits(item: Item, rng: Random) -> Exercise | None:
    del rng  # the item leaves nothing open
    return Exercise(shape=_BITS, values={"n": item.facts["number"]}, answer=item.answer)


def _order(item: Item, rng: Random) -> Exercise | None:
    numbers = [int(float(text)) for text in item.facts["original_numbers"]]
    if len(set(numbers)) < len(numbers):  # among equals, "number 2 from the top" is unclear
        return None
    ranked = sorted((int(float(text)) for text in item.facts["sorted_numbers"]), reverse=True)
    values = {"shown": " ".join(map(str, numbers)), "listed": ",".join(map(str, numbers))}
    if len(numbers) % 2 and rng.random() < 0.5:
        middle = len(numbers) // 2
        answer = str(ranked[middle])
        return Exercise(shape=_MEDIAN, values={"k": middle, **values}, answer=answer)
    k = rng.randint(2, 4)
    return Exercise(shape=_FROM_TOP, values={"k": k, **values}, answer=str(ranked[k - 1]))


FAMILIES = (
    Family(
        name="gcd",
        dataset="gcd",
        easy={"min_value": 4, "max_value": 199},
        hard={"min_value": 100, "max_value": 2400},
        read=_gcd,
    ),
    Family(
        name="lcm",
        dataset="lcm",
        easy={"min_value": 4, "max_value": 199},
        hard={"min_value": 100, "max_value": 2400},
        read=_lcm,
    ),
    Family(
        name="primes",
        dataset="count_primes",
        # Not from 1: the program that counts them would take 1 for a prime.
        easy={"min_n": 2, "max_n": 150},
        hard={"min_n": 100, "max_n": 400},
        read=_primes,
    ),
    Family(
        name="divisors",
        dataset="prime_factorization",
        easy={"min_value": 10, "max_value": 999},
        hard={"min_value": 1000, "max_value": 4999},
        read=_divisors,
    ),
    Family(
        name="bases",
        dataset="base_conversion",
        easy={"min_base": 2, "max_base": 9, "min_value": 20, "max_value": 299},
        hard={"min_base": 2, "max_base": 9, "min_value": 300, "max_value": 4095},
        read=_bases,
    ),
    Family(
        name="order",
        dataset="number_sorting",
        easy={"min_numbers": 5, "max_numbers": 5, "max_decimals": 0, "min_value": 1},
        hard={
            "min_numbers": 5,
            "max_numbers": 7,
            "max_decimals": 0,
            "min_value": 1,
            "max_value": 999,
        },
        read=_order,
    ),
    Family(
        name="bits",
        dataset="count_bits",
        easy={"min_n": 10, "max_n": 999},
        hard={"min_n": 1000, "max_n": 99999},
        read=_bits,
    ),
)
"""Families about properties of whole numbers."""
