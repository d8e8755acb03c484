"""The change of an update, from a sample, is about that of all weights."""

import pytest
import torch
from torch import nn

from forethought.learning.change import SEEN, Sample


def test_large_and_small_parameters_count_as_what_they_are():
    drawn = torch.Generator().manual_seed(0)
    shapes = [(300, 700), (7,), (2 * SEEN + 5,), (64, 64)]
    before = [torch.randn(shape, generator=drawn) * (1 + n) for n, shape in enumerate(shapes)]
    after = [each + 0.1 * torch.randn(each.shape, generator=drawn) for each in before]
    parameters = [nn.Parameter(each.clone()) for each in before]
    sample = Sample.of(parameters)
    with torch.no_grad():
        for parameter, now in zip(parameters, after, strict=True):
            parameter.copy_(now)
    moved = sum(float((b - a).square().sum()) for a, b in zip(before, after, strict=True))
    size = sum(float(a.square().sum()) for a in before)
    found = Sample.of(parameters).change_since(sample)
    assert found == pytest.approx((moved / size) ** 0.5, rel=0.05)


def test_a_model_of_zeros_has_no_relative_change():
    zeros = [nn.Parameter(torch.zeros(3))]
    sample = Sample.of(zeros)
    with torch.no_grad():
        zeros[0].fill_(1.0)
    assert Sample.of(zeros).change_since(sample) == 0.0
