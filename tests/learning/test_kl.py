from dataclasses import replace

import torch
from pytest import approx, mark, raises

from forethought.core.errors import RecipeError
from forethought.learning.losses.kl import (
    OFF_POLICY,
    absolute,
    k1,
    k2,
    k3,
    k3_plus,
    reference_penalty,
    reward_penalty,
)
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Streams
from learning.loss_cases import ESTIMATORS, PRECISIONS, close, close_sum, read, solve, tensor_of

GOLDEN = read("12_kl_estimators")
TOLERANCE = GOLDEN["tolerance"]
ESTIMATES = {"k1": k1, "k2": k2, "k3": k3, "abs": absolute}
CATEGORICAL = GOLDEN["categorical"]
POLICY, REFERENCE = tensor_of(CATEGORICAL["policy"]), tensor_of(CATEGORICAL["ref"])


def streams_of(old_BT, reference_BT):
    streams = Streams.uniform(old_BT < 1, advantage=1.0, old_logprobs_BT=old_BT)
    return replace(streams, ref_logprobs_BT=reference_BT)


def expected_gradient(old, estimator):
    """Of the penalty in a loss, expected over one token drawn from `old`, in the logits."""
    logits = POLICY.log().requires_grad_()
    streams = streams_of(old.log()[None], REFERENCE.log()[None])
    penalty_BT = reference_penalty(logits.log_softmax(0)[None], streams, estimator)
    (old * penalty_BT[0]).sum().backward()
    return logits.grad


@mark.parametrize("dtype", PRECISIONS)
@mark.parametrize("name", ESTIMATES)
def test_kl_estimates_meet_the_worked_numbers(name, dtype):
    case = GOLDEN["token_batch"]
    mask_BT = torch.tensor(case["inputs"]["mask"]).bool()
    logprobs_BT, ref_BT = (tensor_of(case["inputs"][key], dtype) for key in ("logp", "ref_logp"))
    found = ESTIMATES[name](logprobs_BT - ref_BT)[mask_BT]
    expected = tensor_of(case["per_token"][name])[mask_BT]
    close(found, expected, dtype, TOLERANCE)
    size = expected.abs().mean().item()
    close_sum(found.mean(), case["masked_mean"][name], dtype, TOLERANCE, size)


@mark.parametrize("name", ["k1", "k2", "k3"])
def test_expectations_of_kl_estimates_are_the_worked_ones(name):
    outcomes = ESTIMATES[name](POLICY.log() - REFERENCE.log())
    per_outcome = tensor_of(CATEGORICAL["per_outcome"][name])
    torch.testing.assert_close(outcomes, per_outcome, atol=TOLERANCE, rtol=0.0)
    expected = CATEGORICAL["expected"][f"E_{name}"]
    assert (POLICY * outcomes).sum().item() == approx(expected, abs=TOLERANCE)
    unbiased = expected == approx(CATEGORICAL["KL_policy_ref"], abs=TOLERANCE)
    assert unbiased == (name != "k2")
    # Of no estimate is it the divergence the other way round.
    other = (REFERENCE * ESTIMATES["k1"](REFERENCE.log() - POLICY.log())).sum().item()
    assert other == approx(CATEGORICAL["KL_ref_policy"], abs=TOLERANCE)
    assert expected != approx(other, rel=1e-3)


@mark.parametrize("name", ["k1", "k2", "k3"])
def test_the_gradient_of_each_kl_estimate_in_a_loss_is_the_one_described(name):
    logits = POLICY.log().requires_grad_()
    (POLICY * ESTIMATES[name](logits.log_softmax(0) - REFERENCE.log())).sum().backward()
    expected = tensor_of(CATEGORICAL["expected"][f"E_grad_{name}_in_loss"])
    torch.testing.assert_close(logits.grad, expected, atol=TOLERANCE, rtol=0.0)


@mark.parametrize(
    ("estimator", "divergence"),
    [("k2", "reverse"), ("k3+", "reverse"), (OFF_POLICY, "reverse"), ("k3", "forward")],
)
def test_a_penalty_on_policy_has_the_gradient_of_its_divergence(estimator, divergence):
    expected = tensor_of(CATEGORICAL["expected"][f"grad_true_{divergence}_kl"])
    found = expected_gradient(POLICY, estimator)
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0.0)


def test_the_weighted_penalty_alone_keeps_its_gradient_with_tokens_of_another_policy():
    expected = tensor_of(CATEGORICAL["expected"]["grad_true_reverse_kl"])
    for old in (REFERENCE, tensor_of([0.2, 0.2, 0.6])):
        found = expected_gradient(old, OFF_POLICY)
        torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0.0)
        for other in ("k2", "k3", "k3+"):
            assert not torch.allclose(expected_gradient(old, other), expected, atol=1e-3)


