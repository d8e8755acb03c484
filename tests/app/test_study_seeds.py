"""What a few seeds say: t intervals, rounds to an accuracy, and the band of a figure."""

from math import inf, sqrt
from statistics import NormalDist, fmean, stdev
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.app.study.figure import band, figure
from forethought.app.study.outcomes import rounds_over_seeds, rounds_to, smoothed
from forethought.app.study.seeds import over_seeds, t_quantile, t_share

# Printed in any table of Student's t, two-sided 95 %.
PRINTED = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 30: 2.042, 120: 1.980}
values = st.lists(st.floats(-1, 1), min_size=2, max_size=9).filter(lambda v: max(v) - min(v) > 1e-6)


@pytest.mark.parametrize(("freedom", "t"), PRINTED.items())
def test_quantiles_are_those_of_the_tables(freedom, t):
    assert t_quantile(freedom) == pytest.approx(t, abs=5e-4)
    assert t_share(t_quantile(freedom), freedom) == pytest.approx(0.95)


def test_with_many_seeds_student_is_normal():
    assert t_quantile(100_000) == pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-4)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_ninety_five_of_a_hundred_intervals_hold_the_truth(seeds):
    drawn = np.random.default_rng(seeds).normal(3.0, 2.0, size=(4000, seeds))
    found = [over_seeds(row.tolist()) for row in drawn]
    assert fmean(one.low <= 3.0 <= one.high for one in found) == pytest.approx(0.95, abs=0.011)


@given(values)
def test_an_interval_is_the_mean_and_so_many_standard_errors(drawn):
    found = over_seeds(drawn)
    reach = t_quantile(len(drawn) - 1) * stdev(drawn) / sqrt(len(drawn))
    assert found.mean == pytest.approx(fmean(drawn))
    assert found.high - found.mean == pytest.approx(reach)
    assert found.mean - found.low == pytest.approx(reach)


def test_intervals_end_where_values_do():
    found = over_seeds([0.1, 0.9], least=0.0, most=1.0)
    assert (found.low, found.high) == (0.0, 1.0)
    assert over_seeds([0.1, 0.9], least=0.0, most=inf).high > 1.0


@pytest.mark.parametrize("drawn", [[0.4], [0.4, 0.4], [0.4, 0.4, 0.4]])
def test_one_seed_and_equal_seeds_claim_no_interval(drawn):
    found = over_seeds(drawn)
    assert (found.low, found.high) == (None, None)
    assert f"{found}" == "0.400"


ROSE = [(0, 0.9), (1, 0.1), (2, 0.5), (4, 0.7), (5, 0.9)]  # nothing was measured in round 3


@pytest.mark.parametrize(
    ("level", "window", "rounds"),
    [
        (0.9, 1, 1),
        (0.5, 2, 1 + 1),  # the first two on average, though the first alone was higher
        (0.6, 2, 4 + 1),
        (0.65, 3, 5 + 1),
        (0.85, 2, "not reached"),
        (0.1, 6, "not measured"),
    ],
)
def test_an_accuracy_is_reached_by_a_whole_window_of_measured_rounds(level, window, rounds):
    assert rounds_to(level, ROSE, window) == rounds


def test_seeds_that_did_not_get_there_are_counted_and_not_averaged():
    assert f"{rounds_over_seeds([10, 20, 30]):.1f}" == "20.0 [0.0, 44.8]"
    assert rounds_over_seeds([10, "not reached"]) == "in 1 of 2 seeds (10)"
    assert rounds_over_seeds(["not reached", "not measured"]) == "not measured / not reached"


def test_a_band_covers_the_rounds_that_every_seed_measured():
    other = [(at, value / 2) for at, value in ROSE if at != 1]
    found = dict(band([ROSE, other], 2))
    assert list(found) == [1, 3, 5, 6]
    assert found[6].mean == pytest.approx(fmean([smoothed(one, 2)[-1][1] for one in (ROSE, other)]))
    assert found[6].low < found[6].mean < found[6].high


def test_a_figure_without_any_measured_round_is_drawn_all_the_same():
    nothing = {"one": [SimpleNamespace(accuracy=[], entropy=[])]}
    assert "one seed, so no bands" in figure(nothing, 5, 0.6)
