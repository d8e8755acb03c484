"""Intervals over a few seeds, by Student's t."""

from math import inf, sqrt
from statistics import NormalDist, fmean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.evaluation.intervals import over_seeds, t_quantile, t_share

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
