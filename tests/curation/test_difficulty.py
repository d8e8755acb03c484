import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.core.errors import RecipeError
from forethought.curation.difficulty import Label, label, quotas, select
from scripted import graded

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "17_data_curriculum.json").read_text())
BUCKETS = GOLDEN["difficulty_buckets"]


@pytest.mark.parametrize("problem", BUCKETS["label"])
def test_labels_are_the_golden_ones(problem):
    assert label(BUCKETS["correct_of_8"][problem], 8) == BUCKETS["label"][problem]


@given(st.integers(1, 200))
def test_labels_change_exactly_at_a_quarter_and_three_quarters(quarter):
    measured = 4 * quarter
    assert label(quarter, measured) is Label.HARD
    assert label(3 * quarter, measured) is Label.EASY
    assert label(quarter + 1, measured + 1) is Label.MEDIUM
    assert label(3 * quarter, measured + 1) is Label.MEDIUM


@given(st.integers(1, 30))
def test_labels_go_from_hard_to_easy_as_more_attempts_are_right(measured):
    order = list(reversed(Label))
    ranks = [order.index(label(right, measured)) for right in range(measured + 1)]
    assert ranks == sorted(ranks)
    assert (ranks[0], ranks[-1]) == (0, 4)


@pytest.mark.parametrize(("right", "measured"), [(0, 0), (3, 2), (-1, 2)])
def test_counts_that_cannot_be_have_no_label(right, measured):
    with pytest.raises(ValueError, match="0 <= right <= measured"):
        label(right, measured)


def test_problems_are_kept_dropped_or_not_measured():
    found = select(
        [
            graded("always", "++++"),
            graded("often", "+++-"),
            graded("never", "--~-"),
            graded("broken", "????"),
            graded("seldom", "+---"),
        ]
    )
    assert [problem.id for problem in found.kept] == ["often", "seldom"]
    assert [problem.id for problem in found.dropped_all_right] == ["always"]
    assert [problem.id for problem in found.dropped_all_wrong] == ["never"]
    assert [problem.id for problem in found.unmeasured] == ["broken"]
    assert found.pass_rates == {"always": 1.0, "often": 0.75, "never": 0.0, "seldom": 0.25}
    assert found.labels["often"] is Label.EASY
    assert found.labels["seldom"] is Label.HARD


def test_only_measured_attempts_count():
    found = select([graded("p", "+??-"), graded("q", "??++")])
    assert found.pass_rates == {"p": 0.5, "q": 1.0}
    assert [problem.id for problem in found.dropped_all_right] == ["q"]


def test_groups_of_one_problem_are_counted_together():
    found = select([graded("p", "++"), graded("q", "+-"), graded("p", "--")])
    assert found.pass_rates["p"] == 0.5
    assert [problem.id for problem in found.kept] == ["p", "q"]


@given(st.lists(st.text("+-?", max_size=5), min_size=1, max_size=12))
def test_every_problem_is_in_exactly_one_kind(rows):
    found = select([graded("kept", "+-"), *(graded(str(n), row) for n, row in enumerate(rows))])
    kinds = (found.kept, found.dropped_all_right, found.dropped_all_wrong, found.unmeasured)
    names = [problem.id for kind in kinds for problem in kind]
    assert sorted(names) == sorted(["kept", *(str(n) for n in range(len(rows)))])
    assert all(0 < found.pass_rates[problem.id] < 1 for problem in found.kept)
    assert all(problem.id not in found.pass_rates for problem in found.unmeasured)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["++", "++", "--"], "2 were always solved, 1 never, 0 not measured; give harder"),
        (["--", "++"], "1 was always solved, 1 never, 0 not measured; give easier"),
        (["??"], "0 were always solved, 0 never, 1 not measured; repair the infrastructure"),
    ],
)
def test_nothing_to_learn_from_is_refused_with_a_remedy(rows, message):
    with pytest.raises(RecipeError, match=message):
        select([graded(str(n), row) for n, row in enumerate(rows)])


@pytest.mark.parametrize("total", GOLDEN["pyramid_largest_remainder"])
def test_quotas_are_the_golden_ones(total):
    expected = GOLDEN["pyramid_largest_remainder"][total]
    assert list(quotas(int(total), (0.3, 0.5, 0.2))) == expected


@given(
    st.integers(0, 10_000),
    st.lists(st.floats(0.01, 100), min_size=1, max_size=6),
)
def test_quotas_add_up_and_miss_their_share_by_less_than_one(total, weights):
    places = quotas(total, weights)
    assert sum(places) == total
    for place, weight in zip(places, weights, strict=True):
        assert abs(place - total * weight / sum(weights)) < 1 + 1e-6


@pytest.mark.parametrize(("total", "weights"), [(-1, (1.0,)), (3, ()), (3, (0.0,)), (3, (1, -1))])
def test_quotas_of_nothing_are_refused(total, weights):
    with pytest.raises(ValueError, match="one is positive"):
        quotas(total, weights)
