"""Entropy, its bonus, and the tokens that lower it."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx, mark

from forethought.learning.losses.clipped import clipped_surrogate
from forethought.learning.losses.covariance import (
    clip_cov_candidates,
    clip_cov_tokens,
    covariances,
    kl_cov_surrogate,
    kl_cov_tokens,
    selection_size,
)
from forethought.learning.losses.entropy import entropy, entropy_bonus
from forethought.learning.losses.ratios import log_ratio
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators
from learning.loss_cases import PRECISIONS, close, close_sum, read, streams_of, tensor_of

GOLDEN = read("13_entropy_control")
TOLERANCE = GOLDEN["tolerance"]
KL_COV, CLIP_COV = GOLDEN["kl_cov"], GOLDEN["clip_cov"]


def toy(dtype=torch.float64):
    """The log-probabilities and streams of the file, and each token's covariance."""
    streams = streams_of(KL_COV["inputs"], KL_COV["advantage"], dtype)
    logprobs_BT = tensor_of(KL_COV["inputs"]["logp"], dtype)
    found_BT = covariances(logprobs_BT, streams.advantages_BT, streams.mask_BT)
    return logprobs_BT, streams, found_BT


@mark.parametrize("dtype", PRECISIONS)
def test_entropy_and_its_gradient_meet_the_worked_numbers(dtype):
    case = GOLDEN["measurement"]
    logits = tensor_of(case["logits"], dtype).requires_grad_()
    found = entropy(logits.log_softmax(-1))
    found.sum().backward()
    close(found.detach(), case["entropy"], dtype, TOLERANCE)
    close(logits.grad, case["dH_dlogits"], dtype, TOLERANCE)
    mask_BT = torch.tensor([case["mask"]]).bool()
    bonus = entropy_bonus(
        found.detach()[None],
        mask_BT,
        Denominators.count([mask_BT]),
        aggregation="token-mean",
        coefficient=0.5,
    )
    close(bonus, -0.5 * case["masked_mean"], dtype, TOLERANCE)


@given(st.integers(0, 2**31), st.sampled_from(["token-mean", "seq-mean-token-mean"]))
@settings(deadline=None, max_examples=30)
def test_an_entropy_bonus_adds_up_over_parts_and_ignores_what_is_masked(seed, aggregation):
    generator = torch.Generator().manual_seed(seed)
    mask_BT = torch.rand(4, 5, generator=generator) < 0.6
    entropies_BT = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    spoilt_BT = torch.where(mask_BT, entropies_BT, float("nan"))
    denominators = Denominators.count([mask_BT])

    def bonus(values_BT, part):
        return entropy_bonus(
            values_BT[part], mask_BT[part], denominators, aggregation=aggregation, coefficient=0.1
        )

    whole = bonus(entropies_BT, slice(None))
    parts = bonus(spoilt_BT, slice(0, 1)) + bonus(spoilt_BT, slice(1, 4))
    assert parts.item() == approx(whole.item(), abs=1e-12)
    assert (whole < 0) == mask_BT.any()


def test_a_bonus_is_aggregated_as_its_loss_is():
    assert LossSettings(name="grpo_scr").chosen_aggregation == "seq-mean-token-mean"
    assert LossSettings(name="dapo").chosen_aggregation == "token-mean"
    assert LossSettings(name="dapo", aggregation="token-sum").chosen_aggregation == "token-sum"


@mark.parametrize("dtype", PRECISIONS)
def test_covariances_and_their_penalty_meet_the_worked_numbers(dtype):
    logprobs_BT, streams, found_BT = toy(dtype)
    expected_BT = streams.kept(tensor_of(KL_COV["covariance"]))
    close(found_BT, expected_BT, dtype, TOLERANCE)
    chosen_BT = kl_cov_tokens(found_BT, streams.mask_BT, KL_COV["ratio"])
    assert sorted(map(tuple, KL_COV["selected"])) == [*map(tuple, chosen_BT.nonzero().tolist())]
    leaf = logprobs_BT.clone().requires_grad_()
    loss_BT = kl_cov_surrogate(
        log_ratio(leaf, streams), streams.advantages_BT, chosen_BT, KL_COV["ppo_kl_coef"]
    )
    loss = loss_BT[streams.mask_BT].mean()
    loss.backward()
    size = loss_BT[streams.mask_BT].abs().mean().item()
    close_sum(loss.item(), KL_COV["loss"], dtype, TOLERANCE, size)
    close(leaf.grad, KL_COV["grad_logp"], dtype, TOLERANCE)


def test_candidates_for_a_clip_by_covariance_are_the_worked_ones():
    logprobs_BT, streams, found_BT = toy()
    low, high = CLIP_COV["clip"]
    surrogate = clipped_surrogate(
        log_ratio(logprobs_BT, streams).exp(),
        streams.advantages_BT,
        Terms(clip_low=low, clip_high=high),
    )
    free_BT = streams.mask_BT & ~surrogate.clip_low_BT & ~surrogate.clip_high_BT
    candidates_BT = clip_cov_candidates(found_BT, free_BT, CLIP_COV["lb"], CLIP_COV["ub"])
    expected_BT = torch.tensor(CLIP_COV["candidate_mask"]).bool()
    assert torch.equal(candidates_BT, expected_BT)
    highest = found_BT[candidates_BT].max()
    fewer_BT = clip_cov_candidates(found_BT, free_BT, CLIP_COV["lb"], highest.item())
    assert torch.equal(candidates_BT & ~fewer_BT, candidates_BT & (found_BT == highest))
    seen_BT = torch.zeros_like(candidates_BT)
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        drawn_BT = clip_cov_tokens(candidates_BT, 2, generator)
        assert drawn_BT.sum() == 2
        assert not (drawn_BT & ~candidates_BT).any()
        seen_BT |= drawn_BT
    assert torch.equal(seen_BT, candidates_BT)
    assert clip_cov_tokens(candidates_BT, 99, generator).sum() == expected_BT.sum()


def test_a_selection_has_at_least_one_token_where_there_is_any():
    _, streams, found_BT = toy()
    tokens = int(streams.mask_BT.sum())
    assert selection_size(streams.mask_BT, 1e-4) == 1
    assert selection_size(streams.mask_BT, 0.5) == tokens // 2
    nothing_BT = torch.zeros_like(streams.mask_BT)
    assert selection_size(nothing_BT, 0.5) == 0
    assert not kl_cov_tokens(found_BT, nothing_BT, 0.5).any()


@mark.parametrize("garbage", [float("nan"), float("inf")])
def test_what_is_masked_is_neither_averaged_nor_chosen(garbage):
    logprobs_BT, streams, found_BT = toy()
    spoilt_BT, advantages_BT = (
        torch.where(streams.mask_BT, each, garbage) for each in (logprobs_BT, streams.advantages_BT)
    )
    assert torch.equal(covariances(spoilt_BT, advantages_BT, streams.mask_BT), found_BT)
    dirty_BT = torch.where(streams.mask_BT, found_BT, garbage)
    chosen_BT = kl_cov_tokens(dirty_BT, streams.mask_BT, KL_COV["ratio"])
    assert torch.equal(chosen_BT, kl_cov_tokens(found_BT, streams.mask_BT, KL_COV["ratio"]))
