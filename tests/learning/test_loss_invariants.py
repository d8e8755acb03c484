"""What holds for every loss of the catalogue, whatever its equation."""

import math
from dataclasses import replace
from functools import reduce
from operator import add

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx, mark

from forethought.core.trajectory import Tokens
from forethought.learning.batch import pad
from forethought.learning.losses.catalogue import objective
from forethought.learning.losses.settings import OWN_AGGREGATIONS, LossSettings
from forethought.learning.streams import Denominators, Streams
from learning.loss_cases import (
    BUDGET,
    ESTIMATORS,
    NAMES,
    PRECISIONS,
    batches,
    each_stream,
    recipes,
    rows,
    solve,
)

quick = settings(deadline=None, max_examples=100)


@quick
@given(recipes(), batches(), st.data())
def test_micro_batches_in_any_split_and_order_add_up_to_the_batch(recipe, batch, data):
    logprobs_BT, streams = batch
    order = data.draw(st.permutations(range(len(logprobs_BT))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(order)), max_size=3)))
    ends = zip([0, *cuts], [*cuts, len(order)], strict=True)
    shares = [order[start:stop] for start, stop in ends if start < stop]
    denominators = Denominators.count([streams.mask_BT[share] for share in shares], budget=BUDGET)
    loss, gradient_BT, tally = solve(recipe, logprobs_BT, streams)
    parts = [
        solve(recipe, logprobs_BT[share], rows(streams, share), denominators) for share in shares
    ]
    assert sum(part for part, _, _ in parts) == approx(loss, abs=1e-12)
    for share, (_, part_BT, _) in zip(shares, parts, strict=True):
        torch.testing.assert_close(part_BT, gradient_BT[share])
    assert reduce(add, (part for _, _, part in parts)).read() == approx(tally.read())


@quick
@given(recipes(), batches(), st.integers(1, 4), st.sampled_from(("nan", "inf", "-inf", "1")))
def test_padding_and_garbage_change_nothing(recipe, batch, more, garbage):
    logprobs_BT, streams = batch
    wide_mask_BT = torch.nn.functional.pad(streams.mask_BT, (0, more), value=False)

    def spoil(stream_BT):
        wide_BT = torch.nn.functional.pad(stream_BT, (0, more))
        if stream_BT.dtype is torch.bool:
            return wide_BT
        filler = float(garbage) if stream_BT.is_floating_point() else -1
        return torch.where(wide_mask_BT, wide_BT, filler)

    loss, gradient_BT, tally = solve(recipe, logprobs_BT, streams)
    spoilt = each_stream(streams, spoil)
    again, wide_gradient_BT, wide_tally = solve(recipe, spoil(logprobs_BT), spoilt)
    kept_BT = torch.nn.functional.pad(gradient_BT, (0, more))
    assert again == approx(loss, abs=1e-12)
    assert wide_tally.read() == approx(tally.read(), abs=1e-12)
    torch.testing.assert_close(wide_gradient_BT, kept_BT)


@quick
@given(st.sampled_from(NAMES), batches())
def test_at_the_policy_that_sampled_every_ratio_is_1_and_the_gradient_the_advantage(name, batch):
    _, streams = batch
    mask_BT = streams.mask_BT
    _, gradient_BT, tally = solve(LossSettings(name=name), streams.old_logprobs_BT, streams)
    lengths_B1 = mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    sequences = max(int(mask_BT.any(dim=1).sum()), 1)
    divisor = {
        "token-mean": max(int(mask_BT.sum()), 1),
        "seq-mean-token-mean": lengths_B1 * sequences,
        "seq-mean-token-sum": sequences,
        "seq-mean-token-sum-norm": sequences * BUDGET,
    }[OWN_AGGREGATIONS[name]]
    expected_BT = streams.kept(-streams.advantages_BT * streams.weights_BT / divisor)
    torch.testing.assert_close(gradient_BT, expected_BT)
    means = tally.read()
    assert {means[key] for key in ("clip_low", "clip_high", "dual_clip") if key in means} <= {0.0}
    assert means.get("ratio_max") == (1.0 if mask_BT.any() else None)


