import json
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx, mark

from forethought.learning.advantage import AdvantageSettings, group_advantages
from forethought.learning.losses.catalogue import LOSSES, objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.losses.sft import sft
from forethought.learning.streams import Denominators, Streams

FOLDER = Path(__file__).parents[1] / "golden"
TOKEN_CASES = {
    "02a_grpo_t": "grpo_t",
    "02b_grpo_t_kl": "grpo_t",
    "02c_grpo_original_seq_mean": "grpo_t",
    "03_grpo_tcr": "grpo_tcr",
}
SEQUENCE = "04_grpo_scr_gspo"
PRECISIONS = [torch.float64, torch.float32]
NAMES = sorted(LOSSES)
quick = settings(deadline=None, max_examples=40)


def read(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


def recipe_of(case, name):
    config = case["config"]
    return LossSettings(
        name=name,
        clip_low=config["clip_low"],
        clip_high=config["clip_high"],
        dual_clip=config.get("dual_clip_c") or 0.0,
        kl_coefficient=config.get("kl_beta") or 0.0,
        kl_estimator=config.get("kl_estimator") or "k3",
        aggregation=config.get("loss_agg"),
    )


def streams_of(inputs, advantages, dtype):
    mask_BT = torch.tensor(inputs["response_mask"]).bool()
    old_BT = torch.tensor(inputs["old_logp"], dtype=dtype)
    reference = inputs.get("ref_logp")
    return Streams(
        mask_BT=mask_BT,
        advantages_BT=torch.tensor(advantages, dtype=dtype)[:, None].expand_as(old_BT),
        old_logprobs_BT=old_BT,
        weights_BT=torch.ones_like(old_BT),
        ref_logprobs_BT=None if reference is None else torch.tensor(reference, dtype=dtype),
    )


def solve(recipe, logprobs_BT, streams, denominators=None):
    """The loss, its gradient and its tally."""
    leaf = logprobs_BT.detach().clone().requires_grad_()
    result = objective(recipe)(leaf, streams, denominators or Denominators.count([streams.mask_BT]))
    result.loss.backward()
    return result.loss.item(), leaf.grad, result.tally


def close(found, expected, dtype, tolerance, size=None):
    """Within the file's tolerance; in single precision within 1e-6 of the size of what is added.

    That is the size of the largest expected value, unless terms of another `size` cancel.
    """
    expected = torch.as_tensor(expected, dtype=dtype)
    size = expected.abs().max().item() if size is None else size
    limit = tolerance if dtype is torch.float64 else 1e-6 * size
    torch.testing.assert_close(torch.as_tensor(found, dtype=dtype), expected, atol=limit, rtol=0.0)


def rows(streams, chosen):
    def pick(stream_BT):
        return None if stream_BT is None else stream_BT[chosen]

    return Streams(
        mask_BT=streams.mask_BT[chosen],
        advantages_BT=streams.advantages_BT[chosen],
        old_logprobs_BT=streams.old_logprobs_BT[chosen],
        weights_BT=streams.weights_BT[chosen],
        ref_logprobs_BT=pick(streams.ref_logprobs_BT),
    )


@st.composite
def batches(draw):
    B, T = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def normal(scale):
        return scale * torch.randn(B, T, generator=generator, dtype=torch.float64)

    old_BT = -normal(1.0).abs()
    streams = Streams(
        mask_BT=torch.rand(B, T, generator=generator) < draw(st.floats(0, 1)),
        advantages_BT=normal(1.0),
        old_logprobs_BT=old_BT,
        weights_BT=normal(1.0).abs(),
        ref_logprobs_BT=old_BT + normal(0.2),
    )
    return old_BT + normal(0.3), streams


@st.composite
def recipes(draw):
    return LossSettings(
        name=draw(st.sampled_from(NAMES)), kl_coefficient=draw(st.sampled_from((0.0, 0.1)))
    )


@mark.parametrize("dtype", PRECISIONS)
@mark.parametrize(("file", "name"), TOKEN_CASES.items())
def test_token_losses_meet_the_worked_numbers(file, name, dtype):
    case = read(file)
    inputs, expected, tolerance = case["inputs"], case["expected"], case["tolerance"]
    rewards = case.get("reward_components", {}).get("r_total_used", inputs["reward"])
    advantages = group_advantages(rewards, inputs["group"], AdvantageSettings())
    logprobs_BT = torch.tensor(inputs["logp"], dtype=dtype)
    streams = streams_of(inputs, advantages, dtype)
    loss, gradient_BT, tally = solve(recipe_of(case, name), logprobs_BT, streams)
    means = tally.read()
    assert advantages == approx(expected["advantage"], abs=tolerance, rel=0)
    close(loss, expected["loss"], dtype, tolerance)
    close(gradient_BT, expected["grad_logp"], dtype, tolerance)
    close(means["clip_low"] + means["clip_high"], expected["clip_frac"], dtype, tolerance)
    close(means["dual_clip"], expected["dual_clip_frac"], dtype, tolerance)
    close(means["approx_kl_k1"], expected["approx_kl_k1"], dtype, tolerance, size=1.0)
    close(means.get("reference_kl", 0.0), expected["kl_loss"] or 0.0, dtype, tolerance)
    kept = torch.tensor(expected["ratio"], dtype=torch.float64)[streams.mask_BT]
    close(means["approx_kl_k3"], (kept - 1 - kept.log()).mean(), dtype, tolerance, size=1.0)
    assert means["ratio_max"] == approx(kept.max().item(), rel=1e-6)


@mark.parametrize("dtype", PRECISIONS)
@mark.parametrize("which", read(SEQUENCE)["cases"])
def test_the_sequence_loss_meets_the_worked_numbers(which, dtype):
    case = read(SEQUENCE)
    expected, tolerance = case["cases"][which], case["tolerance"]
    logprobs_BT = torch.tensor(expected["logp"], dtype=dtype)
    streams = streams_of(case["inputs"], case["advantage"], dtype)
    recipe = recipe_of(case, "grpo_scr")
    loss, gradient_BT, _ = solve(recipe, logprobs_BT, streams)
    close(loss, expected["loss"], dtype, tolerance, size=1.0)
    close(gradient_BT, expected["grad_logp"], dtype, tolerance)
    for row, ratio in enumerate(expected["seq_ratio"]):
        alone, _, tally = solve(recipe, logprobs_BT[[row]], rows(streams, [row]))
        means = tally.read()
        close(alone, expected["per_seq_loss"][row], dtype, tolerance)
        close(means["ratio_max"], ratio, dtype, tolerance)
        assert means["clip_low"] + means["clip_high"] == float(expected["seq_clipped"][row])


@quick
@given(recipes(), batches(), st.data())
def test_micro_batches_in_any_split_and_order_add_up_to_the_batch(recipe, batch, data):
    logprobs_BT, streams = batch
    order = data.draw(st.permutations(range(len(logprobs_BT))))
    cut = data.draw(st.integers(0, len(order)))
    shares = [share for share in (order[:cut], order[cut:]) if share]
    denominators = Denominators.count([streams.mask_BT[share] for share in shares])
    loss, gradient_BT, tally = solve(recipe, logprobs_BT, streams)
    parts = [
        solve(recipe, logprobs_BT[share], rows(streams, share), denominators) for share in shares
    ]
    assert sum(part for part, _, _ in parts) == approx(loss, abs=1e-12)
    for share, (_, part_BT, _) in zip(shares, parts, strict=True):
        torch.testing.assert_close(part_BT, gradient_BT[share])
    assert reduce(add, (part for _, _, part in parts)).read() == approx(tally.read())


@quick
@given(recipes(), batches(), st.integers(1, 4), st.sampled_from(("nan", "inf", "-inf")))
def test_padding_and_garbage_change_nothing(recipe, batch, more, garbage):
    logprobs_BT, streams = batch
    wide_mask_BT = torch.nn.functional.pad(streams.mask_BT, (0, more), value=False)

    def spoil(stream_BT):
        wide_BT = torch.nn.functional.pad(stream_BT, (0, more))
        return torch.where(wide_mask_BT, wide_BT, float(garbage))

    spoilt = Streams(
        mask_BT=wide_mask_BT,
        advantages_BT=spoil(streams.advantages_BT),
        old_logprobs_BT=spoil(streams.old_logprobs_BT),
        weights_BT=spoil(streams.weights_BT),
        ref_logprobs_BT=spoil(streams.ref_logprobs_BT),
    )
    loss, gradient_BT, tally = solve(recipe, logprobs_BT, streams)
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
    divisor = lengths_B1 * sequences if name == "grpo_scr" else max(int(mask_BT.sum()), 1)
    expected_BT = streams.kept(-streams.advantages_BT * streams.weights_BT / divisor)
    torch.testing.assert_close(gradient_BT, expected_BT)
    means = tally.read()
    assert means["ratio_max"] == float(mask_BT.any())
    assert means["clip_low"] == means["clip_high"] == means["dual_clip"] == 0.0


@mark.parametrize("dtype", PRECISIONS)
@mark.parametrize("name", NAMES)
@mark.parametrize("logprob", [1e4, -1e4])
def test_an_extreme_ratio_stays_finite(name, logprob, dtype):
    mask_BT = torch.ones(2, 3, dtype=torch.bool)
    old_BT = torch.zeros(2, 3, dtype=dtype)
    streams = replace(
        Streams.uniform(mask_BT, advantage=-1.0, old_logprobs_BT=old_BT), ref_logprobs_BT=old_BT
    )
    recipe = LossSettings(name=name, kl_coefficient=0.1)
    loss, gradient_BT, tally = solve(recipe, old_BT + logprob, streams)
    found = torch.tensor([loss, *tally.read().values()])
    assert torch.isfinite(found).all()
    assert torch.isfinite(gradient_BT).all()


def test_a_sequences_ratio_may_carry_different_advantages_at_its_tokens():
    old_BT = torch.full((1, 2), -1.0, dtype=torch.float64)
    streams = Streams(
        mask_BT=torch.ones(1, 2, dtype=torch.bool),
        advantages_BT=torch.tensor([[2.0, -1.0]], dtype=torch.float64),
        old_logprobs_BT=old_BT,
        weights_BT=torch.ones_like(old_BT),
    )
    _, gradient_BT, _ = solve(LossSettings(name="grpo_scr"), old_BT, streams)
    torch.testing.assert_close(gradient_BT, torch.tensor([[-1.0, 0.5]], dtype=torch.float64))


def test_imitation_is_the_weighted_mean_of_what_the_author_chose():
    logprobs_BT = torch.tensor([[-1.0, -2.0, float("nan")], [-4.0, -8.0, -16.0]])
    old_BT = torch.full_like(logprobs_BT, float("nan"))
    streams = Streams(
        mask_BT=torch.tensor([[True, True, False], [False, True, False]]),
        advantages_BT=old_BT,
        old_logprobs_BT=old_BT,
        weights_BT=torch.tensor([[1.0, 0.5, 1.0], [9.0, 0.0, 1.0]]),
    )
    leaf = logprobs_BT.clone().requires_grad_()
    result = sft(leaf, streams, Denominators(tokens=6.0, sequences=2.0))
    result.loss.backward()
    assert result.loss.item() == approx((1.0 + 2.0 * 0.5) / 6.0)
    assert leaf.grad is not None
    expected_BT = torch.tensor([[-1 / 6, -0.5 / 6, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(leaf.grad, expected_BT)
    assert result.tally.read() == {"nll": approx(11 / 3)}
