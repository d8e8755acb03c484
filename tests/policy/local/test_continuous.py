"""Sampled turns: the tokens that the model would say, and what they were worth to it."""

import pytest
import torch

from forethought.core.errors import PolicyError
from forethought.core.trajectory import Finish
from forethought.policy.local.continuous import ContinuousBatch
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.fused import fuse
from forethought.policy.local.inference import Inference
from forethought.policy.local.turns import Request
from forethought.policy.protocol import SamplingSettings
from tiny import FAMILIES, VOCABULARY, network

PROMPTS = ((1, 2, 3), (4, 5, 6, 7, 8, 9, 10), (11,))


def request(ids=PROMPTS[0], *, seed=0, stop=(), **chosen):
    settings = SamplingSettings(**{"max_tokens": 20} | chosen)
    return Request(ids=tuple(ids), stop=frozenset(stop), settings=settings, seed=seed)


@pytest.fixture(params=["kept by each row", "kept once"])
def inference(request):
    """Inference that counts, with both ways to keep what rows begin with."""
    # By themselves models of this size never share.
    shared_from = 1 if request.param == "kept once" else 2**60

    def made(model=None, dtype=torch.float32):
        return Counting(network() if model is None else model, dtype, shared_from)

    return made


class Counting(Inference):
    """Counts the tokens that are read, each time a piece of a prefix is, and notes what is done."""

    def __init__(self, model, dtype, shared_from):
        super().__init__(model, Decoder(model), dtype, shared_from=shared_from)
        self.pieces = []
        self.done = []
        self.roots = 0

    def read(self, pieces):
        self.pieces += [len(piece.ids) for piece in pieces]
        self.done.append("read")
        super().read(pieces)

    def speak(self, ids_B, slots):
        self.done.append("speak")
        sharing = slots.order.sharing
        self.roots = max(self.roots, 0 if sharing is None else len(sharing.roots))
        return super().speak(ids_B, slots)


def finish(batch):
    """What every turn in the batch becomes; each must be told of exactly once."""
    heard = {}
    while batch.busy:
        for seat, sampled in batch.step():
            assert seat not in heard
            heard[seat] = sampled
    return heard


def said(inference, requests, version=0, **limits):
    """What each request becomes when all begin together."""
    batch = ContinuousBatch(inference, version, **limits)
    for seat, each in enumerate(requests):
        batch.admit(seat, each)
    heard = finish(batch)
    assert sorted(heard) == list(range(len(requests)))
    return [heard[seat] for seat in range(len(requests))]


@torch.no_grad()
def full_logprobs(model, prompt, ids, temperature):
    """The log-probability of each id after the prompt, by one pass of the library's model."""
    whole = torch.tensor([[*prompt, *ids]])
    logprobs = (model(whole).logits[0] / temperature).log_softmax(-1)
    return logprobs[len(prompt) - 1 : -1].gather(1, torch.tensor(ids)[:, None])[:, 0]


@pytest.mark.parametrize("family", FAMILIES)
def test_two_hundred_greedy_tokens_are_those_of_transformers(inference, family):
    model = network(family, seed=3)
    (sampled,) = said(inference(model), [request(temperature=0.0, max_tokens=200)])
    expected = model.generate(torch.tensor([PROMPTS[0]]), max_new_tokens=200, do_sample=False)
    assert list(sampled.ids) == expected[0, len(PROMPTS[0]) :].tolist()
    assert len(set(sampled.ids)) > 3


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_of_a_full_forward_pass(inference, temperature):
    model = network()
    requests = [request(prompt, seed=7, temperature=temperature) for prompt in PROMPTS]
    for prompt, sampled in zip(PROMPTS, said(inference(model), requests), strict=True):
        expected = full_logprobs(model, prompt, sampled.ids, temperature)
        torch.testing.assert_close(torch.tensor(sampled.logprobs), expected, rtol=0, atol=1e-4)


def test_a_row_does_not_depend_on_its_neighbours(inference):
    speaker = inference()
    mine = request(PROMPTS[1], seed=11, max_tokens=40)
    others = [request(PROMPTS[n % 3], seed=n, max_tokens=1 + 4 * n) for n in range(7)]
    (alone,) = said(speaker, [mine])
    for place in (0, 4, 7):
        crowd = said(speaker, [*others[:place], mine, *others[place:]])[place]
        assert crowd.ids == alone.ids
        assert crowd.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
        assert crowd.entropies == pytest.approx(alone.entropies, abs=1e-4)


