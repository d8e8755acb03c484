"""What training is said to take in memory is what it takes."""

import pytest
import torch

from forethought.app.memory import caution, memory_needed, pass_size
from forethought.learning.settings import ComputeSettings
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.linear import Arithmetic
from forethought.policy.local.packed import Effort, packed_hidden
from forethought.policy.local.packing import pack
from tiny import FAMILIES, local_model

TOKENS = 96


def kept(model, *, again):
    """Bytes that one pass keeps for the way back, beside the weights."""
    weights = {each.untyped_storage().data_ptr() for each in model.parameters()}
    found = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights and tensor.is_floating_point():
            found[storage.data_ptr()] = storage
        return tensor

    packing = pack([list(range(TOKENS))])
    effort = Effort(arithmetic=Arithmetic(), again=again)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        hidden = packed_hidden(Decoder(model), packing, torch.arange(TOKENS), effort)
    assert hidden.requires_grad
    return sum(storage.nbytes() for storage in found.values())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("again", [False, True])
def test_what_a_pass_keeps_is_what_is_counted(family, again):
    sizes = {"hidden_size": 64, "intermediate_size": 160, "vocab_size": 128}
    sizes |= {"num_hidden_layers": 6, "max_position_embeddings": 128}
    model = local_model(family=family, **sizes)
    compute = ComputeSettings(micro_tokens=TOKENS, logit_tokens=1, gradient_checkpointing=again)
    counted = pass_size(model, compute) - 8 * 128  # without the logits of one token
    if again:
        layer = pass_size(model, compute.model_copy(update={"gradient_checkpointing": False}))
        counted -= layer // 6  # which is made again on the way back
    assert kept(model.network, again=again) == pytest.approx(counted, rel=0.3)


def test_logits_are_counted_twice_and_for_no_more_tokens_than_are_read():
    model = local_model()
    vocabulary = len(Decoder(model.network).embedding)

    def size(**chosen):
        return pass_size(model, ComputeSettings(**chosen))

    more = size(micro_tokens=64, logit_tokens=48) - size(micro_tokens=64, logit_tokens=32)
    assert more == 16 * vocabulary * 8
    assert size(micro_tokens=64, logit_tokens=999) == size(micro_tokens=64, logit_tokens=64)


def test_a_row_longer_than_a_portion_is_read_whole():
    model = local_model()

    def size(longest, **chosen):
        return pass_size(model, ComputeSettings(logit_tokens=1, **chosen), longest)

    assert size(200, micro_tokens=64) == size(0, micro_tokens=200)
    assert size(50, micro_tokens=64) == size(0, micro_tokens=64)


def test_attempts_that_may_not_fit_are_told_of_before_they_are_made():
    model = local_model(max_position_embeddings=300)
    compute = ComputeSettings(micro_tokens=64)
    fits = pass_size(model, compute, 200)
    assert caution(model, compute, 200, fits) == ""
    told = caution(model, compute, 200, fits - 1)
    assert "an attempt may have 200 tokens (agent.max_tokens = 200)" in told
    assert "an attempt may have 300 tokens" in caution(model, compute, 9000, 0)
    assert caution(model, compute, 64, 0) == ""  # no more than is asked for in any case


def test_who_does_not_learn_needs_no_gradient_moments_or_way_back():
    model = local_model()
    both = [
        memory_needed(model, 0, on_gpu=False, passing=1000, trains=trains)
        for trains in (True, False)
    ]
    assert both[0] - both[1] == 1000 + 3 * 4 * model.parameters


def test_each_worker_makes_a_pass_of_its_own():
    model = local_model()
    passing = [
        memory_needed(model, workers, on_gpu=False, passing=1000)
        - memory_needed(model, workers, on_gpu=False)
        for workers in (0, 1, 3)
    ]
    assert passing == [1000, 1000, 3000]
