"""Samples that are read end to end stay strangers to each other."""

import torch
from pytest import mark

from forethought.core.trajectory import Tokens
from forethought.learning.batch import pad
from forethought.learning.logprobs import Reading, token_logprobs
from forethought.learning.losses.catalogue import objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Denominators, Streams
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.linear import Arithmetic
from forethought.policy.local.packed import Effort
from learning.loss_cases import BUDGET, NAMES
from learning.rows import random_rows
from padded import padded_logprobs
from tiny import FAMILIES, network

ROWS = random_rows(7, seed=4)
ADVANTAGES = [1.5, -0.5, 0.25, -2.0, 0.0, 1.0, -1.0]


def written(*ids):
    """A sample of which the policy wrote every token."""
    return Tokens(ids=ids, sampled=(True,) * len(ids), logprobs=(-1.0,) * len(ids))


@torch.no_grad()
def values_of(model, *samples):
    """The log-probability of each token of some samples, read together."""
    batch = pad(samples, [0.0] * len(samples))
    effort = Effort(arithmetic=Arithmetic(dtype=torch.float32))
    values_BT = token_logprobs(Decoder(model), Reading.of(batch), 1.0, 1000, effort)
    return [values_BT[row, : len(sample)] for row, sample in enumerate(samples)]


def test_no_token_is_predicted_from_the_end_of_another_sample():
    reading = Reading.of(pad([written(1, 2, 3), written(4, 5)], [0.0, 0.0]))
    before = reading.packing.ids_N[reading.before_M].tolist()
    pairs = {*zip(before, reading.targets_M.tolist(), strict=True)}
    assert pairs == {(1, 2), (2, 3), (4, 5)}


@mark.parametrize("family", FAMILIES)
def test_a_sample_reads_the_same_alone_and_beside_any_other(family):
    model = network(family, spread=0.15)
    first, second = written(1, 2, 3), written(4, 5, 6)
    together = values_of(model, first, second)
    for sample, found in zip((first, second), together, strict=True):
        (alone,) = values_of(model, sample)
        torch.testing.assert_close(found, alone, rtol=0, atol=1e-6)
    _, beside_another = values_of(model, written(7, 8, 9), second)
    torch.testing.assert_close(beside_another, together[1], rtol=0, atol=1e-6)
    (other_first, _) = values_of(model, written(1, 2, 9), second)
    assert other_first[2] != together[0][2]


def step_of(model, name, batch, portions, read):
    """The loss of a step and its gradient, from portions of its rows read by `read`."""
    denominators = Denominators.count([batch.mask_BT], budget=BUDGET)
    total = torch.zeros((), dtype=torch.float64)
    model.zero_grad()
    for portion in portions:
        part = batch.take(portion)
        streams = Streams(
            mask_BT=part.mask_BT,
            advantages_BT=part.advantages_BT.double(),
            old_logprobs_BT=part.sampled_logprobs_BT.double(),
            weights_BT=torch.ones_like(part.advantages_BT, dtype=torch.float64),
        )
        loss = objective(LossSettings(name=name))(read(model, part), streams, denominators).loss
        loss.backward()
        total += loss.detach()
    return total, torch.cat([each.grad.flatten() for each in model.parameters()])


def read_packed(model, batch):
    effort = Effort(arithmetic=Arithmetic(dtype=torch.float64))
    return token_logprobs(Decoder(model), Reading.of(batch), 1.0, 1000, effort)


def read_padded(model, batch):
    return padded_logprobs(model, batch.ids_BT, batch.mask_BT)


@mark.parametrize("name", NAMES)
def test_packed_portions_of_a_step_have_the_loss_and_the_gradient_of_its_padded_whole(name):
    model = network(spread=0.15).double()
    batch = pad(ROWS, ADVANTAGES)
    whole, gradient = step_of(model, name, batch, [range(len(ROWS))], read_padded)
    assert gradient.norm() > 1e-3
    for portions in ([range(len(ROWS))], [[5, 1], [6], [3, 0, 2, 4]], batch.portions(30)):
        found, found_gradient = step_of(model, name, batch, portions, read_packed)
        torch.testing.assert_close(found, whole, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(found_gradient, gradient, rtol=0, atol=1e-9)
