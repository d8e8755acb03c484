"""Every loss meets the worked numbers of its file, value and gradient, in both precisions."""

import math
from dataclasses import replace

import torch
from pytest import approx, mark

from forethought.learning.advantage import AdvantageSettings, group_advantages
from forethought.learning.losses.catalogue import objective
from forethought.learning.losses.ratios import stretches, turn_ratio
from forethought.learning.losses.settings import LossSettings
from forethought.learning.losses.sft import sft
from forethought.learning.streams import Denominators, Streams
from learning.loss_cases import (
    PRECISIONS,
    close,
    close_sum,
    meets,
    read,
    rows,
    solve,
    streams_of,
    tensor_of,
    terms,
)

TOKEN_CASES = {
    "02a_grpo_t": "grpo_t",
    "02b_grpo_t_kl": "grpo_t",
    "02c_grpo_original_seq_mean": "grpo",
    "03_grpo_tcr": "grpo_tcr",
    "06_dr_grpo": "dr_grpo",
}
ADVANTAGES = {"06_dr_grpo": AdvantageSettings(kind="dr_grpo")}
SEQUENCE, DAPO, CISPO, REINFORCE, OTHERS = (
    "04_grpo_scr_gspo",
    "05_dapo",
    "07_cispo",
    "08_reinforcepp_rloo",
    "18_other_losses",
)


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


@mark.parametrize("dtype", PRECISIONS)
@mark.parametrize(("file", "name"), TOKEN_CASES.items())
def test_token_losses_meet_the_worked_numbers(file, name, dtype):
    case = read(file)
    inputs, expected, tolerance = case["inputs"], case["expected"], case["tolerance"]
    rewards = case.get("reward_components", {}).get("r_total_used", inputs["reward"])
    settings = ADVANTAGES.get(file, AdvantageSettings())
    advantages = group_advantages(rewards, inputs["group"], settings)
    logprobs_BT = tensor_of(inputs["logp"], dtype)
    streams = streams_of(inputs, advantages, dtype)
    budget = case["config"].get("loss_scale_len")
    denominators = Denominators.count([streams.mask_BT], budget=budget)
    problem = recipe_of(case, name), logprobs_BT, streams, denominators
    loss, gradient_BT, tally = solve(*problem)
    means = tally.read()
    assert advantages == approx(expected["advantage"], abs=tolerance, rel=0)
    meets(loss, expected["loss"], dtype, tolerance, problem)
    close(gradient_BT, expected["grad_logp"], dtype, tolerance)
    close(means["clip_low"] + means["clip_high"], expected["clip_frac"], dtype, tolerance)
    close(means["dual_clip"], expected["dual_clip_frac"], dtype, tolerance)
    kept = torch.tensor(expected["ratio"], dtype=torch.float64)[streams.mask_BT]
    size = kept.log().abs().mean().item()
    close_sum(means["approx_kl_k1"], expected["approx_kl_k1"], dtype, tolerance, size)
    close(means.get("reference_kl", 0.0), expected["kl_loss"] or 0.0, dtype, tolerance)
    close(means["approx_kl_k3"], (kept - 1 - kept.log()).mean(), dtype, tolerance)
    assert means["ratio_max"] == approx(kept.max().item(), rel=1e-6)


def cispo_recipes(bounds):
    """Every way of saying these bounds of the weight."""
    low, high = bounds["lower"], bounds["upper"]
    if low:
        return [LossSettings(name="cispo", clip_low=1.0 - low, clip_high=high - 1.0)]
    return [
        LossSettings(name="cispo", clip_high=high - 1.0),
        LossSettings(name="cispo", cispo_cap_abs=high),
    ]


def worked_tokens():
    """Every case that tells its tokens one by one: its numbers, its recipe, its advantages."""
    for file, name in TOKEN_CASES.items():
        case = read(file)
        found = case["expected"]
        yield file, case, found["per_token_loss"], recipe_of(case, name), found["advantage"]
    case = read(CISPO)
    for which, found in case["cases"].items():
        recipe, *_ = cispo_recipes(found)
        yield f"{CISPO} {which}", case, found["per_token_loss"], recipe, case["advantage"]
    case = read(OTHERS)
    found, clip = case["two_sided_delta2"], case["two_sided_delta2"]["clip"]
    twice = LossSettings(name="grpo_t", clip_low=clip, clip_high=clip, dual_clip=found["delta"])
    for key, recipe in (("sapo", LossSettings(name="sapo")), ("two_sided_delta2", twice)):
        yield f"{OTHERS} {key}", case, case[key]["per_token_loss"], recipe, case["advantage"]


