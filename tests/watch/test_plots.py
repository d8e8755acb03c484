"""Numbers behind figures."""

from hypothesis import given
from hypothesis import strategies as st

from forethought.watch.plots import curve, histogram, running_mean, thinned

FLOATS = st.floats(-1e6, 1e6)


@given(st.lists(FLOATS, max_size=200))
def test_a_running_mean_is_as_long_as_its_series_and_stays_within_it(values):
    means = running_mean(values)
    assert len(means) == len(values)
    assert all(min(values) - 1e-6 <= mean <= max(values) + 1e-6 for mean in means)


@given(st.integers(0, 3000))
def test_thinning_keeps_order_and_bounds_the_number_of_points(size):
    kept = thinned([(step, 2.0 * step) for step in range(size)])
    assert len(kept) == size if size <= 300 else 150 <= len(kept) <= 300
    assert kept == sorted(kept)
    assert all(value == 2 * step for step, value in kept)


def test_a_figure_shows_one_point_and_gaps_and_skips_what_is_not_finite():
    assert "var(--accent)" in curve([(0, 1.0)])
    gap = curve([(0, 1.0), (1, float("nan")), (2, float("inf")), (3, 2.0)])
    assert gap == curve([(0, 1.0), (3, 2.0)])


def test_a_histogram_draws_a_bar_for_each_pass_rate():
    one, three = histogram([0.5] * 4), histogram([0.0, 0.5, 0.5, 1.0])
    assert three.count("var(--soft)") == 2
    assert three.count("var(--accent)") == one.count("var(--accent)") == 1
    many = histogram([place / 100 for place in range(101)])
    assert many.count("var(--accent)") == 9
