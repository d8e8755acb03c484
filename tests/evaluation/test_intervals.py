import json
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.evaluation.intervals import (
    bootstrap_interval,
    clustered_standard_error,
    normal_interval,
    paired_standard_error,
    robust_standard_error,
    standard_error,
    wilson_interval,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "14_passk_majk_stats.json").read_text())
BARS, TOLERANCE = GOLDEN["error_bars"], GOLDEN["tolerance"]
SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.875, 1.0]), min_size=1, max_size=30)


def test_standard_errors_are_the_golden_values():
    scores, clusters = BARS["scores"], BARS["clusters"]
    assert standard_error(scores) == pytest.approx(BARS["se_clt"], abs=TOLERANCE)
    assert clustered_standard_error(scores, clusters) == pytest.approx(
        BARS["se_clustered_miller"], abs=TOLERANCE
    )
    assert robust_standard_error(scores, clusters) == pytest.approx(
        BARS["se_clustered_CR0"], abs=TOLERANCE
    )


def test_pairing_gives_the_golden_standard_error_and_not_the_unpaired_one():
    first, second, expected = BARS["scores"], BARS["scores_b"], BARS["paired"]
    assert paired_standard_error(first, second) == pytest.approx(
        expected["se_paired"], abs=TOLERANCE
    )
    unpaired = sqrt(standard_error(first) ** 2 + standard_error(second) ** 2)
    assert unpaired == pytest.approx(expected["se_unpaired"], abs=TOLERANCE)


@pytest.mark.parametrize("row", BARS["wilson95"], ids=str)
def test_wilson_is_the_golden_interval(row):
    found = wilson_interval(row["x"], row["n"])
    assert (found.low, found.high) == pytest.approx((row["lo"], row["hi"]), abs=TOLERANCE)
    assert found.value == row["x"] / row["n"]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=12))
def test_clusters_of_one_change_nothing(scores):
    clusters = range(len(scores))
    assert clustered_standard_error(scores, clusters) == pytest.approx(
        standard_error(scores), abs=1e-9
    )


def test_copies_of_a_problem_do_not_narrow_a_clustered_interval():
    scores = [0.0, 1.0, 1.0, 0.25]
    copied = robust_standard_error(scores * 10, list(range(4)) * 10)
    assert copied == pytest.approx(robust_standard_error(scores, range(4)))
    assert standard_error(scores * 10) < copied / 2


def test_members_that_balance_each_other_narrow_the_interval_and_alike_ones_widen_it():
    scores = [0.0, 1.0, 0.0, 1.0]
    balanced = clustered_standard_error(scores, ["a", "a", "b", "b"])
    alike = clustered_standard_error(scores, ["a", "b", "a", "b"])
    assert balanced < standard_error(scores) < alike


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abc")), min_size=2, max_size=12))
def test_a_clustered_error_is_never_imaginary(rows):
    scores, clusters = zip(*rows, strict=True)
    assert clustered_standard_error(scores, clusters) >= 0.0


def test_the_normal_interval_is_the_mean_and_its_standard_errors():
    scores = BARS["scores"]
    found = normal_interval(scores)
    assert found.value == BARS["mean"]
    assert found.low == pytest.approx(BARS["mean"] - 1.959963984540054 * BARS["se_clt"])
    assert found.high == pytest.approx(BARS["mean"] + 1.959963984540054 * BARS["se_clt"])


@given(SCORES)
@pytest.mark.parametrize("interval", [normal_interval, bootstrap_interval])
def test_an_interval_holds_its_value_and_stays_a_rate(interval, scores):
    found = interval(scores)
    assert found.value == pytest.approx(fmean(scores))
    assert 0.0 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= 1.0


@pytest.mark.parametrize("interval", [normal_interval, bootstrap_interval])
def test_problems_that_are_all_solved_are_not_certainty(interval):
    found = interval([1.0] * 30)
    assert (found.low, found.high) == pytest.approx((0.886486606826, 1.0))
    assert interval([0.0] * 30).high == pytest.approx(0.113513393174)


@pytest.mark.parametrize("interval", [normal_interval, bootstrap_interval])
def test_one_problem_says_nothing_about_others(interval):
    found = interval([0.75])
    assert (found.value, found.low, found.high) == (0.75, 0.0, 1.0)


@pytest.mark.parametrize("interval", [normal_interval, bootstrap_interval])
def test_no_problem_has_no_interval(interval):
    with pytest.raises(ValueError, match="one problem at least"):
        interval([])


@pytest.mark.parametrize(("right", "n"), [(0, 0), (3, 2), (-1, 2)])
def test_a_rate_that_cannot_be_is_refused(right, n):
    with pytest.raises(ValueError, match="a rate needs"):
        wilson_interval(right, n)


def test_the_bootstrap_agrees_with_the_normal_theory_where_that_holds():
    scores = [n / 399 for n in range(400)]
    resampled, normal = bootstrap_interval(scores), normal_interval(scores)
    error = stdev(scores) / 20
    assert resampled.low == pytest.approx(normal.low, abs=0.1 * error)
    assert resampled.high == pytest.approx(normal.high, abs=0.1 * error)


def test_the_bootstrap_depends_on_its_seed_alone():
    scores = BARS["scores"] * 4 + [0.125]
    first, again, other = (bootstrap_interval(scores, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert (first.low, first.high) != (other.low, other.high)


def test_the_bootstrap_of_many_problems_is_drawn_in_blocks_that_add_up():
    scores = [float(n % 3 == 0) for n in range(3000)]
    found, normal = bootstrap_interval(scores, draws=1000), normal_interval(scores)
    assert found.high - found.low == pytest.approx(normal.high - normal.low, rel=0.1)