WORKED_TOKENS = {name: rest for name, *rest in worked_tokens()}


@mark.parametrize("dtype", PRECISIONS)
@mark.parametrize("which", WORKED_TOKENS)
def test_what_each_token_adds_is_its_worked_loss(which, dtype):
    case, per_token, recipe, advantages = WORKED_TOKENS[which]
    inputs = case["inputs"]
    streams = streams_of(inputs, advantages, dtype)
    summed = recipe.model_copy(update={"aggregation": "token-sum"})
    found_BT, _ = terms(summed, tensor_of(inputs["logp"], dtype), streams)
    expected_BT = streams.kept(tensor_of(per_token))
    close(found_BT, expected_BT, dtype, case["tolerance"])


@mark.parametrize("dtype", PRECISIONS)
@mark.parametrize("which", read(SEQUENCE)["cases"])
def test_the_sequence_loss_meets_the_worked_numbers(which, dtype):
    case = read(SEQUENCE)
    expected, tolerance = case["cases"][which], case["tolerance"]
    logprobs_BT = tensor_of(expected["logp"], dtype)
    streams = streams_of(case["inputs"], case["advantage"], dtype)
    recipe = recipe_of(case, "grpo_scr")
    loss, gradient_BT, _ = solve(recipe, logprobs_BT, streams)
    meets(loss, expected["loss"], dtype, tolerance, (recipe, logprobs_BT, streams))
    close(gradient_BT, expected["grad_logp"], dtype, tolerance)
    for row, ratio in enumerate(expected["seq_ratio"]):
        alone, _, tally = solve(recipe, logprobs_BT[[row]], rows(streams, [row]))
        means = tally.read()
        close(alone, expected["per_seq_loss"][row], dtype, tolerance)
        close(means["ratio_max"], ratio, dtype, tolerance)
        assert means["clip_low"] + means["clip_high"] == float(expected["seq_clipped"][row])


@mark.parametrize("dtype", PRECISIONS)
def test_dapo_meets_the_worked_numbers_with_and_without_its_filter(dtype):
    case = read(DAPO)
    inputs, expected, tolerance = case["inputs"], case["expected"], case["tolerance"]
    recipe = recipe_of(case, "dapo")
    advantages = group_advantages(inputs["reward"], inputs["group"], AdvantageSettings())
    logprobs_BT, streams = tensor_of(inputs["logp"], dtype), streams_of(inputs, advantages, dtype)
    kept = expected["kept_rows"]
    everything, _, _ = solve(recipe, logprobs_BT, streams)
    loss, gradient_BT, _ = solve(recipe, logprobs_BT[kept], rows(streams, kept))
    close(everything, expected["loss_without_filter_same_batch"], dtype, tolerance)
    close(loss, expected["loss_after_filter"], dtype, tolerance)
    close(gradient_BT, expected["grad_logp_kept_rows"], dtype, tolerance)


@mark.parametrize("dtype", PRECISIONS)
@mark.parametrize("which", read(CISPO)["cases"])
def test_each_convention_of_cispo_meets_the_worked_numbers(which, dtype):
    case = read(CISPO)
    expected, tolerance = case["cases"][which], case["tolerance"]
    logprobs_BT = tensor_of(case["inputs"]["logp"], dtype)
    streams = streams_of(case["inputs"], case["advantage"], dtype)
    for recipe in cispo_recipes(expected):
        loss, gradient_BT, tally = solve(recipe, logprobs_BT, streams)
        means = tally.read()
        meets(loss, expected["loss"], dtype, tolerance, (recipe, logprobs_BT, streams))
        close(gradient_BT, expected["grad_logp"], dtype, tolerance)
        close(means["clip_low"] + means["clip_high"], expected["clip_frac"], dtype, tolerance)


