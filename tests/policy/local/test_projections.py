"""Gradients written by hand are those of autograd, and parameters get theirs in place."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from forethought.policy.local.linear import Arithmetic, Linear
from forethought.policy.local.projections import (
    Embedding,
    GatedProjection,
    NormedProjections,
    Projection,
    RootMeanSquareNorm,
)

WIDE = Arithmetic(dtype=torch.float64)
EPSILON = 1e-5
N, E, FEED = 7, 6, 10


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def eager_norm(inputs, weight):
    return inputs * (inputs.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * weight


def eager_normed(inputs, weight, epsilon, arithmetic, *maps):
    normed = eager_norm(inputs, weight)
    return torch.cat(
        [F.linear(normed, *each) for each in zip(maps[::2], maps[1::2], strict=True)], 1
    )


def eager_projection(inputs, weight, bias, held, arithmetic):
    return held + F.linear(inputs, weight, bias)


def eager_gated(gate_up, weight, held, arithmetic):
    gate, up = gate_up.chunk(2, 1)
    return held + F.linear(F.silu(gate) * up, weight)


CASES = {
    "norm": (
        RootMeanSquareNorm,
        lambda inputs, weight, epsilon: eager_norm(inputs, weight),
        (drawn(N, E), drawn(E), EPSILON),
    ),
    "normed projections": (
        NormedProjections,
        eager_normed,
        (drawn(N, E), drawn(E), EPSILON, WIDE, drawn(4, E), None, drawn(3, E), drawn(3)),
    ),
    "projection": (
        Projection,
        eager_projection,
        (drawn(N, FEED), drawn(E, FEED), drawn(E), drawn(N, E), WIDE),
    ),
    "gated projection": (
        GatedProjection,
        eager_gated,
        (drawn(N, 2 * FEED), drawn(E, FEED), drawn(N, E), WIDE),
    ),
    "embedding": (
        Embedding,
        F.embedding,
        (torch.tensor([1, 4, 1, 0]), drawn(5, E)),
    ),
}


def tensors(values):
    return [each for each in values if isinstance(each, torch.Tensor) and each.requires_grad]


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_finite_differences(name):
    function, _, values = CASES[name]
    assert torch.autograd.gradcheck(function.apply, values)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_autograd(name):
    function, eager, values = CASES[name]
    found, expected = function.apply(*values), eager(*values)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weights = torch.linspace(-1, 2, found.numel(), dtype=found.dtype).view_as(found)
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), tensors(values)),
        torch.autograd.grad((expected * weights).sum(), tensors(values)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_a_parameter_gets_its_gradient_added_to_what_it_has(name):
    function, eager, values = CASES[name]
    parameters = [
        nn.Parameter(each.detach().clone()) if each.requires_grad else each
        for each in values
        if isinstance(each, torch.Tensor)
    ]
    rest = iter(parameters)
    given = [next(rest) if isinstance(each, torch.Tensor) else each for each in values]
    function.apply(*given).square().sum().backward()
    function.apply(*given).square().sum().backward()
    expected = torch.autograd.grad(eager(*values).square().sum(), tensors(values))
    learnt = [each for each in parameters if each.requires_grad]
    for one, other in zip(learnt, expected, strict=True):
        torch.testing.assert_close(one.grad, 2 * other, rtol=0, atol=1e-12)


def test_a_weight_that_is_frozen_gets_no_gradient():
    weight = nn.Parameter(drawn(E, FEED).detach(), requires_grad=False)
    inputs = drawn(N, FEED)
    Projection.apply(inputs, weight, None, drawn(N, E), WIDE).sum().backward()
    assert weight.grad is None
    assert inputs.grad.abs().sum() > 0


def test_an_arithmetic_converts_a_parameter_once_and_leaves_it():
    weight = nn.Parameter(torch.randn(3, 3))
    half = Arithmetic(dtype=torch.bfloat16)
    assert half.weight(weight).dtype is torch.bfloat16
    assert half.weight(weight) is half.weight(weight)
    assert Arithmetic(dtype=torch.float32).weight(weight) is weight


def test_in_bfloat16_states_and_gradients_of_parameters_stay_float32():
    half = Arithmetic(dtype=torch.bfloat16)
    norm, up, down = (
        nn.Parameter(each.detach().float())
        for each in (drawn(E), drawn(2 * FEED, E), drawn(E, FEED))
    )
    held = drawn(N, E).detach().float().requires_grad_()
    gate_up = NormedProjections.apply(held, norm, EPSILON, half, up, None)
    outputs = GatedProjection.apply(gate_up, down, held, half)
    outputs.square().sum().backward()
    assert gate_up.dtype is torch.bfloat16
    assert {each.dtype for each in (outputs, held.grad, norm.grad, up.grad, down.grad)} == {
        torch.float32
    }
    wide = [each.detach().double().requires_grad_() for each in (held, norm, up, down)]
    gate_up = eager_normed(wide[0], wide[1], EPSILON, None, wide[2], None)
    eager_gated(gate_up, wide[3], wide[0], None).square().sum().backward()
    for mine, exact in zip((held, norm, up, down), wide, strict=True):
        assert (mine.grad - exact.grad).norm() < 0.03 * exact.grad.norm()


def test_only_a_plain_linear_module_is_taken_for_its_weight():
    class Louder(nn.Linear):
        def forward(self, inputs):
            return 2 * super().forward(inputs)

    plain = nn.Linear(3, 2)
    assert Linear.of(plain) == Linear(weight_OE=plain.weight, bias_O=plain.bias)
    assert Linear.of(Louder(3, 2)) is None