def test_rows_that_end_at_different_times_leave_the_others_as_they_were(inference):
    speaker = inference()
    requests = [request(PROMPTS[n % 3], seed=n, stop=range(4)) for n in range(12)]
    crowd = said(speaker, requests)
    assert len({len(sampled.ids) for sampled in crowd}) > 4
    for each, sampled in zip(requests, crowd, strict=True):
        (alone,) = said(speaker, [each])
        assert (sampled.ids, sampled.finish) == (alone.ids, alone.finish)


def test_first_tokens_follow_the_models_distribution(inference):
    model = network(vocab_size=5, spread=0.5)
    requests = [request((1, 2), seed=seed, max_tokens=1) for seed in range(4000)]
    counts = torch.zeros(5)
    for sampled in said(inference(model), requests):
        counts[sampled.ids[0]] += 1
    with torch.no_grad():
        expected = model(torch.tensor([[1, 2]])).logits[0, -1].softmax(-1) * len(requests)
    assert expected.min() > 5
    assert ((counts - expected) ** 2 / expected).sum() < 18.467  # 4 degrees of freedom, 0.999


def test_the_same_seed_says_the_same_and_another_seed_something_else(inference):
    speaker = inference()
    first, again, other = said(speaker, [request(seed=seed) for seed in (1, 1, 2)])
    (later,) = said(speaker, [request(seed=1)])
    assert first.ids == again.ids == later.ids
    assert other.ids != first.ids


def test_the_tokens_of_one_turn_are_drawn_with_different_numbers(inference):
    model = network(spread=0.0)  # every token is equally likely at every place
    (sampled,) = said(inference(model), [request(max_tokens=60)])
    assert len(set(sampled.ids)) > 15


def test_a_stop_token_ends_the_turn_and_is_kept(inference):
    speaker = inference()
    (whole,) = said(speaker, [request(seed=5)])
    stop = whole.ids[6]
    first = whole.ids.index(stop)
    (cut,) = said(speaker, [request(seed=5, stop=(stop,))])
    assert cut.finish is Finish.END_OF_TURN
    assert cut.ids == whole.ids[: first + 1]
    assert len(cut.logprobs) == len(cut.entropies) == first + 1


def test_a_turn_ends_at_its_token_limit(inference):
    speaker = inference()
    short, long = said(speaker, [request(max_tokens=3), request(max_tokens=9)])
    assert (short.finish, len(short.ids)) == (Finish.TOKEN_LIMIT, 3)
    assert (long.finish, len(long.ids)) == (Finish.TOKEN_LIMIT, 9)
    assert long.ids[:3] == short.ids


def test_a_turn_ends_where_the_context_is_full(inference):
    speaker = inference(network(max_position_embeddings=10))
    (sampled,) = said(speaker, [request()])
    assert sampled.finish is Finish.CONTEXT_FULL
    assert len(PROMPTS[0]) + len(sampled.ids) == 10


@pytest.mark.parametrize("length", [10, 11])
def test_a_prompt_that_fills_the_context_is_answered_with_nothing(inference, length):
    speaker = inference(network(max_position_embeddings=10))
    full, other = said(speaker, [request(range(length)), request()])
    assert (full.finish, full.ids) == (Finish.CONTEXT_FULL, ())
    assert other.ids


def test_the_weight_version_is_noted(inference):
    (sampled,) = said(inference(), [request()], version=17)
    assert sampled.weight_version == 17


def test_what_rows_begin_with_is_read_once(inference):
    speaker = inference()
    said(speaker, [request(PROMPTS[1], seed=seed) for seed in range(5)])
    assert speaker.pieces == [len(PROMPTS[1]) - 1]


def test_a_latecomer_of_a_group_does_not_read_its_opening_again(inference):
    speaker = inference()
    batch = ContinuousBatch(speaker, 0)
    batch.admit(1, request(PROMPTS[1], seed=1))
    first = finish(batch)[1]
    batch.admit(2, request(PROMPTS[1], seed=1))
    assert finish(batch)[2].ids == first.ids
    assert speaker.pieces == [len(PROMPTS[1]) - 1]


