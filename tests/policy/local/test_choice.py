"""Every token is drawn from exactly the distribution that was asked for."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from forethought.policy.local.choice import choose, truncate, uniforms

PROBS = (0.4, 0.25, 0.2, 0.1, 0.05)
CRITICAL = {2: 13.816, 4: 18.467}
"""Chi-square at 0.999 by degrees of freedom."""


def logits(probs=PROBS, rows=1):
    return torch.tensor(probs, dtype=torch.float64).log().float().expand(rows, -1)


def drawn(rows, *, temperature=1.0, top_p=1.0, probs=PROBS):
    """`rows` choices from one distribution, each with its own seed."""
    numbers = uniforms(np.arange(rows, dtype=np.uint64), np.zeros(rows, dtype=np.uint64))
    return choose(
        logits(probs, rows),
        torch.full((rows,), temperature),
        torch.full((rows,), top_p),
        torch.from_numpy(numbers),
    )


def chi_square(ids, probs):
    counts = torch.bincount(ids, minlength=len(probs)).double()
    expected = torch.tensor(probs, dtype=torch.float64) * len(ids)
    kept = expected > 0
    assert counts[~kept].sum() == 0
    return float(((counts - expected)[kept] ** 2 / expected[kept]).sum())


def test_the_numbers_are_those_of_splitmix64():
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    seeds, places = np.full(3, 1234567, dtype=np.uint64), np.arange(3, dtype=np.uint64)
    assert uniforms(seeds, places).tolist() == [(each >> 11) * 2.0**-53 for each in published]


def test_a_number_depends_on_its_own_seed_and_place_alone():
    seeds = np.array([5, 2**63 - 1, 9], dtype=np.uint64)
    places = np.array([0, 7, 400], dtype=np.uint64)
    together = uniforms(seeds, places)
    assert together[1] == uniforms(seeds[1:2], places[1:2])[0]
    assert ((together >= 0) & (together < 1)).all()


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_sampled_tokens_follow_the_tempered_distribution(temperature):
    tempered = [p ** (1 / temperature) for p in PROBS]
    probs = [p / sum(tempered) for p in tempered]
    assert chi_square(drawn(20_000, temperature=temperature).ids_B, probs) < CRITICAL[4]


def test_a_truncated_distribution_is_the_nucleus_renormalised():
    nucleus = [0.4 / 0.85, 0.25 / 0.85, 0.2 / 0.85, 0.0, 0.0]
    assert chi_square(drawn(20_000, top_p=0.8).ids_B, nucleus) < CRITICAL[2]


def test_log_probabilities_are_those_before_truncation():
    choice = drawn(50, top_p=0.8)
    expected = logits()[0].log_softmax(-1)[choice.ids_B]
    torch.testing.assert_close(choice.logprobs_B, expected)


def test_log_probabilities_are_those_of_the_tempered_distribution():
    choice = drawn(50, temperature=0.5)
    expected = (logits()[0] / 0.5).log_softmax(-1)[choice.ids_B]
    torch.testing.assert_close(choice.logprobs_B, expected)


def test_temperature_zero_takes_the_best_and_reports_temperature_one():
    choice = drawn(9, temperature=0.0, probs=(0.2, 0.5, 0.3))
    assert choice.ids_B.tolist() == [1] * 9
    assert choice.logprobs_B.tolist() == approx([math.log(0.5)] * 9, abs=1e-6)


def test_a_greedy_row_and_a_sampled_row_may_stand_side_by_side():
    choice = choose(
        logits(rows=2), torch.tensor([0.0, 1.0]), torch.ones(2), torch.tensor([0.99, 0.99])
    )
    assert choice.ids_B.tolist() == [0, 4]


def test_the_largest_number_below_one_still_draws_a_token_that_can_be():
    last = torch.tensor([1.0 - 2.0**-53], dtype=torch.float64)
    probs = torch.tensor([[0.5, 0.5, 0.0]])
    choice = choose(probs.clamp(min=1e-30).log(), torch.ones(1), torch.tensor([0.9]), last)
    assert choice.ids_B.tolist() == [1]


def test_the_number_zero_does_not_draw_a_token_that_was_cut_off():
    choice = choose(
        logits((0.1, 0.9)), torch.ones(1), torch.tensor([0.5]), torch.zeros(1, dtype=torch.float64)
    )
    assert choice.ids_B.tolist() == [1]


def test_entropy_is_in_nats_at_the_sampling_temperature():
    assert drawn(1, probs=(0.25,) * 4).entropies_B.item() == approx(math.log(4), abs=1e-6)
    expected = -sum(p * math.log(p) for p in PROBS)
    assert drawn(1).entropies_B.item() == approx(expected, abs=1e-6)
    assert drawn(1, temperature=0.5).entropies_B.item() < expected


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.25, [1]), (0.5, [1]), (0.625, [1, 3]), (0.75, [1, 3]), (0.76, [0, 1, 3])]
)
def test_the_nucleus_is_the_smallest_set_that_reaches_top_p(top_p, kept):
    probs = torch.tensor([[0.125, 0.5, 0.125, 0.25]])
    left = truncate(probs, torch.tensor([top_p]))
    assert left[0].nonzero()[:, 0].tolist() == kept
    assert torch.equal(left[0, kept], probs[0, kept])


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 64), min_size=1, max_size=12), st.integers(1, 63))
def test_the_nucleus_reaches_top_p_and_would_not_without_its_least_likely_token(parts, share):
    # Multiples of 1/2^k add up without rounding, so that the limit is met exactly.
    parts = [*parts, 1024 - sum(parts)]
    probs, top_p = torch.tensor([[part / 1024 for part in parts]]), share / 64
    left = truncate(probs, torch.tensor([top_p]))[0]
    kept = left[left > 0]
    assert kept.sum() >= top_p
    assert kept.sum() - kept.min() < top_p
    assert kept.min() >= probs[0][left == 0].max() if bool((left == 0).any()) else True
