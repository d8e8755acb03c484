"""The log-probabilities of given tokens are the model's, however many are computed at once."""

import dataclasses

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from forethought.core.trajectory import Tokens
from forethought.learning.batch import pad
from forethought.learning.logprobs import (
    ChosenLogprobs,
    Reading,
    Scale,
    token_logprobs,
    token_outlook,
)
from forethought.learning.losses.catalogue import LOSSES, objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Denominators, Streams
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.linear import Arithmetic
from forethought.policy.local.packed import Effort
from learning.rows import random_rows
from padded import padded_logprobs
from tiny import FAMILIES, network


def one_prompt(rows, prompt=(3, 1, 4, 1, 5, 9, 2, 6)):
    """The same rows, each after one prompt."""
    return [Tokens.join((Tokens.given(prompt), row)) for row in rows]


ROWS = random_rows(6)
BATCH = pad(ROWS, [0.0] * len(ROWS))
GROUP = pad(one_prompt(random_rows(5, seed=3, longest=12)), [1.0, -1.0, 0.5, -0.5, 2.0])
EXACT = {torch.float32: 1e-5, torch.float64: 1e-10}


def values_of(model, batch, logit_tokens=1000, temperature=1.0, dtype=None):
    arithmetic = Arithmetic(dtype=dtype or next(model.parameters()).dtype)
    effort = Effort(arithmetic=arithmetic)
    return token_logprobs(Decoder(model), Reading.of(batch), temperature, logit_tokens, effort)


def gradient_of(model, values_BT):
    """The gradient of a sum that weighs each value differently."""
    model.zero_grad()
    weights_BT = torch.linspace(-1, 2, values_BT.numel(), dtype=values_BT.dtype).view_as(values_BT)
    (values_BT * weights_BT).sum().backward()
    return torch.cat([each.grad.flatten() for each in model.parameters()])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@torch.no_grad()
def test_values_are_those_of_the_librarys_model_where_trained_and_zero_elsewhere(temperature):
    model = network()
    found_BT = values_of(model, BATCH, temperature=temperature)
    logprobs = (model(BATCH.ids_BT).logits[:, :-1] / temperature).log_softmax(-1)
    expected = logprobs.gather(2, BATCH.ids_BT[:, 1:, None])[..., 0]
    expected_BT = torch.nn.functional.pad(expected, (1, 0)).masked_fill(~BATCH.mask_BT, 0.0)
    torch.testing.assert_close(found_BT, expected_BT, rtol=0, atol=2e-5)
    assert found_BT.dtype is torch.float32


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("batch", [BATCH, GROUP], ids=["apart", "one prompt"])
@pytest.mark.parametrize("family", FAMILIES)
def test_values_and_gradients_are_those_of_padded_rows(family, batch, dtype):
    model = network(family).to(dtype)
    assert bool(Reading.of(batch).packing.shared) == (batch is GROUP)
    expected = padded_logprobs(model, batch.ids_BT, batch.mask_BT)
    found = values_of(model, batch)
    torch.testing.assert_close(found, expected, rtol=EXACT[dtype], atol=EXACT[dtype])
    one, other = gradient_of(model, found), gradient_of(model, expected)
    scale = other.abs().max()
    torch.testing.assert_close(one / scale, other / scale, rtol=0, atol=EXACT[dtype])


@pytest.mark.parametrize("logit_tokens", [1, 7, 50])
def test_portions_of_logits_change_neither_values_nor_gradient(logit_tokens):
    model = network()
    assert int(BATCH.mask_BT.sum()) > 50
    whole = values_of(model, BATCH, 10_000, 0.7)
    whole_gradient = gradient_of(model, whole)
    values = values_of(model, BATCH, logit_tokens, 0.7)
    torch.testing.assert_close(values, whole, rtol=0, atol=1e-5)
    gradient = gradient_of(model, values)
    scale = whole_gradient.abs().max()
    torch.testing.assert_close(gradient / scale, whole_gradient / scale, rtol=0, atol=1e-6)


@pytest.mark.parametrize("entropies", [False, True])
@pytest.mark.parametrize("logit_tokens", [2, 9])
def test_the_gradient_of_the_head_is_that_of_finite_differences(logit_tokens, entropies):
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (
        torch.randn(rows, 4, dtype=torch.float64, generator=generator).requires_grad_()
        for rows in (5, 7)
    )
    targets = torch.tensor([6, 0, 3, 3, 1])
    wide = Effort(arithmetic=Arithmetic(dtype=torch.float64))
    scale = Scale(temperature=0.7, logit_tokens=logit_tokens, entropies=entropies)
    assert torch.autograd.gradcheck(ChosenLogprobs.apply, (hidden, weight, targets, scale, wide))


def test_each_portion_of_the_head_is_looked_around_at_there_and_back():
    seen = []
    effort = Effort(arithmetic=Arithmetic(), look=lambda: seen.append(len(seen)))
    hidden, weight = torch.ones(5, 4).requires_grad_(), torch.ones(7, 4).requires_grad_()
    scale = Scale(temperature=1.0, logit_tokens=2)
    found, _ = ChosenLogprobs.apply(hidden, weight, torch.tensor([6, 0, 3, 3, 1]), scale, effort)
    assert len(seen) == 3
    found.sum().backward()
    assert len(seen) == 6


