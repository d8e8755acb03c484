"""Values, returns and whitening over the policy's own tokens."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forethought.learning.credit.gae import at_turn_ends, gae, returns_to_go, value_loss, whiten


def golden(name):
    return json.loads((Path(__file__).parents[2] / f"golden/{name}.json").read_text())


PPO, PLUS = golden("09_turn_level")["mt_ppo"], golden("08_reinforcepp_rloo")
PRECISIONS = [torch.float64, torch.float32]
VALUES, EARNED = PPO["values"], PPO["token_reward_eq9"]


def table(rows, dtype=torch.float64):
    return torch.tensor(rows, dtype=dtype)


def same(found, expected):
    """Within the file's tolerance; in single precision within 1e-6 of the largest expected value.

    That is the precision in which a critic's returns and advantages are computed.
    """
    expected = table(expected, found.dtype)
    limit = 1e-10 if found.dtype is torch.float64 else 1e-6 * expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=0, atol=limit)


MASK = table(PPO["response_mask"]).bool()


def rewards_at_ends(rewards_BK, turns_BT):
    """The reward of turn k at the end of turn k."""
    return at_turn_ends(rewards_BK.gather(1, turns_BT.clamp(min=0)), turns_BT)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", PPO["cases"])
def test_advantages_returns_and_whitening_meet_the_worked_numbers(name, dtype):
    discount, trace = (float(each) for each in name.removeprefix("gamma").split("_lam"))
    case = PPO["cases"][name]
    earned, values = table(EARNED, dtype), table(VALUES, dtype)
    advantages, returns = gae(earned, values, MASK, discount, trace)
    assert advantages.dtype is returns.dtype is dtype
    same(advantages, case["advantages_raw"])
    same(returns, case["returns"])
    same(whiten(advantages, MASK), case["whitened"])


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_the_loss_of_a_critic_meets_the_worked_number_and_pulls_values_to_returns(dtype):
    case = PPO["value_loss"]
    old, returns = table(VALUES, dtype), table(case["returns"], dtype)
    values = table(case["vpred"], dtype).requires_grad_()
    loss = value_loss(values, old, returns, MASK, case["clip"])
    same(loss.detach(), case["loss"])
    loss.backward()
    assert (values.grad[~MASK] == 0).all()
    assert (values.grad * (values - returns) >= 0).all()
    none = value_loss(values, old, returns, MASK & False, 0.5)
    assert none.item() == 0.0
    assert none.requires_grad


def test_a_reward_on_a_token_that_was_not_sampled_is_lost():
    case = golden("09_turn_level")["mt_ppo"]["lost_reward_case"]
    advantages, _ = gae(table(case["token_reward"]), table(VALUES), MASK, 1.0, 1.0)
    same(advantages, case["advantages_raw"])


def test_rewards_of_turns_come_at_the_last_token_that_was_sampled_in_each():
    turns = torch.tensor([[0, 0, -1, 1, -1, 2, 2, -1], [-1, 0, 0, 0, -1, -1, -1, 1]])
    rewards = table([[0.3, -0.1, 1.0], [0.5, 0.25, 9.0]])
    found = rewards_at_ends(rewards, turns)
    same(found, [EARNED[0], [0, 0, 0, 0.5, 0, 0, 0, 0.25]])
    assert (found[turns < 0] == 0).all()


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_returns_over_policy_tokens_meet_the_worked_numbers(dtype):
    gap = PLUS["expected"]["discounted_return_with_observation_gap"]
    mask = table([gap["mask"]]).bool()
    same(returns_to_go(table([gap["reward"]], dtype), mask, gap["gamma"]), [gap["returns"]])
    inputs, expected = PLUS["inputs"], PLUS["expected"]
    mask = table(inputs["response_mask"]).bool()
    drift = table(inputs["old_logp"], dtype) - table(inputs["ref_logp"], dtype)
    penalty = torch.where(mask, -PLUS["config"]["kl_beta"] * drift, 0.0)
    turns = torch.where(mask, 0, -1)
    turns = torch.where(turns >= 0, (mask.cumsum(1) == mask.sum(1, keepdim=True)).long(), -1)
    earned = torch.stack([torch.zeros(8, dtype=dtype), table(inputs["reward"], dtype)], 1)
    ends = rewards_at_ends(earned, turns)
    rewards = penalty + ends
    same(rewards, expected["token_reward"])
    returns = returns_to_go(rewards, mask, PLUS["config"]["gamma"])
    same(returns, expected["returns"])
    same(whiten(returns, mask), expected["adv_whiten_ddof1_eps1e8"])
    same(whiten(returns, mask, ddof=0), expected["adv_whiten_ddof0"])


@pytest.mark.parametrize("value", [-1.4, 0.7, -0.8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_values_are_whitened_to_exactly_nothing(value, dtype):
    values = torch.full((3, 7), value, dtype=dtype)
    for count in (7, 10, 21):
        mask = (torch.arange(21) < count).view(3, 7)
        assert not whiten(values, mask).any()
        assert whiten(values, mask).dtype is dtype


def test_too_few_tokens_are_not_whitened():
    one = torch.tensor([[True, False]])
    assert whiten(torch.tensor([[3.0, 1.0]]), one).tolist() == [[0.0, 0.0]]
    assert whiten(torch.tensor([[3.0, 1.0]]), one & False).tolist() == [[0.0, 0.0]]
    assert whiten(torch.tensor([[3.0, 3.0]]), one | True, ddof=0).tolist() == [[0.0, 0.0]]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**31), st.floats(0.1, 1.0))
def test_without_values_and_with_the_full_trace_the_advantage_is_the_return(seed, discount):
    draw = torch.Generator().manual_seed(seed)
    rewards = torch.randn(3, 7, dtype=torch.float64, generator=draw)
    mask = torch.rand(3, 7, generator=draw) < 0.6
    advantages, returns = gae(rewards, torch.zeros_like(rewards), mask, discount, 1.0)
    torch.testing.assert_close(advantages, returns_to_go(rewards, mask, discount))
    torch.testing.assert_close(returns, advantages)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**31), st.sampled_from([float("nan"), float("inf"), 7.0]))
def test_what_stands_at_tokens_that_were_not_sampled_changes_nothing(seed, garbage):
    draw = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, 3, 7, dtype=torch.float64, generator=draw)
    mask = torch.rand(3, 7, generator=draw) < 0.6
    spoilt = [each.masked_fill(~mask, garbage) for each in (rewards, values)]
    for found, expected in zip(
        gae(*spoilt, mask, 0.9, 0.8), gae(rewards, values, mask, 0.9, 0.8), strict=True
    ):
        assert torch.equal(found, expected)
    assert torch.equal(whiten(spoilt[0], mask), whiten(rewards, mask))
    losses = [value_loss(v, v * 0.5, r, mask, 0.2) for r, v in (spoilt, (rewards, values))]
    assert torch.equal(*losses)