@quick
@given(st.sampled_from(NAMES), batches(), st.sampled_from((1.0, -1.0)))
def test_the_gradient_is_that_of_finite_differences(name, batch, sign):
    logprobs_BT, streams = batch
    # A weight that is constant in the loss is not in its differences.
    if name in ("cispo", "reinforce") or not streams.mask_BT.any():
        return
    streams = replace(streams, advantages_BT=torch.full_like(logprobs_BT, sign))
    if name in ("grpo_scr", "grpo_turn", "gmpo"):  # a token's own gradient is taken of a mean
        streams = replace(streams, weights_BT=torch.ones_like(logprobs_BT))
    recipe = LossSettings(name=name)
    _, gradient_BT, _ = solve(recipe, logprobs_BT, streams)
    step = 1e-6
    row, place = streams.mask_BT.nonzero()[0].tolist()
    moved = []
    for change in (step, -step):
        there_BT = logprobs_BT.clone()
        there_BT[row, place] += change
        moved.append(solve(recipe, there_BT, streams)[0])
    slope = (moved[0] - moved[1]) / (2 * step)
    assert slope == approx(gradient_BT[row, place].item(), abs=1e-6)


@mark.parametrize("dtype", PRECISIONS)
@mark.parametrize("name", NAMES)
@mark.parametrize("estimator", ESTIMATORS)
@mark.parametrize("logprob", [1e4, -1e4])
def test_an_extreme_ratio_stays_finite(name, logprob, estimator, dtype):
    mask_BT = torch.ones(2, 3, dtype=torch.bool)
    old_BT = torch.zeros(2, 3, dtype=dtype)
    streams = replace(
        Streams.uniform(mask_BT, advantage=-1.0, old_logprobs_BT=old_BT), ref_logprobs_BT=old_BT
    )
    recipe = LossSettings(name=name, kl_coefficient=0.1, kl_estimator=estimator)
    loss, gradient_BT, tally = solve(recipe, old_BT + logprob, streams)
    found = torch.tensor([loss, *tally.read().values()])
    assert torch.isfinite(found).all()
    assert torch.isfinite(gradient_BT).all()


@mark.parametrize("name", NAMES)
def test_a_step_without_a_token_is_a_zero_with_a_gradient_and_has_no_figures(name):
    old_BT = torch.full((2, 3), float("nan"))
    streams = replace(
        Streams.uniform(old_BT == 0, advantage=1.0, old_logprobs_BT=old_BT), ref_logprobs_BT=old_BT
    )
    recipe = LossSettings(name=name, kl_coefficient=0.1)
    loss, gradient_BT, tally = solve(recipe, old_BT, streams)
    assert loss == 0.0
    assert torch.equal(gradient_BT, torch.zeros(2, 3))
    assert tally.read() == {}


@mark.parametrize("name", NAMES)
@mark.parametrize("spoilt", ["logprobs_BT", "old_logprobs_BT", "advantages_BT", "weights_BT"])
def test_a_number_that_is_none_at_a_policy_token_is_not_hidden(name, spoilt):
    old_BT = torch.full((2, 3), -1.0)
    bad_BT = old_BT.index_put((torch.tensor(1), torch.tensor(2)), torch.tensor(float("nan")))
    streams = Streams.uniform(old_BT < 0, advantage=1.0, old_logprobs_BT=old_BT)
    if spoilt != "logprobs_BT":
        streams = replace(streams, **{spoilt: bad_BT})
    loss, _, _ = solve(
        LossSettings(name=name), bad_BT if spoilt == "logprobs_BT" else old_BT, streams
    )
    assert math.isnan(loss)


@mark.parametrize("name", NAMES)
@mark.parametrize("filler", [0.0, 1.0, float("-inf"), float("nan")])
def test_what_fills_a_masked_place_of_the_old_logprobs_is_the_same_to_every_loss(name, filler):
    mask_BT = torch.tensor([[True, False]])
    streams = Streams(
        mask_BT=mask_BT,
        advantages_BT=torch.tensor([[0.5, 0.0]]),
        old_logprobs_BT=torch.tensor([[-0.7, filler]]),
        weights_BT=torch.ones(1, 2),
    )
    denominators = Denominators.count([mask_BT], budget=1.0)
    loss, gradient_BT, _ = solve(
        LossSettings(name=name), torch.tensor([[-0.7, 0.0]]), streams, denominators
    )
    # At the policy that sampled the slope is the advantage, whatever the value is.
    assert gradient_BT.tolist() == [[approx(-0.5), 0.0]]
    value = {"cispo": 0.35, "reinforce": 0.35, "sapo": -1.0}.get(name, -0.5)
    assert loss == approx(value)