class RowsOfLogits(TorchDispatchMode):
    """Counts the rows as wide as a vocabulary of every tensor that is made while it looks on.

    `longest` are those of one tensor; `most` of all that there were at once, and `alive` of all
    that there are now, whoever keeps them. A weight is set aside: turned over, it is as wide.
    """

    def __init__(self, weight_VE):
        super().__init__()
        self.width = len(weight_VE)
        self.aside = StorageWeakRef(weight_VE.untyped_storage()).cdata
        self.held = {}
        self.longest = self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.shape[1:] == (self.width,):
                storage = StorageWeakRef(tensor.untyped_storage())
                if storage.cdata != self.aside:
                    self.held[storage.cdata] = (storage, len(tensor))
                    self.longest = max(self.longest, len(tensor))
        self.most = max(self.most, self.alive)
        return made

    @property
    def alive(self):
        self.held = {key: one for key, one in self.held.items() if not one[0].expired()}
        return sum(rows for _, rows in self.held.values())


def rows_of_logits(tokens, scale):
    """How many rows are in one tensor, at once, and between the ways there and back, at most."""
    generator = torch.Generator().manual_seed(0)
    hidden_ME = torch.randn(tokens, 4, generator=generator).requires_grad_()
    weight_VE = torch.nn.Parameter(torch.randn(37, 4, generator=generator))
    targets_M = torch.randint(37, (tokens,), generator=generator)
    with RowsOfLogits(weight_VE) as rows:
        effort = Effort(arithmetic=Arithmetic())
        found = ChosenLogprobs.apply(hidden_ME, weight_VE, targets_M, scale, effort)
        between = rows.alive
        (found[0].sum() + 0.5 * found[1].sum()).backward()
    assert hidden_ME.grad is not None
    assert weight_VE.grad is not None
    return rows.longest, rows.most, between


@pytest.mark.parametrize("entropies", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logits_are_there_for_so_many_tokens_at_once_however_many_are_trained(
    temperature, entropies
):
    scale = Scale(temperature=temperature, logit_tokens=3, entropies=entropies)
    longest, most, between = rows_of_logits(60, scale)
    assert (longest, between) == (3, 0)
    assert most <= 4 * 3  # logits, and what is made of them
    assert rows_of_logits(6, scale) == (longest, most, between)


def test_log_probabilities_are_kept_for_the_way_back_where_one_portion_holds_them_all():
    longest, _, between = rows_of_logits(6, Scale(temperature=1.0, logit_tokens=6))
    assert (longest, between) == (6, 6)


@pytest.mark.parametrize("logit_tokens", [7, 10_000])
def test_entropies_are_those_of_the_librarys_logits_and_change_no_logprob(logit_tokens):
    model = network()
    scale = Scale(temperature=0.7, logit_tokens=logit_tokens, entropies=True)
    effort = Effort(arithmetic=Arithmetic())
    found = token_outlook(Decoder(model), Reading.of(BATCH), scale, effort)
    assert torch.equal(found.logprobs_BT, values_of(model, BATCH, logit_tokens, 0.7))
    with torch.no_grad():
        logits = model(BATCH.ids_BT).logits[:, :-1] / 0.7
    expected = torch.distributions.Categorical(logits=logits).entropy()
    expected_BT = torch.nn.functional.pad(expected, (1, 0)).masked_fill(~BATCH.mask_BT, 0.0)
    torch.testing.assert_close(found.entropies_BT, expected_BT, rtol=0, atol=2e-5)


@torch.no_grad()
def test_what_the_padding_holds_changes_nothing():
    model = network()
    ids_BT = BATCH.ids_BT.clone()
    for place, length in enumerate(BATCH.lengths_B.tolist()):
        ids_BT[place, length:] = 17
    filled = dataclasses.replace(BATCH, ids_BT=ids_BT)
    assert not torch.equal(filled.ids_BT, BATCH.ids_BT)
    assert torch.equal(values_of(model, filled), values_of(model, BATCH))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LOSSES)
def test_ratios_at_unchanged_weights_are_exactly_one(name, dtype):
    model = network("llama", spread=0.15)
    with torch.no_grad():
        before_BT = values_of(model, GROUP, dtype=dtype)
    streams = Streams(
        mask_BT=GROUP.mask_BT,
        advantages_BT=GROUP.advantages_BT,
        old_logprobs_BT=before_BT,
        weights_BT=torch.ones_like(before_BT),
    )
    after_BT = values_of(model, GROUP, dtype=dtype)
    result = objective(LossSettings(name=name))(
        after_BT, streams, Denominators.count([GROUP.mask_BT], budget=8.0)
    )
    assert after_BT.dtype is torch.float32
    assert torch.equal(after_BT.detach(), before_BT)
    assert result.tally.read()["ratio_max"] == 1.0


def test_a_portion_without_a_trained_token_has_a_zero_gradient():
    model = network()
    batch = pad([*ROWS[:1], Tokens.given((1, 2, 3))], [0.0, 0.0]).take([1])
    values_BT = values_of(model, batch)
    assert values_BT.tolist() == [[0.0, 0.0, 0.0]]
    values_BT.sum().backward()
    assert all(each.grad is None or not each.grad.any() for each in model.parameters())
