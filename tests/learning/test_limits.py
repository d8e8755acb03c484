"""The limits of a round are those of the recipe."""

import pytest

from forethought.core.errors import RecipeError
from forethought.core.verdict import Verdict
from learning.test_rl import Training, hits


def loses_one_in_sixteen(token, key):
    return Verdict.not_measured("no sandbox") if key.rollout == 0 else hits(token, key)


def test_not_measured_decides_how_many_attempts_a_round_may_lose(tmp_path):
    def training(name, most):
        limits = {"limits": {"not_measured": most}}
        return Training(tmp_path / name, loses_one_in_sixteen, steps=1, more=limits)

    (report,) = training("borne", 0.07).run().reports
    assert report["attempts/not_measured"] == 4 / 64
    words = r"4 of 64 attempts .* more than rl\.limits\.not_measured = 0\.05; .*no sandbox"
    with pytest.raises(RecipeError, match=words):
        training("refused", 0.05).run()