def test_cispo_leaves_every_token_with_an_advantage_its_gradient():
    case = read(CISPO)
    streams = streams_of(case["inputs"], case["advantage"])
    recipe = LossSettings(name="cispo", clip_low=0.2)
    _, gradient_BT, tally = solve(recipe, tensor_of(case["inputs"]["logp"]), streams)
    means = tally.read()
    assert means["clip_low"] > 0.0
    assert means["clip_high"] > 0.0
    assert torch.equal(gradient_BT != 0, streams.mask_BT & (streams.advantages_BT != 0))


@mark.parametrize("dtype", PRECISIONS)
def test_reinforce_and_its_clipped_form_meet_the_worked_numbers(dtype):
    case = read(REINFORCE)
    inputs, expected, tolerance = case["inputs"], case["expected"], case["tolerance"]
    logprobs_BT = tensor_of(inputs["logp"], dtype)
    clip = case["config"]["clip"]
    whitened = streams_of(inputs, expected["adv_whiten_ddof1_eps1e8"], dtype)
    clipped = LossSettings(name="grpo_t", clip_low=clip, clip_high=clip)
    loss, gradient_BT, _ = solve(clipped, logprobs_BT, whitened)
    problem = clipped, logprobs_BT, whitened
    meets(loss, expected["loss_token_mean_clip02"], dtype, tolerance, problem)
    close(gradient_BT, expected["grad_logp"], dtype, tolerance)
    # Worked for a policy that has not moved since it sampled.
    problem = (
        LossSettings(name="reinforce"),
        logprobs_BT,
        streams_of(inputs, expected["rloo_adv"], dtype, old="logp"),
    )
    loss, gradient_BT, _ = solve(*problem)
    meets(loss, expected["rloo_reinforce_loss_seq_sum_mean"], dtype, tolerance, problem)
    close(gradient_BT, expected["rloo_grad_logp"], dtype, tolerance)


SPELLINGS = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
"""Everything that can be said in two tokens of a vocabulary of two."""


def of_spellings(logits):
    """log π of each token of `SPELLINGS`; the second's chances hang on the first."""
    chances = logits.log_softmax(-1)
    first, second = SPELLINGS.T
    return torch.stack([chances[0][first], chances[1 + first, second]], dim=1)


def expected_gradient(recipe, logits, old_logits):
    """Of the loss in the logits, expected over sequences that another policy sampled."""
    leaf, old_BT = logits.clone().requires_grad_(), of_spellings(old_logits)
    rewards_B1 = tensor_of([[1.0], [-0.5], [0.25], [2.0]])
    chances_B1 = old_BT.sum(dim=1, keepdim=True).exp()
    streams = Streams(
        mask_BT=torch.ones(4, 2, dtype=torch.bool),
        advantages_BT=rewards_B1.expand(4, 2),
        old_logprobs_BT=old_BT,
        weights_BT=chances_B1.expand(4, 2),
    )
    loss_of = objective(recipe)
    loss_of(of_spellings(leaf), streams, Denominators(tokens=1.0, sequences=1.0)).loss.backward()
    other = logits.clone().requires_grad_()
    (of_spellings(other).sum(dim=1, keepdim=True).exp() * rewards_B1).sum().backward()
    return leaf.grad, -other.grad


def test_reinforce_keeps_the_gradient_of_what_is_earned_when_the_policy_has_moved():
    generator = torch.Generator().manual_seed(3)
    old_logits, moved = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64)
    uncapped = LossSettings(name="reinforce", importance_cap=1e6)
    found, true = expected_gradient(uncapped, old_logits + moved, old_logits)
    torch.testing.assert_close(found, true)
    # A cap that no sequence reaches is none, and one that some reach leaves a bias.
    held, _ = expected_gradient(LossSettings(name="reinforce"), old_logits + moved, old_logits)
    assert not torch.allclose(held, true, atol=1e-3)
    unmoved, true = expected_gradient(LossSettings(name="reinforce"), old_logits, old_logits)
    torch.testing.assert_close(unmoved, true)


def test_what_reinforce_caps_is_told():
    old_BT = tensor_of([[-1.0, -1.0], [-1.0, -1.0]])
    moved_BT = tensor_of([[0.5, 0.5], [0.1, 0.1]])
    streams = Streams.uniform(old_BT < 0, advantage=1.0, old_logprobs_BT=old_BT)
    _, gradient_BT, tally = solve(LossSettings(name="reinforce"), old_BT + moved_BT, streams)
    weights = [[2.0, 2.0], [math.exp(0.2)] * 2]
    torch.testing.assert_close(gradient_BT, -tensor_of(weights) / 2)
    assert tally.read()["clip_high"] == 0.5
    assert tally.read()["ratio_max"] == approx(math.e)


