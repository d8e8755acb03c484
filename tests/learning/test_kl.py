import json
from pathlib import Path

import torch
from pytest import approx, mark, raises

from forethought.core.errors import RecipeError
from forethought.learning.losses.kl import k1, k2, k3, reference_penalty
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Streams

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/12_kl_estimators.json").read_text())
TOLERANCE = GOLDEN["tolerance"]


def test_kl_estimates_meet_the_worked_numbers():
    case = GOLDEN["token_batch"]
    mask_BT = torch.tensor(case["inputs"]["mask"]).bool()
    difference_BT = torch.tensor(case["inputs"]["logp"], dtype=torch.float64) - torch.tensor(
        case["inputs"]["ref_logp"], dtype=torch.float64
    )
    for name, estimate in {"k1": k1, "k2": k2, "k3": k3}.items():
        expected_BT = torch.tensor(case["per_token"][name], dtype=torch.float64)
        found = estimate(difference_BT)[mask_BT]
        torch.testing.assert_close(found, expected_BT[mask_BT], atol=TOLERANCE, rtol=0.0)
        assert found.mean().item() == approx(case["masked_mean"][name], abs=TOLERANCE)


@mark.parametrize("name", ["k1", "k2", "k3"])
def test_the_gradient_of_each_kl_estimate_in_a_loss_is_the_one_described(name):
    case = GOLDEN["categorical"]
    policy = torch.tensor(case["policy"], dtype=torch.float64)
    logits = policy.log().requires_grad_()
    difference = logits.log_softmax(0) - torch.tensor(case["ref"], dtype=torch.float64).log()
    estimate = {"k1": k1, "k2": k2, "k3": k3}[name]
    (policy * estimate(difference)).sum().backward()
    expected = torch.tensor(case["expected"][f"E_grad_{name}_in_loss"], dtype=torch.float64)
    torch.testing.assert_close(logits.grad, expected, atol=TOLERANCE, rtol=0.0)


def test_a_kl_penalty_without_a_reference_is_refused():
    old_BT = torch.zeros(1, 1)
    streams = Streams.uniform(old_BT == 0, advantage=1.0, old_logprobs_BT=old_BT)
    with raises(ValueError, match="needs ref_logprobs_BT"):
        reference_penalty(old_BT, streams, "k3")


def test_k1_is_refused_as_a_penalty_wherever_it_is_asked_for():
    old_BT = torch.zeros(1, 1)
    streams = Streams(
        mask_BT=old_BT == 0,
        advantages_BT=old_BT,
        old_logprobs_BT=old_BT,
        weights_BT=old_BT,
        ref_logprobs_BT=old_BT,
    )
    with raises(ValueError, match="k1 is no KL penalty"):
        reference_penalty(old_BT, streams, "k1")
    with raises(RecipeError, match="zero on average"):
        LossSettings.model_validate({"kl_coefficient": 0.1, "kl_estimator": "k1"})
