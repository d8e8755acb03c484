"""The factor of a loss follows what float16 can hold."""

import pytest
import torch

from forethought.learning.loss_scale import LARGEST, PATIENCE, LossScale


def test_a_factor_is_halved_down_to_one():
    scale = LossScale(factor=4.0)
    assert [(scale.lower(), scale.factor) for _ in range(2)] == [(True, 2.0), (True, 1.0)]


def test_a_gradient_that_no_factor_helps_leaves_the_factor_as_it_was():
    scale = LossScale(factor=4.0)
    for _ in range(2):
        assert [scale.lower() for _ in range(3)] == [True, True, False]
        assert scale.factor == 4.0
    scale.lower()
    scale.fitted()
    assert [scale.lower(), scale.lower(), scale.factor] == [True, False, 2.0]


def test_one_large_gradient_halves_the_factor_of_the_next_once():
    scale = LossScale(factor=64.0)
    for _ in range(5):
        scale.lower()
    assert scale.factor == 2.0
    scale.fitted()
    assert scale.factor == 32.0


def test_a_factor_is_doubled_after_many_updates_that_fit():
    scale = LossScale(factor=4.0)
    for _ in range(PATIENCE - 1):
        scale.fitted()
    assert scale.factor == 4.0
    scale.fitted()
    assert (scale.factor, scale.fitting) == (8.0, 0)


def test_a_gradient_that_did_not_fit_begins_the_count_again():
    scale = LossScale(factor=4.0, fitting=PATIENCE - 1)
    scale.lower()
    scale.fitted()
    assert (scale.factor, scale.fitting) == (2.0, 1)


def test_a_factor_has_an_end():
    scale = LossScale(factor=LARGEST, fitting=PATIENCE - 1)
    scale.fitted()
    assert scale.factor == LARGEST


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16])
def test_what_needs_no_help_is_left_as_it_is(dtype):
    scale = LossScale.of(dtype)
    for _ in range(PATIENCE):
        scale.fitted()
    assert scale.factor == 1.0
    assert not scale.lower()
    assert scale.state == {}


def test_a_scale_goes_on_where_it_stopped():
    scale, other = LossScale(factor=32.0, fitting=7), LossScale()
    other.read(scale.state)
    assert other == scale
    other.read({})
    assert other == scale