def other_recipe(case, name):
    if name == "gmpo":
        low, high = case["clip_log"]
        return LossSettings(name="gmpo", clip_low=low, clip_high=high)
    if name == "dppo_tv":
        return LossSettings(
            name="dppo_tv",
            clip_low=case["mask_low"],
            clip_high=case["mask_high"],
            drift_coefficient=case["kl_tau"],
        )
    return LossSettings(name=name)


@mark.parametrize("dtype", PRECISIONS)
@mark.parametrize(
    ("key", "name", "old"),
    [
        ("sapo", "sapo", "old_logp"),
        ("gmpo", "gmpo", "old_logp"),
        ("dppo_prime_rl", "dppo_tv", "rollout_logp"),
    ],
)
def test_losses_with_another_trust_region_meet_the_worked_numbers(key, name, old, dtype):
    file = read(OTHERS)
    case, tolerance = file[key], file["tolerance"]
    recipe = other_recipe(case, name)
    logprobs_BT = tensor_of(file["inputs"]["logp"], dtype)
    streams = streams_of(file["inputs"], file["advantage"], dtype, old=old)
    loss, gradient_BT, tally = solve(recipe, logprobs_BT, streams)
    meets(loss, case["loss"], dtype, tolerance, (recipe, logprobs_BT, streams))
    close(gradient_BT, case["grad_logp"], dtype, tolerance)
    if "keep" in case:
        means = tally.read()
        dropped = 1.0 - tensor_of(case["keep"])[streams.mask_BT].mean().item()
        assert means["clip_low"] + means["clip_high"] == approx(dropped)
    for row, ratio in enumerate(case.get("seq_ratio", [])):
        _, _, alone = solve(recipe, logprobs_BT[[row]], rows(streams, [row]))
        close(alone.read()["ratio_max"], ratio, dtype, tolerance)


def test_a_token_that_gmpo_holds_has_no_gradient_and_is_counted_on_its_side():
    old_BT = torch.full((2, 2), -1.0, dtype=torch.float64)
    moved_BT = torch.tensor([[0.5, -0.5], [0.5, -0.5]], dtype=torch.float64)
    mask_BT = torch.ones(2, 2, dtype=torch.bool)
    for advantage, held, side in ((1.0, 0, "clip_high"), (-1.0, 1, "clip_low")):
        streams = Streams.uniform(mask_BT, advantage=advantage, old_logprobs_BT=old_BT)
        _, gradient_BT, tally = solve(LossSettings(name="gmpo"), old_BT + moved_BT, streams)
        assert torch.equal(gradient_BT == 0, torch.arange(2).expand(2, 2) == held)
        other = {"clip_high": "clip_low", "clip_low": "clip_high"}[side]
        assert (tally.read()[side], tally.read()[other]) == (0.5, 0.0)


@mark.parametrize(
    ("recipe", "coefficient"),
    [
        (LossSettings(name="dppo_tv", drift_coefficient=0.5), 0.5),
        (LossSettings(name="dapo", kl_coefficient=1.0, kl_estimator="k2"), 0.5),
    ],
)
def test_weights_scale_what_samples_are_worth_and_not_what_the_policy_pays(recipe, coefficient):
    old_BT = tensor_of([[-1.0, -1.0]])
    logprobs_BT = tensor_of([[-0.9, -1.3]])
    streams = replace(
        Streams.uniform(old_BT < 0, advantage=1.0, old_logprobs_BT=old_BT),
        weights_BT=torch.zeros_like(old_BT),
        ref_logprobs_BT=old_BT,
    )
    loss, _, _ = solve(recipe, logprobs_BT, streams)
    assert loss == approx(coefficient * (0.1**2 + 0.3**2) / 2)


