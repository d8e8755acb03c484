"""The log-probabilities of given tokens are the model's, however many are computed at once."""

import pytest
import torch

from forethought.learning.batch import pad
from forethought.learning.logprobs import token_logprobs
from forethought.policy.local.decoder import Decoder
from learning.rows import random_rows
from tiny import network

ROWS = random_rows(6)
BATCH = pad(ROWS, [0.0] * len(ROWS))


def gradient_of(model, logit_tokens, temperature=1.0):
    """Values at trained tokens, and the gradient of a sum that weighs each differently."""
    model.zero_grad()
    values_BT = token_logprobs(
        Decoder(model), BATCH.ids_BT, BATCH.mask_BT, temperature, logit_tokens
    )
    weights_BT = torch.linspace(-1, 2, values_BT.numel()).view_as(values_BT)
    (values_BT * weights_BT).sum().backward()
    return values_BT.detach(), [each.grad.clone() for each in model.parameters()]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@torch.no_grad()
def test_values_are_those_of_the_librarys_model_where_trained_and_zero_elsewhere(temperature):
    model = network()
    found_BT = token_logprobs(Decoder(model), BATCH.ids_BT, BATCH.mask_BT, temperature, 1000)
    logprobs = (model(BATCH.ids_BT).logits[:, :-1] / temperature).log_softmax(-1)
    expected = logprobs.gather(2, BATCH.ids_BT[:, 1:, None])[..., 0]
    expected_BT = torch.nn.functional.pad(expected, (1, 0)).masked_fill(~BATCH.mask_BT, 0.0)
    torch.testing.assert_close(found_BT, expected_BT, rtol=0, atol=1e-5)
    assert found_BT.dtype is torch.float32


@pytest.mark.parametrize("logit_tokens", [1, 7, 50])
def test_portions_of_logits_change_neither_values_nor_gradient(logit_tokens):
    model = network()
    assert int(BATCH.mask_BT.sum()) > 50
    whole, whole_gradient = gradient_of(model, 10_000, 0.7)
    values, gradient = gradient_of(model, logit_tokens, 0.7)
    torch.testing.assert_close(values, whole, rtol=0, atol=1e-5)
    for one, other in zip(gradient, whole_gradient, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_what_the_padding_holds_changes_nothing():
    decoder = Decoder(network())
    filled_BT = BATCH.ids_BT.clone()
    for place, length in enumerate(BATCH.lengths_B.tolist()):
        filled_BT[place, length:] = 17
    assert not torch.equal(filled_BT, BATCH.ids_BT)
    one, other = (
        token_logprobs(decoder, ids_BT, BATCH.mask_BT, 1.0, 100)
        for ids_BT in (BATCH.ids_BT, filled_BT)
    )
    assert torch.equal(one, other)


def test_a_portion_without_a_trained_token_has_a_zero_gradient():
    model = network()
    ids_BT = torch.tensor([[1, 2, 3]])
    values_BT = token_logprobs(Decoder(model), ids_BT, torch.zeros_like(ids_BT).bool(), 1.0, 10)
    assert values_BT.tolist() == [[0.0, 0.0, 0.0]]
    values_BT.sum().backward()
    assert all(each.grad is None or not each.grad.any() for each in model.parameters())
