"""What a few seeds say: rounds to an accuracy, and the band of a figure."""

from statistics import fmean
from types import SimpleNamespace

import pytest

from forethought.app.study.figure import band, figure
from forethought.app.study.outcomes import rounds_over_seeds, rounds_to, smoothed

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
