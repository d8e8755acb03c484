"""The packed forward pass is the padded one, value and gradient, for every family."""

import pytest
import torch

from forethought.policy.local.decoder import Decoder
from forethought.policy.local.linear import Arithmetic
from forethought.policy.local.models import with_adapters
from forethought.policy.local.packed import Effort, packed_hidden
from forethought.policy.local.packing import pack
from padded import padded_hidden
from tiny import FAMILIES, VOCABULARY, local_model, network

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
EXACT = {torch.float32: 1e-5, torch.float64: 1e-10}


def drawn(length, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (length,), generator=generator).tolist()


PROMPT, OTHER = drawn(14, 0), drawn(9, 1)
ROWS = [
    [*PROMPT, *OTHER, *drawn(3, 2)],
    [*PROMPT, *OTHER, *drawn(12, 3)],
    drawn(11, 4),
    [*PROMPT, *drawn(7, 5)],
    [*PROMPT, *OTHER],
    drawn(1, 6),
]


def rows_padded(rows):
    ids_BT = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    mask_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    for number, row in enumerate(rows):
        ids_BT[number, : len(row)] = torch.tensor(row)
        mask_BT[number, : len(row)] = True
    return ids_BT, mask_BT


def gradient(model, hidden, loss_weights):
    model.zero_grad()
    (hidden * loss_weights).sum().backward()
    return torch.cat([each.grad.flatten() for each in model.parameters() if each.requires_grad])


def packed(model, again=False, dtype=None):
    packing = pack(ROWS)
    assert len(packing.shared) == 2
    wanted_M = packing.place_BT[rows_padded(ROWS)[1]]
    arithmetic = Arithmetic(dtype=dtype or next(model.parameters()).dtype)
    effort = Effort(arithmetic=arithmetic, again=again)
    return packed_hidden(Decoder(model), packing, wanted_M, effort)


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("family", FAMILIES)
def test_values_and_gradients_are_those_of_padded_rows(family, dtype):
    model = network(family).to(dtype)
    ids_BT, mask_BT = rows_padded(ROWS)
    expected = padded_hidden(model, ids_BT)[mask_BT]
    found = packed(model)
    torch.testing.assert_close(found, expected, rtol=EXACT[dtype], atol=EXACT[dtype])
    weights = torch.linspace(-1, 2, found.numel(), dtype=dtype).view_as(found)
    one, other = gradient(model, found, weights), gradient(model, expected, weights)
    scale = other.abs().max()
    torch.testing.assert_close(one / scale, other / scale, rtol=0, atol=EXACT[dtype])


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_values_are_those_of_the_librarys_model(family):
    model = network(family)
    ids_BT, mask_BT = rows_padded(ROWS)
    expected = model.model(ids_BT).last_hidden_state[mask_BT]
    torch.testing.assert_close(packed(model), expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_that_are_computed_again_give_equal_gradients(family):
    model = network(family)
    hidden = packed(model)
    weights = torch.linspace(-1, 2, hidden.numel()).view_as(hidden)
    kept = gradient(model, hidden, weights)
    again = gradient(model, packed(model, again=True), weights)
    assert torch.equal(kept, again)


@pytest.mark.parametrize("again", [False, True])
def test_adapters_are_trained_and_nothing_else(again):
    model = with_adapters(local_model("llama"), rank=2, alpha=4).network
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.1, generator=drawn)
    ids_BT, mask_BT = rows_padded(ROWS)
    found = packed(model, again)
    expected = padded_hidden(model.get_base_model(), ids_BT)[mask_BT]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    weights = torch.linspace(-1, 2, found.numel()).view_as(found)
    one, other = gradient(model, found, weights), gradient(model, expected, weights)
    assert one.norm() > 1
    torch.testing.assert_close(one / other.norm(), other / other.norm(), rtol=0, atol=1e-5)
    assert all(each.grad is None for each in model.parameters() if not each.requires_grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("adapted", [False, True])
def test_two_bytes_are_close_and_leave_float32_gradients(adapted, dtype):
    model = network("llama", spread=0.15)
    if adapted:
        model = with_adapters(local_model("llama", spread=0.15), rank=2, alpha=4).network
    exact, rough = packed(model), packed(model, dtype=dtype)
    weights = torch.linspace(-1, 2, exact.numel()).view_as(exact)
    one, other = gradient(model, exact, weights), gradient(model, rough, weights)
    assert rough.dtype is torch.float32
    assert 0 < (rough - exact).norm() < 0.03 * exact.norm()
    assert 0 < (other - one).norm() < 0.05 * one.norm()
    assert {each.grad.dtype for each in model.parameters() if each.requires_grad} == {torch.float32}


def test_what_nobody_wants_is_not_needed():
    model = network()
    packing = pack(ROWS)
    effort = Effort(arithmetic=Arithmetic())
    every = packed_hidden(Decoder(model), packing, torch.arange(len(packing.ids_N)), effort)
    some = torch.tensor([3, 0, 3, 20])
    torch.testing.assert_close(
        packed_hidden(Decoder(model), packing, some, effort), every[some], rtol=0, atol=1e-5
    )