def test_what_openings_of_different_questions_begin_with_alike_is_read_once(inference):
    drawn = torch.Generator().manual_seed(3)
    announced = torch.randint(0, VOCABULARY, (50,), generator=drawn).tolist()
    questions = torch.randint(0, VOCABULARY, (6, 9), generator=drawn).tolist()
    prompts = [(*announced, number, *question) for number, question in enumerate(questions)]
    requests = [request(prompt, seed=seed) for seed, prompt in enumerate(prompts)]
    together = inference()
    found = said(together, requests)
    assert together.pieces == [59, *[9] * 5]
    alone = inference()
    for prompt, sampled, expected in zip(
        prompts, found, (said(alone, [each])[0] for each in requests), strict=True
    ):
        assert sampled.ids == expected.ids
        found_logprobs = torch.tensor(sampled.logprobs)
        torch.testing.assert_close(
            found_logprobs, torch.tensor(expected.logprobs), rtol=0, atol=1e-4
        )
        whole = full_logprobs(network(), prompt, sampled.ids, 1.0)
        torch.testing.assert_close(found_logprobs, whole, rtol=0, atol=1e-4)


def test_an_opening_that_another_begins_with_is_not_read_at_all(inference):
    drawn = torch.Generator().manual_seed(3)
    long = tuple(torch.randint(0, VOCABULARY, (60,), generator=drawn).tolist())
    speaker = inference()
    batch = ContinuousBatch(speaker, 0)
    batch.admit(0, request(long))
    finish(batch)
    batch.admit(1, request(long[:40], seed=5))
    (sampled,) = finish(batch).values()
    assert speaker.pieces == [59]
    (expected,) = said(inference(), [request(long[:40], seed=5)])
    assert sampled.ids == expected.ids


def announced_prompts(count, *, alike=40, seed=3):
    """Prompts that begin with the same tokens; every second one's question begins alike, too."""
    drawn = torch.Generator().manual_seed(seed)
    announced = torch.randint(0, VOCABULARY, (alike,), generator=drawn).tolist()
    questions = torch.randint(0, VOCABULARY, (count, 9), generator=drawn).tolist()
    return [
        (*announced, *([7] * (number % 2)), number, *question)
        for number, question in enumerate(questions)
    ]


def test_what_has_been_read_is_lent_for_as_long_as_somebody_waits(inference):
    speaker = inference()
    said(speaker, [request(prompt) for prompt in announced_prompts(8)], openings_kept=100)
    assert speaker.pieces[0] == 49
    assert max(speaker.pieces[1:]) <= 10


def test_openings_that_borrow_alike_are_read_in_one_portion(inference):
    speaker = inference()
    said(speaker, [request(prompt) for prompt in announced_prompts(8)])
    assert speaker.done.index("speak") == 2
    assert speaker.done.count("read") == 2


def test_rows_that_begin_nearly_alike_stand_on_one_root():
    speaker = Counting(network(), torch.float32, shared_from=1)
    prompts = announced_prompts(8)
    # The first to borrow has more in common with what it borrows from than the others.
    said(speaker, [request(prompts[number]) for number in (1, 3, 0, 2, 4, 5, 6, 7)])
    assert speaker.roots == 2


@pytest.mark.parametrize(
    ("threads", "dtype", "beginnings", "pays"),
    [
        # A token of this model is 2 * 2 * 8 numbers a layer: 128 bytes in float32.
        (1, torch.float32, [(100, 2)], True),
        (1, torch.float32, [(99, 2)], False),
        (1, torch.float32, [(50, 3)], True),
        (1, torch.float32, [(10_000, 1)], False),
        (2, torch.float32, [(199, 2)], False),
        (2, torch.float32, [(200, 2)], True),
        (1, torch.bfloat16, [(199, 2)], False),
        (1, torch.bfloat16, [(200, 2)], True),
        (1, torch.float32, [(199, 2), (50, 1)], False),  # each is more to do in a step
        (1, torch.float32, [(200, 2), (50, 1)], True),
    ],
)
def test_rows_share_what_they_begin_with_when_that_saves_enough(
    monkeypatch, threads, dtype, beginnings, pays
):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    model = network()
    inference = Inference(model, Decoder(model), dtype, shared_from=100 * 128)
    assert inference.pays_to_share(beginnings) is pays


def test_a_conversation_that_begins_otherwise_stands_on_nothing():
    model = network()
    batch = ContinuousBatch(Counting(model, torch.float32, shared_from=1), 0)
    for seat in range(2):
        batch.admit(seat, request((*range(1, 9), 3), seed=seat, max_tokens=3))
    finish(batch)
    other = (15, 2, 4, 6)
    batch.admit(0, request(other, max_tokens=5))
    (sampled,) = finish(batch).values()
    expected = full_logprobs(model, other, sampled.ids, 1.0)
    torch.testing.assert_close(torch.tensor(sampled.logprobs), expected, rtol=0, atol=1e-4)


