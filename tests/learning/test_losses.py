import json
import pickle
from functools import reduce
from operator import add
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pytest import approx, mark, raises

from forethought.core.errors import RecipeError
from forethought.learning.advantage import AdvantageSettings, group_advantages
from forethought.learning.losses.catalogue import LOSSES, objective
from forethought.learning.losses.kl import k1, k2, k3, reference_penalty
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
SEQUENCE, KL = "04_grpo_scr_gspo", "12_kl_estimators"
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


def close(found, expected, dtype, tolerance):
    """Within the file's tolerance, or within 1e-6 of the tensor's size in single precision."""
    expected = torch.as_tensor(expected, dtype=dtype)
    size = max(1.0, expected.abs().max().item())
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
    assert loss == approx(expected["loss"], rel=tolerance if dtype is torch.float64 else 1e-6)
    close(gradient_BT, expected["grad_logp"], dtype, tolerance)
    close(means["clip_low"] + means["clip_high"], expected["clip_frac"], dtype, tolerance)
    close(means["dual_clip"], expected["dual_clip_frac"], dtype, tolerance)
    close(means["approx_kl_k1"], expected["approx_kl_k1"], dtype, tolerance)
    close(means.get("reference_kl", 0.0), expected["kl_loss"] or 0.0, dtype, tolerance)
    kept = torch.tensor(expected["ratio"])[streams.mask_BT]
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
    close(loss, expected["loss"], dtype, tolerance)
    close(gradient_BT, expected["grad_logp"], dtype, tolerance)
    for row, ratio in enumerate(expected["seq_ratio"]):
        alone, _, tally = solve(recipe, logprobs_BT[[row]], rows(streams, [row]))
        means = tally.read()
        close(alone, expected["per_seq_loss"][row], dtype, tolerance)
        close(means["ratio_max"], ratio, dtype, tolerance)
        assert means["clip_low"] + means["clip_high"] == float(expected["seq_clipped"][row])


def test_kl_estimates_meet_the_worked_numbers():
    case = read(KL)["token_batch"]
    mask_BT = torch.tensor(case["inputs"]["mask"]).bool()
    difference_BT = torch.tensor(case["inputs"]["logp"], dtype=torch.float64) - torch.tensor(
        case["inputs"]["ref_logp"], dtype=torch.float64
    )
    for name, estimate in {"k1": k1, "k2": k2, "k3": k3}.items():
        expected_BT = torch.tensor(case["per_token"][name], dtype=torch.float64)
        found = estimate(difference_BT)[mask_BT]
        torch.testing.assert_close(found, expected_BT[mask_BT], atol=1e-12, rtol=0.0)
        assert found.mean().item() == approx(case["masked_mean"][name], abs=1e-12)


@mark.parametrize("name", ["k1", "k2", "k3"])
def test_the_gradient_of_each_kl_estimate_in_a_loss_is_the_one_described(name):
    case = read(KL)["categorical"]
    policy = torch.tensor(case["policy"], dtype=torch.float64)
    logits = policy.log().requires_grad_()
    difference = logits.log_softmax(0) - torch.tensor(case["ref"], dtype=torch.float64).log()
    estimate = {"k1": k1, "k2": k2, "k3": k3}[name]
    (policy * estimate(difference)).sum().backward()
    expected = torch.tensor(case["expected"][f"E_grad_{name}_in_loss"], dtype=torch.float64)
    torch.testing.assert_close(logits.grad, expected, atol=1e-12, rtol=0.0)


@mark.parametrize(
    ("name", "terms"),
    [
        ("grpo_t", (0.2, 0.2, 0.0, "token-mean")),
        ("grpo_tcr", (0.2, 0.28, 10.0, "token-mean")),
        ("grpo_scr", (3e-4, 4e-4, 0.0, "seq-mean-token-mean")),
    ],
)
def test_where_a_recipe_is_silent_an_algorithm_uses_its_own_terms(name, terms):
    generator = torch.Generator().manual_seed(0)
    old_BT = -torch.rand(64, 8, generator=generator, dtype=torch.float64)
    logprobs_BT = old_BT + torch.randn(64, 8, generator=generator, dtype=torch.float64)
    streams = Streams(
        mask_BT=torch.rand(64, 8, generator=generator) < 0.7,
        advantages_BT=torch.randn(64, 8, generator=generator, dtype=torch.float64),
        old_logprobs_BT=old_BT,
        weights_BT=torch.ones_like(old_BT),
    )
    low, high, dual, aggregation = terms
    spoken = LossSettings(
        name=name, clip_low=low, clip_high=high, dual_clip=dual, aggregation=aggregation
    )
    found = solve(LossSettings(name=name), logprobs_BT, streams)
    expected = solve(spoken, logprobs_BT, streams)
    wider = solve(LossSettings(name=name, clip_high=high * 1.5), logprobs_BT, streams)
    assert found[0] == expected[0] != wider[0]
    assert found[2].read() == expected[2].read()


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
    streams = Streams.uniform(mask_BT, advantage=-1.0, old_logprobs_BT=old_BT)
    loss, gradient_BT, tally = solve(LossSettings(name=name), old_BT + logprob, streams)
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


def test_a_kl_penalty_without_a_reference_is_refused():
    old_BT = torch.zeros(1, 1)
    streams = Streams.uniform(old_BT == 0, advantage=1.0, old_logprobs_BT=old_BT)
    with raises(ValueError, match="needs ref_logprobs_BT"):
        solve(LossSettings(kl_coefficient=0.1), old_BT, streams)


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


@mark.parametrize(
    ("asked", "reason"),
    [
        ({"dual_clip": 0.5}, "must be above 1"),
        ({"kl_estimator": "k2"}, "no KL penalty to estimate"),
        ({"name": "grpo_scr", "dual_clip": 3.0}, "has no dual clip"),
        ({"name": "grpo_scr", "aggregation": "token-mean"}, "only for seq-mean-token-mean"),
    ],
)
def test_a_setting_that_does_not_apply_is_refused(asked, reason):
    with raises(RecipeError, match=reason):
        LossSettings.model_validate(asked)


@mark.parametrize("asked", [{"clip_low": 1.0}, {"clip_high": -0.1}, {"name": "ppo"}, {"beta": 0.1}])
def test_a_setting_out_of_range_or_unknown_is_refused(asked):
    with raises(ValidationError):
        LossSettings.model_validate(asked)


@mark.parametrize("name", NAMES)
def test_settings_survive_being_written_and_read_again(name):
    written = LossSettings(name=name, kl_coefficient=0.01).model_dump()
    assert LossSettings.model_validate(written) == LossSettings(name=name, kl_coefficient=0.01)


def test_an_objective_can_be_sent_to_another_process():
    old_BT = torch.zeros(1, 2)
    streams = Streams.uniform(old_BT == 0, advantage=1.0, old_logprobs_BT=old_BT)
    received = pickle.loads(pickle.dumps((objective(LossSettings()), streams)))
    result = received[0](old_BT, received[1], Denominators(tokens=2.0, sequences=1.0))
    assert result.loss.item() == -1.0
