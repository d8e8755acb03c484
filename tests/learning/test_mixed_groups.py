"""Dynamic sampling keeps the groups whose attempts are right and wrong, by verdicts."""

import json
from math import comb
from pathlib import Path

import pytest
from pytest import approx

from forethought.learning.advantage import AdvantageSettings, group_advantages, varies
from forethought.learning.practice import is_mixed
from scripted import graded


def golden(name):
    return json.loads((Path(__file__).parents[1] / f"golden/{name}.json").read_text())


SAMPLING = golden("05_dapo")["dynamic_sampling"]
CURRICULUM = golden("17_data_curriculum")


def test_the_groups_that_are_kept_are_those_of_the_paper():
    marks = {
        name: "".join("+" if right else "-" for right in attempts)
        for name, attempts in SAMPLING["acc"].items()
    }
    kept = [name for name, each in marks.items() if is_mixed(graded(name, each))]
    assert kept == SAMPLING["kept_by_paper_rule"]
    # An attempt without company, which verl keeps, has nothing to be compared with.
    others = set(SAMPLING["kept_by_verl_rule"]) - set(kept)
    assert others == {name for name, each in marks.items() if len(each) == 1}


def test_attempts_that_were_not_measured_do_not_make_a_group_mixed():
    assert not is_mixed(graded("p", "++?"))
    assert not is_mixed(graded("p", "-~?"))
    assert not is_mixed(graded("p", "??"))
    assert is_mixed(graded("p", "+~?"))


def test_equal_rewards_are_equal_although_their_computed_deviation_is_not_zero():
    trap = SAMPLING["float_trap"]
    assert varies(trap["rewards"]) is trap["should_keep"]
    groups = ["g"] * len(trap["rewards"])
    assert group_advantages(trap["rewards"], groups, AdvantageSettings()) == [0.0] * len(groups)
    # The rule that falls into it: the mean of these is not one of them.
    mean = sum(trap["rewards"]) / len(trap["rewards"])
    spread = sum((reward - mean) ** 2 for reward in trap["rewards"])
    assert (spread > 0) is trap["np_std_gt_0"]


@pytest.mark.parametrize("case", CURRICULUM["informative_groups"])
def test_the_chance_that_a_group_is_mixed_is_the_worked_one(case):
    size, rate = case["G"], case["p"]
    chances = [comb(size, n) * rate**n * (1 - rate) ** (size - n) for n in range(size + 1)]
    mixed = [is_mixed(graded("p", "+" * n + "-" * (size - n))) for n in range(size + 1)]
    found = sum(chance for chance, each in zip(chances, mixed, strict=True) if each)
    assert found == approx(case["informative"], abs=CURRICULUM["tolerance"])