def test_the_absolute_difference_has_twice_the_gradient_of_the_total_variation():
    logits = POLICY.log().requires_grad_()
    (logits.softmax(0) - REFERENCE).abs().sum().backward()  # twice the total variation
    torch.testing.assert_close(expected_gradient(POLICY, "abs"), logits.grad)


def test_k3_plus_is_the_value_of_one_with_the_gradient_of_another():
    found = tensor_of([-0.7, 0.0, 1.3]).requires_grad_()
    estimates = k3_plus(found)
    estimates.sum().backward()
    assert torch.equal(estimates.detach(), k3(found.detach()))
    torch.testing.assert_close(found.grad, found.detach())  # the slope of d²/2


@mark.parametrize("estimator", ESTIMATORS)
def test_a_penalty_is_zero_where_policy_and_reference_agree(estimator):
    logprobs_BT = tensor_of([[-1.0, -0.5]])
    streams = streams_of(tensor_of([[-1.2, -0.1]]), logprobs_BT)
    assert reference_penalty(logprobs_BT, streams, estimator).tolist() == [[0.0, 0.0]]


@mark.parametrize("garbage", [float("nan"), float("inf"), -7.0])
def test_a_penalty_in_the_reward_is_the_worked_one_and_falls_on_policy_tokens_only(garbage):
    case = read("08_reinforcepp_rloo")
    inputs, tolerance = case["inputs"], case["tolerance"]
    mask_BT = torch.tensor(inputs["response_mask"]).bool()
    # All else that a token is rewarded with is the attempt's reward, at its last policy token.
    expected_BT = tensor_of(case["expected"]["token_reward"])
    for row, reward in enumerate(inputs["reward"]):
        expected_BT[row, int(mask_BT[row].nonzero()[-1])] -= reward
    old_BT = torch.where(mask_BT, tensor_of(inputs["old_logp"]), garbage)
    found_BT = reward_penalty(
        old_BT.requires_grad_(), tensor_of(inputs["ref_logp"]), mask_BT, case["config"]["kl_beta"]
    )
    torch.testing.assert_close(found_BT, expected_BT, atol=tolerance, rtol=0.0)
    assert not found_BT.requires_grad


def test_a_penalty_in_the_reward_is_the_reverse_kl_through_the_policy_gradient():
    """E[-reward ∇log π] of k1 as a reward, where k1 in a loss would give nothing."""
    logits = POLICY.log().requires_grad_()
    everywhere = torch.ones(1, 3, dtype=torch.bool)
    reward_BT = reward_penalty(POLICY.log()[None], REFERENCE.log()[None], everywhere, 1.0)
    (POLICY * -reward_BT[0] * logits.log_softmax(0)).sum().backward()
    expected = tensor_of(CATEGORICAL["expected"]["grad_true_reverse_kl"])
    torch.testing.assert_close(logits.grad, expected, atol=TOLERANCE, rtol=0.0)


@mark.parametrize("estimator", ESTIMATORS)
def test_the_kl_that_is_told_is_k3_whichever_estimate_is_the_penalty(estimator):
    case = GOLDEN["token_batch"]
    mask_BT = torch.tensor(case["inputs"]["mask"]).bool()
    logprobs_BT, ref_BT = (tensor_of(case["inputs"][key]) for key in ("logp", "ref_logp"))
    streams = Streams.uniform(mask_BT, advantage=1.0, old_logprobs_BT=logprobs_BT - 0.1)
    streams = replace(streams, ref_logprobs_BT=ref_BT)
    settings = LossSettings(kl_coefficient=0.1, kl_estimator=estimator)
    means = solve(settings, logprobs_BT, streams)[2].read()
    assert means["reference_kl"] == approx(case["masked_mean"]["k3"], abs=TOLERANCE)
    paid = reference_penalty(logprobs_BT, streams, estimator)[mask_BT].mean().item()
    if estimator == "k3":
        assert "reference_penalty" not in means
    else:
        assert means["reference_penalty"] == approx(paid, abs=TOLERANCE)


def test_a_kl_penalty_without_a_reference_is_refused():
    old_BT = torch.zeros(1, 1)
    streams = Streams.uniform(old_BT == 0, advantage=1.0, old_logprobs_BT=old_BT)
    with raises(ValueError, match="needs ref_logprobs_BT"):
        reference_penalty(old_BT, streams, "k3")


def test_k1_is_refused_as_a_penalty_wherever_it_is_asked_for():
    old_BT = torch.zeros(1, 1)
    with raises(ValueError, match="k1 is no KL penalty"):
        reference_penalty(old_BT, streams_of(old_BT, old_BT), "k1")
    with raises(RecipeError, match="zero on average"):
        LossSettings.model_validate({"kl_coefficient": 0.1, "kl_estimator": "k1"})
