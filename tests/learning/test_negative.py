"""Known mistakes, each written out: it gives its own number, and ours is another."""

import json
import re
from pathlib import Path

import torch
from pytest import approx, mark

from forethought.learning.advantage import AdvantageSettings, group_advantages
from forethought.learning.losses.grpo_tcr import grpo_tcr
from forethought.learning.losses.kl import k1, k2, k3
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Denominators, Streams

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/19_negative_examples.json").read_text())
INPUTS, MUTANTS, TOLERANCE = GOLDEN["inputs"], GOLDEN["mutants"], GOLDEN["tolerance"]
LOW, HIGH = map(float, re.search(r"clip ([\d.]+)/([\d.]+)", GOLDEN["name"]).groups())
FIRST = int(re.search(r"split (\d+)\|", MUTANTS["naive_microbatch_mean"]["why"])[1])
SPLIT = (slice(0, FIRST), slice(FIRST, len(INPUTS["logp"])))


def tensor(name):
    return torch.tensor(INPUTS[name], dtype=torch.float64)


MASK_BT = tensor("response_mask").bool()
OLD_BT, REF_BT = tensor("old_logp"), tensor("ref_logp")


def advantages_of(**settings):
    found = group_advantages(INPUTS["reward"], INPUTS["group"], AdvantageSettings(**settings))
    return torch.tensor(found, dtype=torch.float64)[:, None].expand_as(OLD_BT)


def surrogate(logprobs_BT, *, old_BT=OLD_BT, low=LOW, high=HIGH, worse=torch.maximum, ddof=1):
    """The right loss of each token, with places to go wrong."""
    advantages_BT = advantages_of(ddof=ddof)
    ratio_BT = (logprobs_BT - old_BT).exp()
    return worse(-advantages_BT * ratio_BT, -advantages_BT * ratio_BT.clamp(1 - low, 1 + high))


def token_mean(loss_BT, mask_BT=MASK_BT):
    return loss_BT[mask_BT].mean()


def clamped_before(logprobs_BT):
    return token_mean(-advantages_of() * (logprobs_BT - OLD_BT).exp().clamp(1 - LOW, 1 + HIGH))


def observations_trained(logprobs_BT):
    return surrogate(logprobs_BT).mean()


def observations_counted(logprobs_BT):
    return surrogate(logprobs_BT)[MASK_BT].sum() / MASK_BT.numel()


def clips_exchanged(logprobs_BT):
    return token_mean(surrogate(logprobs_BT, low=HIGH, high=LOW))


def better_of_two(logprobs_BT):
    return token_mean(surrogate(logprobs_BT, worse=torch.minimum))


def against_reference(logprobs_BT):
    return token_mean(surrogate(logprobs_BT, old_BT=REF_BT))


def population_deviation(logprobs_BT):
    return token_mean(surrogate(logprobs_BT, ddof=0))


def sequences_weigh_the_same(logprobs_BT):
    loss_BT = torch.where(MASK_BT, surrogate(logprobs_BT), 0.0)
    return (loss_BT.sum(dim=1) / MASK_BT.sum(dim=1)).mean()


def micro_batches_weigh_the_same(logprobs_BT):
    loss_BT = surrogate(logprobs_BT)
    return torch.stack([token_mean(loss_BT[part], MASK_BT[part]) for part in SPLIT]).mean()


MISTAKES = {
    "double_clamp_writeup": clamped_before,
    "no_observation_mask": observations_trained,
    "denominator_counts_observation_tokens": observations_counted,
    "swapped_eps": clips_exchanged,
    "min_instead_of_max": better_of_two,
    "ratio_against_ref": against_reference,
    "population_std": population_deviation,
    "mean_of_sequence_means": sequences_weigh_the_same,
    "naive_microbatch_mean": micro_batches_weigh_the_same,
}


def ours(part=slice(None)):
    """Our loss of some rows, divided by the denominators of all, and its gradient."""
    leaf = tensor("logp")[part].requires_grad_()
    streams = Streams(
        mask_BT=MASK_BT[part],
        advantages_BT=advantages_of()[part],
        old_logprobs_BT=OLD_BT[part],
        weights_BT=torch.ones_like(OLD_BT[part]),
    )
    recipe = LossSettings(clip_low=LOW, clip_high=HIGH, dual_clip=0.0)
    loss = grpo_tcr(leaf, streams, Denominators.count([MASK_BT]), recipe).loss
    loss.backward()
    return loss.item(), leaf.grad


def test_ours_is_the_right_number_with_the_right_gradient():
    assert advantages_of()[:, 0].tolist() == approx(GOLDEN["advantage"], abs=TOLERANCE, rel=0)
    loss, gradient_BT = ours()
    expected_BT = torch.tensor(GOLDEN["correct"]["grad_logp"], dtype=torch.float64)
    assert loss == approx(GOLDEN["correct"]["loss"], abs=TOLERANCE, rel=0)
    torch.testing.assert_close(gradient_BT, expected_BT, atol=TOLERANCE, rtol=0.0)


@mark.parametrize("name", MISTAKES)
def test_a_known_mistake_gives_its_own_number_and_not_ours(name):
    wrong = MISTAKES[name](tensor("logp")).item()
    assert wrong == approx(MUTANTS[name]["loss"], abs=TOLERANCE, rel=0)
    assert ours()[0] != approx(wrong, rel=1e-3)


def test_every_mistake_of_the_file_is_tried():
    assert {*MISTAKES, "kl_of_sampled_probs_writeup"} == set(MUTANTS)


def test_clamping_the_ratio_first_loses_corrections_that_ours_keeps():
    leaf = tensor("logp").requires_grad_()
    clamped_before(leaf).backward()
    expected_BT = torch.tensor(MUTANTS["double_clamp_writeup"]["grad_logp"], dtype=torch.float64)
    torch.testing.assert_close(leaf.grad, expected_BT, atol=TOLERANCE, rtol=0.0)
    correct_BT = torch.tensor(GOLDEN["correct"]["grad_logp"], dtype=torch.float64)
    lost_BT = (expected_BT == 0.0) & (correct_BT != 0.0)
    assert lost_BT.any()
    assert torch.all(ours()[1][lost_BT] != 0.0)


def test_our_micro_batches_add_up_where_their_means_do_not():
    assert sum(ours(part)[0] for part in SPLIT) == approx(ours()[0], abs=1e-12)


def test_the_kl_of_sampled_probabilities_is_none_of_our_estimates():
    logprobs_BT = tensor("logp")
    wrong = (OLD_BT.exp() * (OLD_BT - logprobs_BT))[MASK_BT].sum().item()
    assert wrong == approx(MUTANTS["kl_of_sampled_probs_writeup"]["value"], abs=TOLERANCE, rel=0)
    for estimate in (k1, k2, k3):
        estimates = estimate(logprobs_BT - REF_BT)[MASK_BT]
        assert estimates.mean().item() != approx(wrong, rel=1e-3)
        assert estimates.sum().item() != approx(wrong, rel=1e-3)
