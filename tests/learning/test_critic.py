"""A critic's values and turns' rewards become advantages of tokens, and its loss is exact."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from forethought.core.trajectory import Tokens
from forethought.learning.batch import pad
from forethought.learning.credit.gae import at_turn_ends, value_loss
from forethought.learning.credit.settings import CriticSettings
from forethought.learning.critic import criticise
from forethought.learning.gradient import CriticTerm, GradientWork, accumulate
from forethought.learning.losses.catalogue import objective
from forethought.learning.losses.kl import reward_penalty
from forethought.learning.losses.ratios import stretches
from forethought.learning.losses.settings import LossSettings
from forethought.policy.local.crew import ForkedCrew, LocalCrew
from forethought.policy.local.replica import trained_parameters
from forethought.policy.local.value_head import add_value_head, value_head_of
from learning.rows import learner_of, random_rows
from tiny import local_model, network, same_weights, weights


def said(*ids):
    return Tokens(ids=ids, sampled=(True,) * len(ids), logprobs=(-0.5,) * len(ids))


TWO_TURNS = Tokens.join((Tokens.given((1, 2)), said(3, 4), Tokens.given((5,)), said(6, 7)))
ONE_TURN = Tokens.join((Tokens.given((1, 2)), said(3, 4, 5)))


def batch_of():
    """Two attempts: turns that earned 0.5 and then 1.0; a turn that earned -1.0."""
    first = [0.0, 0.0, 0.5, 0.5, 0.0, 1.0, 1.0]
    return pad([TWO_TURNS, ONE_TURN], [first, -1.0])


def test_a_reward_stands_at_the_last_token_of_its_turn():
    batch = batch_of()
    assert at_turn_ends(batch.advantages_BT, batch.turns_BT).tolist() == [
        [0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 1.0],
        [0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0],
    ]


def test_without_values_advantages_are_whitened_returns_to_go_over_the_round():
    batch = batch_of()
    zeros_BT = torch.zeros(batch.ids_BT.shape)
    parts = [batch.take([0]), batch.take([1])]
    values = [torch.zeros(part.ids_BT.shape) for part in parts]
    apart = criticise(parts, values, 1.0, 1.0)
    whole = criticise([batch], [zeros_BT], 1.0, 1.0)
    returns = [1.5, 1.5, 1.0, 1.0, -1.0, -1.0, -1.0]
    expected = torch.tensor(returns)
    expected = (expected - expected.mean()) / (expected.var() + 1e-8).sqrt()
    found = whole.batches[0]
    torch.testing.assert_close(found.advantages_BT[found.mask_BT], expected)
    assert found.returns_BT[found.mask_BT].tolist() == returns
    assert not found.advantages_BT[~found.mask_BT].any()
    joined = torch.cat([part.advantages_BT[part.mask_BT] for part in apart.batches])
    torch.testing.assert_close(joined, expected)
    assert whole.explained == apart.explained == 0.0


def test_what_tokens_pay_one_by_one_makes_the_worked_advantages_of_reinforce_plus_plus():
    case = json.loads((Path(__file__).parents[1] / "golden/08_reinforcepp_rloo.json").read_text())
    inputs, expected = case["inputs"], case["expected"]
    mask_BT = torch.tensor(inputs["response_mask"]).bool()
    old_BT, ref_BT = (torch.tensor(inputs[name]) for name in ("old_logp", "ref_logp"))
    rows = [
        Tokens.join((Tokens.given((1,)), Tokens(ids=(2,) * 6, sampled=row, logprobs=(-0.5,) * 6)))
        for row in map(tuple, mask_BT.tolist())
    ]
    # The reward comes with an attempt's last turn, as its others earn nothing.
    ends_BT = stretches(mask_BT) == stretches(mask_BT).amax(1, keepdim=True)
    earned_BT = torch.tensor(inputs["reward"])[:, None] * (ends_BT & mask_BT)
    batch = pad(rows, [[0.0, *row] for row in earned_BT.tolist()])
    lost_BT = reward_penalty(old_BT, ref_BT, mask_BT, case["config"]["kl_beta"])
    lost_BT = torch.nn.functional.pad(lost_BT, (1, 0))
    zeros_BT = torch.zeros(batch.ids_BT.shape)
    (found,) = criticise([batch], [zeros_BT], 1.0, 1.0, [lost_BT]).batches
    for stream_BT, key in (
        (found.returns_BT, "returns"),
        (found.advantages_BT, "adv_whiten_ddof1_eps1e8"),
    ):
        torch.testing.assert_close(stream_BT[:, 1:], torch.tensor(expected[key]), rtol=0, atol=1e-6)


def test_values_that_foresee_returns_explain_them_and_leave_no_advantage():
    batch = batch_of()
    values_BT = torch.zeros(batch.ids_BT.shape)
    values_BT[batch.mask_BT] = torch.tensor([1.5, 1.5, 1.0, 1.0, -1.0, -1.0, -1.0])
    found = criticise([batch], [values_BT], 1.0, 1.0)
    assert found.explained == pytest.approx(1.0)
    torch.testing.assert_close(found.batches[0].advantages_BT, torch.zeros(batch.ids_BT.shape))


@pytest.mark.parametrize("total", [-1.4, 0.7, -0.8])
def test_equal_returns_that_nothing_foresees_leave_exactly_no_advantage(total):
    rows = [said(1, *range(2, 2 + length)) for length in (3, 7, 5)]
    batch = pad(rows, [total] * 3)
    found = criticise([batch], [torch.zeros(batch.ids_BT.shape)], 1.0, 1.0)
    assert not found.batches[0].advantages_BT.any()


def test_a_value_that_is_not_finite_spoils_its_own_attempt_alone():
    batch = pad([TWO_TURNS, ONE_TURN, ONE_TURN], [1.0, -1.0, 0.5])
    values_BT = torch.zeros(batch.ids_BT.shape)
    values_BT[1, 4] = float("nan")  # its last token: what comes before looks ahead to it
    (found,) = criticise([batch], [values_BT], 1.0, 1.0).batches
    assert (~torch.isfinite(found.advantages_BT)).any(1).tolist() == [False, True, False]
    whole = criticise([batch.take([0, 2])], [values_BT[[0, 2]]], 1.0, 1.0).batches[0]
    torch.testing.assert_close(found.advantages_BT[[0, 2]], whole.advantages_BT)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("micro_tokens", [40, 10_000])
def test_a_critics_gradient_is_that_of_its_loss_over_the_whole_step(workers, micro_tokens):
    def fresh():
        model = network(spread=0.15)
        add_value_head(model)
        with torch.no_grad():
            value_head_of(model).weight.fill_(0.2)
        return model

    rows = random_rows(7, seed=2)
    batch = pad(rows, [0.0] * 7)
    drawn = torch.Generator().manual_seed(0)
    old_BT, returns_BT = (torch.randn(batch.ids_BT.shape, generator=drawn) for _ in range(2))
    batch = replace(batch, old_values_BT=old_BT, returns_BT=returns_BT)
    crew = ForkedCrew(fresh(), workers) if workers else LocalCrew(fresh())
    works = [
        GradientWork(
            batch=batch.take(share),
            denominators=batch.denominators(None),
            objective=objective(LossSettings()),
            temperature=1.0,
            micro_tokens=micro_tokens,
            logit_tokens=50,
            critic=CriticTerm(coefficient=0.7, clip=0.3),
        )
        for share in batch.deal(crew.size)
    ]
    try:
        shares = asyncio.run(crew.run(accumulate, works, lambda place, value: None))
        crew.collect_gradients()
        found = [each.grad.clone() for each in trained_parameters(crew.model)]
    finally:
        crew.close()
    model = fresh()
    hidden = model.model(batch.ids_BT).last_hidden_state
    values = value_head_of(model)(hidden)[..., 0]
    values_BT = torch.nn.functional.pad(values[:, :-1], (1, 0))
    loss = 0.7 * value_loss(values_BT, old_BT, returns_BT, batch.mask_BT, 0.3)
    loss.backward()
    assert sum(share.loss for share in shares) == pytest.approx(loss.item(), rel=1e-5)
    for mine, parameter in zip(found, trained_parameters(model), strict=True):
        expected = torch.zeros_like(mine) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "change", [{"trace": 0.5}, {"rate": 1e-4}, {"coefficient": 0.1}, {"clip": 1e-3}]
)
def test_each_setting_of_a_critic_decides_what_is_learnt(change):
    def after(**chosen):
        model = local_model(spread=0.15)
        add_value_head(model.network)
        settings = CriticSettings(**{"rate": 0.2} | chosen)
        crew = LocalCrew(model.network)
        learner = learner_of(model, crew, critic=settings)
        batch = pad([TWO_TURNS, ONE_TURN], [1.0, -1.0])

        async def two_rounds():
            for _ in range(2):
                values_BT = await learner.forecast(batch, range(2), "critic")
                found = criticise([batch], [values_BT], 1.0, settings.trace)
                for _ in range(2):
                    await learner.update(found.batches[0], objective(LossSettings()))

        asyncio.run(two_rounds())
        return weights(model.network)

    assert not same_weights(after(), after(**change))