@mark.parametrize("name", NAMES)
def test_the_mean_over_tokens_or_sequences_is_the_same_in_one_batch_and_in_parts(name):
    """Two tokens of loss 1 and six of loss 3: 2.5 a token and 2 a sequence, however divided."""
    old_BT = torch.full((2, 6), -1.0, dtype=torch.float64)
    streams = Streams(
        mask_BT=torch.arange(6).expand(2, 6) < torch.tensor([[2], [6]]),
        advantages_BT=torch.tensor([[-1.0], [-3.0]], dtype=torch.float64).expand(2, 6),
        old_logprobs_BT=old_BT,
        weights_BT=torch.ones_like(old_BT),
    )
    of_one = {"cispo": 1.0, "reinforce": 1.0, "sapo": 4 / 1.05 / 2}.get(name, 1.0)
    sign = -1.0 if name in ("cispo", "reinforce") else 1.0
    means = {
        "token-mean": 2.5,
        "seq-mean-token-mean": 2.0,
        "seq-mean-token-sum": 10.0,
        "seq-mean-token-sum-norm": 10.0 / BUDGET,
    }
    expected = means[OWN_AGGREGATIONS[name]] * of_one * sign
    denominators = Denominators.count([streams.mask_BT], budget=BUDGET)
    recipe = LossSettings(name=name)
    loss, gradient_BT, _ = solve(recipe, old_BT, streams)
    parts = [solve(recipe, old_BT[[n]], rows(streams, [n]), denominators) for n in (0, 1)]
    assert loss == approx(expected)
    assert parts[0][0] + parts[1][0] == approx(expected)
    torch.testing.assert_close(torch.cat([parts[0][1], parts[1][1]]), gradient_BT)


MARKED = Tokens(
    ids=(1, 2, 3, 4, 5, 6, 7),
    sampled=(False, False, True, True, False, True, False),
    logprobs=(0.0, 0.0, -2.0, -2.5, 0.0, -2.1, 0.0),
)


@mark.parametrize("name", NAMES)
def test_only_predictions_of_tokens_that_the_policy_wrote_have_a_gradient(name):
    """Logits at place n predict the token at n + 1; only those of written tokens matter."""
    batch = pad([MARKED], [-1.0])
    generator = torch.Generator().manual_seed(5)
    logits_BTV = torch.randn(1, len(MARKED), 8, generator=generator, dtype=torch.float64)

    def logprobs_of(logits_BTV):
        chosen = logits_BTV[:, :-1].log_softmax(-1).gather(2, batch.ids_BT[:, 1:, None])[..., 0]
        return torch.nn.functional.pad(chosen, (1, 0))

    streams = Streams(
        mask_BT=batch.mask_BT,
        advantages_BT=batch.advantages_BT,
        old_logprobs_BT=logprobs_of(logits_BTV),
        weights_BT=torch.ones_like(batch.advantages_BT),
    )
    denominators = Denominators.count([batch.mask_BT], budget=BUDGET)
    loss_of = objective(LossSettings(name=name))

    def loss_at(logits_BTV):
        return loss_of(logprobs_of(logits_BTV), streams, denominators).loss

    leaf = logits_BTV.clone().requires_grad_()
    loss = loss_at(leaf)
    loss.backward()
    written_T1 = torch.tensor([*MARKED.sampled[1:], False])[:, None]
    assert torch.equal(leaf.grad[0].abs().sum(-1, keepdim=True) > 0, written_T1)
    other_BTV = logits_BTV + 3.0 * torch.eye(8, dtype=torch.float64)[0]
    assert torch.equal(loss_at(torch.where(written_T1, logits_BTV, other_BTV)), loss)
    assert not torch.equal(loss_at(torch.where(written_T1, other_BTV, logits_BTV)), loss)
