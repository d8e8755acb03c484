import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forethought.core.errors import RecipeError
from forethought.tasks.answers import same_value
from forethought.tasks.practice.problems import FAMILIES, practice_problems
from forethought.tasks.settings import PracticeSettings

ALL = PracticeSettings()
SPLITS = ("train", "held_out")


def only(name):
    return PracticeSettings(families=(name,))


def printed(program):
    run = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


@pytest.mark.parametrize("hard", [0.0, 1.0])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_reference_program_prints_the_generators_answer(name, hard):
    for problem in practice_problems(only(name), "train", 3, seed=5, hard=hard):
        assert printed(problem.data["program"]) == problem.answer


@pytest.mark.parametrize("name", FAMILIES)
def test_the_check_holds_for_the_answer_and_is_short(name):
    for problem in practice_problems(only(name), "held_out", 2, seed=5):
        *before, last = problem.data["program"].split("\n")
        asserted = f"x={last[len('print(') : -1]}\nassert {problem.data['check']}\nprint(x)"
        assert printed("\n".join([*before, asserted])) == problem.answer
        assert len(problem.data["check"]) <= 30


@pytest.mark.parametrize("split", SPLITS)
def test_everything_is_short_plain_and_lower_case(split):
    words = set()
    for problem in practice_problems(ALL, split, 1300, seed=2):
        data = problem.data
        assert len(problem.prompt) <= 90
        assert len(problem.answer) <= 12
        assert len(data["program"]) <= 90
        assert 3 <= len(data["plan"].split()) <= 8
        for text in (problem.prompt, problem.answer, data["plan"], data["program"]):
            assert text.isascii()
            assert text == text.lower()
        if problem.domain != "letters":  # its questions quote running text
            words.update(re.findall("[a-z]{2,}", problem.prompt + data["plan"] + data["program"]))
    assert len(words) <= 170


def test_no_parameters_are_in_both_splits_whatever_the_seed():
    train, held_out = (
        {
            (problem.domain, problem.data["program"])
            for seed in (0, 1)
            for problem in practice_problems(ALL, split, 2600, seed)
        }
        for split in SPLITS
    )
    assert len(train) > 4000
    assert len(held_out) > 3000
    assert not train & held_out


def test_a_pair_and_its_mirror_image_are_one_exercise():
    for name in ("gcd", "lcm", "digits"):
        for problem in practice_problems(only(name), "train", 50, seed=0):
            a, b = map(int, re.findall("[0-9]+", problem.data["program"])[:2])
            assert a <= b


def test_the_last_wording_of_every_kind_of_question_is_only_held_out():
    seen = {
        split: {(p.domain, p.data["plan"], p.data["template"]) for p in problems}
        for split in SPLITS
        for problems in [practice_problems(ALL, split, 2600, seed=3)]
    }
    kinds = {kind[:2] for kind in seen["train"]}
    assert len(kinds) == 19
    for domain, plan in kinds:
        templates = {
            split: {t for d, p, t in seen[split] if (d, p) == (domain, plan)} for split in SPLITS
        }
        assert templates == {"train": {0, 1, 2}, "held_out": {0, 1, 2, 3}}


def test_a_new_wording_has_no_word_that_training_lacks():
    train, held_out = (
        {
            word
            for problem in practice_problems(ALL, split, 2600, seed=6)
            if problem.domain != "letters"  # its questions quote running text
            for word in re.findall("[a-z]+", problem.prompt)
        }
        for split in SPLITS
    )
    assert held_out <= train


def test_half_of_the_held_out_problems_have_a_new_wording():
    problems = practice_problems(ALL, "held_out", 300, seed=0)
    assert sum(problem.data["new_template"] for problem in problems) == 150
    assert all(p.data["new_template"] == (p.data["template"] == 3) for p in problems)


@given(st.integers(0, 10**9), st.sampled_from(SPLITS), st.integers(1, 60), st.integers(0, 60))
@settings(max_examples=20, deadline=None)
def test_a_larger_count_only_adds_problems(seed, split, few, more):
    start = practice_problems(ALL, split, few, seed)
    longer = practice_problems(ALL, split, few + more, seed)
    assert len(start) == few
    assert longer[:few] == start


def test_problems_are_different_and_families_have_equal_shares():
    problems = practice_problems(ALL, "train", 200 * len(FAMILIES), seed=4)
    assert len({problem.id for problem in problems}) == len(problems)
    assert set(Counter(problem.domain for problem in problems).values()) == {200}
    assert set(ALL.families) == set(FAMILIES)


def test_an_id_names_one_problem_and_its_answer_in_every_draw():
    known = {}
    for seed in range(4):
        for problem in practice_problems(only("divisors"), "train", 900, seed, hard=0.0):
            assert known.setdefault(problem.id, problem) == problem
    assert len(known) < 4 * 900


def test_another_process_makes_the_same_problems():
    code = (
        "from forethought.tasks.practice.problems import *\n"
        "for p in practice_problems(PracticeSettings(), 'held_out', 40, 9): print(p)"
    )
    source = Path(__file__).parents[2] / "src"
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONHASHSEED": "123"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    here = practice_problems(ALL, "held_out", 40, 9)
    assert run.stdout.splitlines() == [str(problem) for problem in here]


def test_the_seed_changes_the_problems():
    first, second = (practice_problems(ALL, "train", 50, seed) for seed in (0, 1))
    assert {p.id for p in first} != {p.id for p in second}


@pytest.mark.parametrize("name", FAMILIES)
def test_hard_problems_have_longer_programs_than_easy_ones(name):
    easy, hard = (
        sum(len(p.data["program"]) for p in practice_problems(only(name), "train", 200, 0, share))
        for share in (0.0, 1.0)
    )
    assert hard > easy


@pytest.mark.parametrize("name", FAMILIES)
def test_no_single_guess_answers_half_of_a_family(name):
    problems = practice_problems(only(name), "train", 1000, seed=0)
    ((_, often),) = Counter(problem.answer for problem in problems).most_common(1)
    assert often < 500


def test_a_story_is_told_in_the_order_in_which_it_is_computed():
    for problem in practice_problems(only("stories"), "train", 300, seed=1):
        asked = sorted(re.findall("[0-9]+", problem.prompt))
        assert asked == sorted(re.findall("[0-9]+", problem.data["program"]))


def test_dates_and_days_agree_with_the_calendar():
    problems = practice_problems(only("weekdays"), "train", 300, seed=1)
    days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    for problem in problems:
        (day,) = re.findall("|".join(days), problem.prompt)
        steps = int(re.findall("[0-9]+", problem.prompt)[0])
        back = "before" in problem.prompt or "ago" in problem.prompt
        place = days.index(day) + (-steps if back else steps)
        assert same_value(problem.answer, days[place % 7])


def test_no_family_is_an_error_that_names_the_known_ones():
    with pytest.raises(RecipeError, match="families is empty: name some of stories, chains"):
        practice_problems(PracticeSettings(families=()), "train", 1, 0)


def test_an_unknown_family_is_an_error_that_names_the_known_ones():
    with pytest.raises(RecipeError, match=r"names 'sudoku': known are stories, .*dates"):
        practice_problems(PracticeSettings(families=("gcd", "sudoku")), "train", 1, 0)


def test_asking_for_more_problems_than_there_are_is_an_error():
    with pytest.raises(RecipeError, match=r"'bits' has no new held_out problem after \d+ of 9000"):
        practice_problems(only("bits"), "held_out", 9000, 0, hard=0.0)