@mark.parametrize("dtype", PRECISIONS)
def test_the_two_sided_clip_is_the_dual_clip(dtype):
    file = read(OTHERS)
    case = file["two_sided_delta2"]
    recipe = LossSettings(
        name="grpo_t", clip_low=case["clip"], clip_high=case["clip"], dual_clip=case["delta"]
    )
    streams = streams_of(file["inputs"], file["advantage"], dtype)
    logprobs_BT = tensor_of(file["inputs"]["logp"], dtype)
    loss, gradient_BT, _ = solve(recipe, logprobs_BT, streams)
    meets(loss, case["loss"], dtype, file["tolerance"], (recipe, logprobs_BT, streams))
    # In its own words: -min(min(r, δ) A, clip(r) A).
    leaf = logprobs_BT.clone().requires_grad_()
    ratio_BT, A_BT = (leaf - streams.old_logprobs_BT).exp(), streams.advantages_BT
    fenced_BT = ratio_BT.clamp(1 - case["clip"], 1 + case["clip"])
    loss_BT = -torch.minimum(ratio_BT.clamp(max=case["delta"]) * A_BT, fenced_BT * A_BT)
    loss_BT[streams.mask_BT].mean().backward()
    close(gradient_BT, leaf.grad, dtype, file["tolerance"])


@mark.parametrize("dtype", PRECISIONS)
def test_the_ratio_of_a_turn_meets_the_worked_numbers(dtype):
    file = read(OTHERS)
    case, inputs = file["turn_geometric_ratio"], file["inputs"]
    streams = streams_of(inputs, file["advantage"], dtype)
    turns_BT = torch.tensor(case["turn_id"])
    logprobs_BT = tensor_of(inputs["logp"], dtype)
    assert torch.equal(stretches(streams.mask_BT), turns_BT)
    for given in (streams, replace(streams, turns_BT=turns_BT)):
        found_BT = streams.kept(turn_ratio(logprobs_BT, given))
        close(found_BT, case["ratio"], dtype, file["tolerance"])


def test_a_turns_gradient_is_that_of_its_geometric_mean():
    file = read(OTHERS)
    turns_BT = torch.tensor(file["turn_geometric_ratio"]["turn_id"])
    streams = replace(streams_of(file["inputs"], file["advantage"]), turns_BT=turns_BT)
    logprobs_BT = tensor_of(file["inputs"]["logp"])
    _, gradient_BT, _ = solve(
        LossSettings(name="grpo_turn", clip_low=0.9, clip_high=9.0, aggregation="token-sum"),
        logprobs_BT,
        streams,
    )
    leaf = logprobs_BT.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for row, turns_T in enumerate(turns_BT.tolist()):
        for turn in {*turns_T} - {-1}:
            places = [place for place, each in enumerate(turns_T) if each == turn]
            moved = (leaf - streams.old_logprobs_BT)[row, places]
            total = total - len(places) * file["advantage"][row] * moved.mean().exp()
    total.backward()
    close(gradient_BT, leaf.grad, torch.float64, file["tolerance"])


def test_one_turn_a_sequence_is_the_sequence_loss_and_one_token_a_turn_the_token_loss():
    case = read(OTHERS)
    streams = streams_of(case["inputs"], case["advantage"])
    logprobs_BT = tensor_of(case["inputs"]["logp"])
    alike = {"clip_low": 0.1, "clip_high": 0.1, "aggregation": "seq-mean-token-mean"}
    by_turn = LossSettings(name="grpo_turn", **alike)
    whole_BT = torch.zeros_like(streams.mask_BT, dtype=torch.int64)
    single_BT = torch.arange(streams.mask_BT.shape[1]).expand_as(whole_BT)
    for turns_BT, name in ((whole_BT, "grpo_scr"), (single_BT, "grpo_t")):
        found = solve(by_turn, logprobs_BT, replace(streams, turns_BT=turns_BT))
        expected = solve(LossSettings(name=name, **alike), logprobs_BT, streams)
        assert found[0] == approx(expected[0], abs=1e-12)
        torch.testing.assert_close(found[1], expected[1])


def test_a_sequences_ratio_may_carry_different_advantages_at_its_tokens():
    old_BT = torch.full((1, 2), -1.0, dtype=torch.float64)
    streams = Streams(
        mask_BT=torch.ones(1, 2, dtype=torch.bool),
        advantages_BT=torch.tensor([[2.0, -1.0]], dtype=torch.float64),
        old_logprobs_BT=old_BT,
        weights_BT=torch.ones_like(old_BT),
    )
    for name in ("grpo_scr", "grpo_turn", "gmpo"):
        _, gradient_BT, _ = solve(LossSettings(name=name), old_BT, streams)
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