def test_rows_speak_once_all_that_waits_is_read(inference):
    speaker = inference()
    requests = [request(PROMPTS[1], seed=1, max_tokens=3), request(range(VOCABULARY), max_tokens=3)]
    said(speaker, requests, read_at_once=10)
    assert speaker.done == [*["read"] * 4, *["speak"] * 3]


def test_openings_that_begin_alike_for_a_few_tokens_are_read_apart(inference):
    speaker = inference()
    said(speaker, [request((*range(20), 1)), request((*range(20), 2, 3))])
    assert speaker.pieces == [20, 21]


def test_turns_of_a_group_go_on_from_what_they_share(inference):
    drawn = torch.Generator().manual_seed(3)
    announced = torch.randint(0, VOCABULARY, (50,), generator=drawn).tolist()
    model = network()
    batch = ContinuousBatch(inference(model), 0)
    histories = {}
    for seat in range(6):  # two groups of three, which begin alike
        histories[seat] = (*announced, 10 + seat // 3, 3)
        batch.admit(seat, request(histories[seat], seed=seat, max_tokens=4 + seat))
    for turn in range(3):
        for seat, sampled in sorted(finish(batch).items()):
            expected = full_logprobs(model, histories[seat], sampled.ids, 1.0)
            torch.testing.assert_close(torch.tensor(sampled.logprobs), expected, rtol=0, atol=1e-4)
            histories[seat] += (*sampled.ids, 7, turn)
            if seat != turn:  # one of them is not heard of again
                again = request(histories[seat], seed=10 * turn + seat, max_tokens=3 + seat)
                batch.admit(seat, again)


def test_a_history_that_was_rewritten_within_what_is_shared_is_read_again_from_there(inference):
    speaker = inference()
    batch = ContinuousBatch(speaker, 0)
    for seat in range(3):
        batch.admit(seat, request(range(20), seed=seat))
    finish(batch)
    rewritten = (*range(12), 22, 21, 20)
    batch.admit(1, request(rewritten, seed=4))
    again = finish(batch)[1]
    assert speaker.pieces == [19, 2]
    (afresh,) = said(inference(), [request(rewritten, seed=4)])
    assert again.ids == afresh.ids


def test_old_openings_are_forgotten(inference):
    speaker = inference()
    batch = ContinuousBatch(speaker, 0, openings_kept=7)
    for seat, prompt in enumerate((PROMPTS[0], PROMPTS[1], PROMPTS[0])):
        batch.admit(seat, request(prompt))
        finish(batch)
    batch.admit(9, request(PROMPTS[1]))
    finish(batch)
    assert speaker.pieces == [2, 6, 2, 6]  # the first went when the second came, and so on


def test_a_later_turn_reads_only_what_is_new(inference):
    speaker = inference()
    batch = ContinuousBatch(speaker, 0)
    batch.admit(1, request(seed=3))
    first = finish(batch)[1]
    history = (*PROMPTS[0], *first.ids, 5, 6, 7)
    batch.admit(1, request(history, seed=4))
    second = finish(batch)[1]
    # The token that ended the first turn was never read, and the newest is read by speaking.
    assert speaker.pieces == [len(PROMPTS[0]) - 1, 1 + 3 - 1]
    (afresh,) = said(inference(), [request(history, seed=4)])
    assert second.ids == afresh.ids
    assert second.logprobs == pytest.approx(afresh.logprobs, abs=1e-4)


def test_a_history_that_was_rewritten_is_read_again_from_where_it_differs(inference):
    speaker = inference()
    batch = ContinuousBatch(speaker, 0)
    batch.admit(1, request(PROMPTS[1], seed=3))
    finish(batch)
    rewritten = (*PROMPTS[1][:4], 20, 21, 22)
    batch.admit(1, request(rewritten, seed=4))
    second = finish(batch)[1]
    assert speaker.pieces == [6, 2]
    (afresh,) = said(inference(), [request(rewritten, seed=4)])
    assert second.ids == afresh.ids


def test_rows_may_join_and_leave_at_any_token(inference):
    alone = {n: said(inference(), [request(PROMPTS[n % 3], seed=n)])[0] for n in range(6)}
    batch = ContinuousBatch(inference(), 0)
    heard = {}
    for seat in range(6):
        batch.admit(seat, request(PROMPTS[seat % 3], seed=seat))
        for _ in range(3):
            heard |= dict(batch.step())
    heard |= finish(batch)
    for seat, sampled in heard.items():
        assert sampled.ids == alone[seat].ids
        assert sampled.logprobs == pytest.approx(alone[seat].logprobs, abs=1e-4)


def test_a_conversation_that_is_given_up_leaves_the_others_as_they_were(inference):
    (alone,) = said(inference(), [request(PROMPTS[1], seed=2)])
    batch = ContinuousBatch(inference(), 0)
    for seat in range(4):
        batch.admit(seat, request(PROMPTS[1], seed=seat))
    for _ in range(3):
        batch.step()
    for seat in (0, 3):
        batch.forget(seat)
    heard = finish(batch)
    assert sorted(heard) == [1, 2]
    assert heard[2].ids == alone.ids


def test_an_opening_that_was_given_up_is_read_no_further_until_it_is_asked_for_again(inference):
    speaker = inference()
    batch = ContinuousBatch(speaker, 0, read_at_once=10)
    batch.admit(1, request(range(VOCABULARY)))
    batch.step()
    batch.forget(1)
    assert not batch.busy
    batch.admit(2, request(PROMPTS[1]))
    finish(batch)
    assert speaker.pieces == [10, 6]
    batch.admit(3, request(range(VOCABULARY), seed=4))
    again = finish(batch)[3]
    assert speaker.pieces == [10, 6, 10, VOCABULARY - 1 - 20]
    (afresh,) = said(inference(), [request(range(VOCABULARY), seed=4)])
    assert again.ids == afresh.ids


def test_what_was_said_to_a_conversation_that_was_given_up_is_not_read(inference):
    speaker = inference()
    batch = ContinuousBatch(speaker, 0, read_at_once=10)
    batch.admit(1, request())
    first = finish(batch)[1]
    batch.admit(1, request((*PROMPTS[0], *first.ids, *range(25))))
    batch.step()
    batch.forget(1)
    assert not batch.busy
    assert speaker.pieces == [2, 10]


def test_an_opening_that_was_given_up_may_be_forgotten(inference):
    speaker = inference()
    batch = ContinuousBatch(speaker, 0, read_at_once=10, openings_kept=7)
    batch.admit(1, request(range(VOCABULARY)))
    batch.step()
    batch.forget(1)
    for seat, prompt in ((2, PROMPTS[0]), (3, range(VOCABULARY))):
        batch.admit(seat, request(prompt))
        finish(batch)
    assert speaker.pieces == [10, 2, 10, 10, VOCABULARY - 1 - 20]


def test_long_openings_are_read_in_portions_and_come_out_alike(inference):
    drawn = torch.Generator().manual_seed(0)
    prompts = [
        tuple(torch.randint(VOCABULARY, (length,), generator=drawn).tolist())
        for length in range(150, 450, 50)
    ]
    model = network(num_hidden_layers=1)
    speaker = inference(model)
    requests = [request(prompt, seed=7) for prompt in prompts]
    for prompt, sampled in zip(prompts, said(speaker, requests, read_at_once=300), strict=True):
        expected = full_logprobs(model, prompt, sampled.ids, 1.0)
        torch.testing.assert_close(torch.tensor(sampled.logprobs), expected, rtol=0, atol=1e-4)
    assert max(speaker.pieces) <= 300
    assert sum(speaker.pieces) == sum(len(prompt) - 1 for prompt in prompts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_numbers_that_are_not_finite_are_nobodys_words(inference, dtype):
    model = network(spread=0.1)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.fill_(1e30)
        model.model.layers[0].mlp.gate_proj.weight.fill_(1e30)
    with pytest.raises(PolicyError, match=r'not finite.*compute\.precision = "float16"'):
        said(inference(model, dtype), [request(PROMPTS[1], max_tokens=5)])


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_two_bytes_are_near_float32(inference, half):
    model = network(spread=0.1)
    exact, near = (
        said(inference(model, dtype), [request(PROMPTS[1], temperature=0.0, max_tokens=5)] * 3)[0]
        for dtype in (torch.float32, half)
    )
    assert exact.ids == near.ids
    assert exact.logprobs == pytest.approx(near.logprobs, abs=0.05)
    assert exact.logprobs != near.logprobs


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("fused", [False, True])
def test_every_family_speaks_as_transformers_computes_it(inference, family, fused):
    model = network(family)
    if fused:
        fuse(model)
    requests = [request(prompt, seed=seed) for seed, prompt in enumerate(PROMPTS)]
    for prompt, sampled in zip(PROMPTS, said(inference(model), requests), strict=True):
        expected = full_logprobs(model, prompt, sampled.ids, 1.0)
        torch.testing.assert_close(torch.tensor(sampled.logprobs), expected, rtol=0, atol=1e-5)
