"""Sampled turns: the tokens that the model would say, and what they were worth to it."""

import pytest
import torch

from forethought.core.trajectory import Finish
from forethought.policy.local import generate as generating
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.generate import Request, generate, prefill
from forethought.policy.protocol import SamplingSettings
from tiny import FAMILIES, VOCABULARY, network

PROMPTS = ((1, 2, 3), (4, 5, 6, 7, 8, 9, 10), (11,))


def request(ids=PROMPTS[0], *, seed=0, stop=(), **chosen):
    settings = SamplingSettings(**{"max_tokens": 20} | chosen)
    return Request(ids=tuple(ids), stop=frozenset(stop), settings=settings, seed=seed)


def said(decoder, requests, version=0):
    """What each request became; each must be told of exactly once."""
    heard = {}

    def emit(number, sampled):
        assert number not in heard
        heard[number] = sampled

    generate(decoder, requests, version, emit)
    assert sorted(heard) == list(range(len(requests)))
    return [heard[number] for number in range(len(requests))]


@torch.no_grad()
def full_logprobs(model, prompt, ids, temperature):
    """The log-probability of each id after the prompt, by one pass of the library's model."""
    whole = torch.tensor([[*prompt, *ids]])
    logprobs = (model(whole).logits[0] / temperature).log_softmax(-1)
    return logprobs[len(prompt) - 1 : -1].gather(1, torch.tensor(ids)[:, None])[:, 0]


@pytest.mark.parametrize("family", FAMILIES)
def test_two_hundred_greedy_tokens_are_those_of_transformers(family):
    model = network(family, seed=3)
    (sampled,) = said(Decoder(model), [request(temperature=0.0, max_tokens=200)])
    expected = model.generate(torch.tensor([PROMPTS[0]]), max_new_tokens=200, do_sample=False)
    assert list(sampled.ids) == expected[0, len(PROMPTS[0]) :].tolist()
    assert len(set(sampled.ids)) > 3


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_of_a_full_forward_pass(temperature):
    model = network()
    requests = [request(prompt, seed=7, temperature=temperature) for prompt in PROMPTS]
    for prompt, sampled in zip(PROMPTS, said(Decoder(model), requests), strict=True):
        expected = full_logprobs(model, prompt, sampled.ids, temperature)
        torch.testing.assert_close(torch.tensor(sampled.logprobs), expected, rtol=0, atol=1e-4)


def test_a_row_does_not_depend_on_its_neighbours():
    decoder = Decoder(network())
    mine = request(PROMPTS[1], seed=11, max_tokens=40)
    others = [request(PROMPTS[n % 3], seed=n, max_tokens=1 + 4 * n) for n in range(7)]
    (alone,) = said(decoder, [mine])
    for place in (0, 4, 7):
        crowd = said(decoder, [*others[:place], mine, *others[place:]])[place]
        assert crowd.ids == alone.ids
        assert crowd.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
        assert crowd.entropies == pytest.approx(alone.entropies, abs=1e-4)


def test_rows_that_end_at_different_times_leave_the_others_as_they_were():
    decoder = Decoder(network())
    requests = [request(PROMPTS[n % 3], seed=n, stop=range(4)) for n in range(12)]
    crowd = said(decoder, requests)
    assert len({len(sampled.ids) for sampled in crowd}) > 4
    for each, sampled in zip(requests, crowd, strict=True):
        (alone,) = said(decoder, [each])
        assert (sampled.ids, sampled.finish) == (alone.ids, alone.finish)


def test_first_tokens_follow_the_models_distribution():
    model = network(vocab_size=5, spread=0.5)
    requests = [request((1, 2), seed=seed, max_tokens=1) for seed in range(4000)]
    counts = torch.zeros(5)
    for sampled in said(Decoder(model), requests):
        counts[sampled.ids[0]] += 1
    with torch.no_grad():
        expected = model(torch.tensor([[1, 2]])).logits[0, -1].softmax(-1) * len(requests)
    assert expected.min() > 5
    assert ((counts - expected) ** 2 / expected).sum() < 18.467  # 4 degrees of freedom, 0.999


def test_the_same_seed_says_the_same_and_another_seed_something_else():
    decoder = Decoder(network())
    first, again, other = said(decoder, [request(seed=seed) for seed in (1, 1, 2)])
    (later,) = said(decoder, [request(seed=1)])
    assert first.ids == again.ids == later.ids
    assert other.ids != first.ids


def test_the_tokens_of_one_turn_are_drawn_with_different_numbers():
    model = network(spread=0.0)  # every token is equally likely at every place
    (sampled,) = said(Decoder(model), [request(max_tokens=60)])
    assert len(set(sampled.ids)) > 15


def test_a_stop_token_ends_the_turn_and_is_kept():
    decoder = Decoder(network())
    (whole,) = said(decoder, [request(seed=5)])
    stop = whole.ids[6]
    first = whole.ids.index(stop)
    (cut,) = said(decoder, [request(seed=5, stop=(stop,))])
    assert cut.finish is Finish.END_OF_TURN
    assert cut.ids == whole.ids[: first + 1]
    assert len(cut.logprobs) == len(cut.entropies) == first + 1


def test_a_turn_ends_at_its_token_limit():
    decoder = Decoder(network())
    short, long = said(decoder, [request(max_tokens=3), request(max_tokens=9)])
    assert (short.finish, len(short.ids)) == (Finish.TOKEN_LIMIT, 3)
    assert (long.finish, len(long.ids)) == (Finish.TOKEN_LIMIT, 9)
    assert long.ids[:3] == short.ids


def test_a_turn_ends_where_the_context_is_full():
    decoder = Decoder(network(max_position_embeddings=10))
    (sampled,) = said(decoder, [request()])
    assert sampled.finish is Finish.CONTEXT_FULL
    assert len(PROMPTS[0]) + len(sampled.ids) == 10


@pytest.mark.parametrize("length", [10, 11])
def test_a_prompt_that_fills_the_context_is_answered_with_nothing(length):
    decoder = Decoder(network(max_position_embeddings=10))
    full, other = said(decoder, [request(range(length)), request()])
    assert (full.finish, full.ids) == (Finish.CONTEXT_FULL, ())
    assert other.ids


def test_the_weight_version_is_noted():
    (sampled,) = said(Decoder(network()), [request()], version=17)
    assert sampled.weight_version == 17


@torch.no_grad()
def test_equal_prompts_are_computed_once_and_shared():
    decoder = Decoder(network())
    prompts = [PROMPTS[0], PROMPTS[1], PROMPTS[0]]
    hidden_BE, cache = prefill(decoder, prompts)
    assert torch.equal(hidden_BE[0], hidden_BE[2])
    assert torch.equal(cache.keys[0][0], cache.keys[0][2])
    expected = decoder.hidden(torch.tensor([PROMPTS[1]]))[0, -1]
    torch.testing.assert_close(hidden_BE[1], expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_many_long_prompts_are_read_in_portions_and_come_out_alike():
    decoder = Decoder(network(num_hidden_layers=1, max_position_embeddings=2048))
    drawn = torch.Generator().manual_seed(0)
    lengths = range(1000, 1800, 50)
    prompts = [
        tuple(torch.randint(VOCABULARY, (length,), generator=drawn).tolist()) for length in lengths
    ]
    assert len(prompts) * max(map(len, prompts)) > generating.PREFILL_TOKENS
    hidden_BE, _ = prefill(decoder, prompts)
    for place in (0, 7, 15):
        alone = decoder.hidden(torch.tensor([prompts[place]]))[0, -1]
        torch.testing.assert_close(hidden_BE[place], alone, rtol=0, atol=1e-4)
