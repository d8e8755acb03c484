"""Attention without padding, with shared beginnings, is attention of each row alone."""

import pytest
import torch

from forethought.policy.local.attention import (
    Heads,
    StretchAttention,
    TurnedHeads,
    padded_attention,
    paired,
)
from forethought.policy.local.packing import pack
from padded import rotate

HEADS = Heads(query=4, key=2, size=6)
ROWS = [[1] * 6 + [2] * 4 + [3], [1] * 6 + [2] * 4 + [4, 4], [1] * 6 + [5], [6] * 5, [7]]
S = HEADS.query + 2 * HEADS.key


def states(tokens, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (tokens, S, HEADS.size)
    return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()


def alone(states_NSD, packing):
    """Each token from its own row by the book, [N, H, D]."""
    mixed = torch.zeros(len(states_NSD), HEADS.query, HEADS.size, dtype=states_NSD.dtype)
    mixed = list(mixed)
    for row, places in zip(ROWS, packing.place_BT, strict=True):
        query, key, value = states_NSD[places[: len(row)]].split(
            (HEADS.query, HEADS.key, HEADS.key), 1
        )
        key, value = (each.repeat_interleave(2, 1) for each in (key, value))
        scores = torch.einsum("thd,shd->hts", query, key) / HEADS.size**0.5
        future = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        for place, each in zip(places, torch.einsum("hts,shd->thd", weights, value), strict=False):
            mixed[place] = each
    return torch.stack(mixed)


@pytest.mark.parametrize("way", [StretchAttention.apply, padded_attention])
def test_every_token_takes_what_it_would_take_in_its_row_alone(way):
    packing = pack(ROWS)
    assert len(packing.shared) == 2
    given = states(len(packing.ids_N))
    found, expected = way(given, HEADS, packing), alone(given, packing)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weights = torch.linspace(-1, 2, found.numel(), dtype=found.dtype).view_as(found)
    (one,) = torch.autograd.grad((found * weights).sum(), given)
    (other,) = torch.autograd.grad((expected * weights).sum(), given)
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_the_gradient_of_attention_is_that_of_finite_differences():
    packing = pack(ROWS[2:])
    given = states(len(packing.ids_N))
    assert torch.autograd.gradcheck(StretchAttention.apply, (given, HEADS, packing))


def turns(tokens):
    angles = torch.arange(tokens * 3.0, dtype=torch.float64).view(tokens, 1, 3)
    return torch.polar(torch.ones_like(angles), angles)


@pytest.mark.parametrize("with_norm", [False, True])
def test_heads_are_normed_and_turned_as_by_the_book_but_paired(with_norm):
    given = states(5)
    norm = torch.rand(6, 6, dtype=torch.float64) + 0.5 if with_norm else None
    found = TurnedHeads.apply(given, norm, 1e-5, turns(5), HEADS)
    raw, value = given[:, :6], given[:, 6:]
    if norm is not None:
        raw = raw * (raw.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * norm
    cos, sin = (torch.cat((part, part), -1) for part in (turns(5).real, turns(5).imag))
    torch.testing.assert_close(found[:, :6], paired(rotate(raw, cos, sin)).flatten(-2))
    assert torch.equal(found[:, 6:], value)


@pytest.mark.parametrize("with_norm", [False, True])
def test_the_gradient_of_turned_heads_is_that_of_finite_differences(with_norm):
    norm = (torch.rand(6, 6, dtype=torch.float64) + 0.5).requires_grad_() if with_norm else None
    assert torch.autograd.gradcheck(TurnedHeads.apply, (states(4), norm, 1e-5, turns(4), HEADS))
