"""Samples from other log-probabilities than the learner's: weights, rejection, figures."""

import math
import re
from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pytest import approx, mark, raises

from forethought.core.errors import RecipeError
from forethought.learning.correction.correct import correct
from forethought.learning.correction.mismatch import Mismatch
from forethought.learning.correction.rejection import kept_sequences, opsm
from forethought.learning.correction.settings import CorrectionSettings
from forethought.learning.correction.weights import importance_weights
from forethought.learning.losses.ratios import joint_ratio
from forethought.learning.losses.settings import LossSettings
from learning.loss_cases import PRECISIONS, close, meets, read, solve, streams_of, tensor_of

GOLDEN = read("11_tis_icepop")
INPUTS, EXPECTED, TOLERANCE = GOLDEN["inputs"], GOLDEN["expected"], GOLDEN["tolerance"]
MASK_BT = torch.tensor(INPUTS["response_mask"]).bool()
CLIP_LOW, CLIP_HIGH = GOLDEN["config"]["clip"]
DAPO = LossSettings(name="dapo", clip_low=CLIP_LOW, clip_high=CLIP_HIGH)


def named(beginning):
    """The cases whose names begin so, each with the numbers that the rest of its name holds."""
    found = {}
    for key in EXPECTED:
        if key.startswith(beginning):
            numbers = re.findall(r"\d+(?:p\d+)?", key.removeprefix(beginning))
            found[key] = tuple(float(number.replace("p", ".")) for number in numbers)
    return found


TIS, SEQUENCE_TIS = named("token_tis_C"), named("seq_tis_C")
((CAP,), (SEQUENCE_CAP,)) = (next(iter(each.values())) for each in (TIS, SEQUENCE_TIS))
((MOST_K3,),) = named("k3_keep_").values()
CASES = {
    "uncorrected": CorrectionSettings(),
    **{
        key: CorrectionSettings(weight="token_tis", cap=cap, normalize="normalized" in key)
        for key, (cap,) in TIS.items()
    },
    **{
        key: CorrectionSettings(weight="sequence_tis", cap=cap)
        for key, (cap,) in SEQUENCE_TIS.items()
    },
    **{
        key: CorrectionSettings(weight="icepop", bounds=bounds)
        for key, bounds in named("icepop_").items()
    },
    **{
        key: CorrectionSettings(weight="sequence_mis", bounds=bounds)
        for key, bounds in named("seq_mis_").items()
    },
    "k3_rejection_plus_token_tis": CorrectionSettings(weight="token_tis", cap=CAP, most_k3=MOST_K3),
}
REJECTIONS = {
    **{
        key: CorrectionSettings(geometric_bounds=bounds)
        for key, bounds in named("geo_keep_").items()
    },
    **{key: CorrectionSettings(most_k3=most) for key, (most,) in named("k3_keep_").items()},
    **{key: CorrectionSettings(veto_below=least) for key, (least,) in named("token_veto_").items()},
}
OTHERS = {
    *("rho_token", "rho_seq", "rho_geo", "seq_mean_k3", "opsm", "metrics"),
    *("bypass_ppo_clip_ratio_vs_rollout", "bypass_reinforce_seq_tis"),
}


def logprobs(dtype=torch.float64):
    """Of the policy that is updated, of the learner before, and of the sampler."""
    return [tensor_of(INPUTS[key], dtype) for key in ("logp", "old_logp", "rollout_logp")]


def corrected(asked, dtype=torch.float64):
    streams = streams_of(INPUTS, GOLDEN["advantage"], dtype)
    _, old_BT, sampled_BT = logprobs(dtype)
    return correct(old_BT, sampled_BT, streams.advantages_BT, streams.mask_BT, asked)


def problem_of(asked, dtype):
    """A loss, the policy that is updated, and its corrected samples."""
    found = corrected(asked, dtype)
    streams = streams_of(INPUTS, GOLDEN["advantage"], dtype)
    streams = replace(streams, weights_BT=found.weights_BT, mask_BT=found.mask_BT)
    return DAPO, logprobs(dtype)[0], streams


def solve_corrected(asked, dtype):
    return solve(*problem_of(asked, dtype))


def test_every_case_of_the_file_is_tried():
    assert {*CASES, *REJECTIONS, *OTHERS} == set(EXPECTED)


@mark.parametrize("dtype", PRECISIONS)
def test_ratios_between_learner_and_sampler_are_the_worked_ones(dtype):
    _, old_BT, sampled_BT = logprobs(dtype)
    found = Mismatch.between(old_BT, sampled_BT, MASK_BT)
    ratios_BT = torch.where(MASK_BT, found.tokens_BT.exp(), 0.0)
    close(ratios_BT, EXPECTED["rho_token"], dtype, TOLERANCE)
    close(found.sums_B.exp(), EXPECTED["rho_seq"], dtype, TOLERANCE)
    close(found.means_B.exp(), EXPECTED["rho_geo"], dtype, TOLERANCE)
    close(found.mean_k3(), EXPECTED["seq_mean_k3"], dtype, TOLERANCE)


@mark.parametrize("dtype", PRECISIONS)
@mark.parametrize("key", CASES)
def test_weights_and_what_a_loss_makes_of_them_meet_the_worked_numbers(key, dtype):
    case = EXPECTED[key]
    weights_BT = corrected(CASES[key], dtype).weights_BT
    expected_BT = torch.where(MASK_BT, tensor_of(case["weight"]), 0.0)
    close(weights_BT, expected_BT, dtype, TOLERANCE)
    loss, gradient_BT, _ = solve_corrected(CASES[key], dtype)
    meets(loss, case["loss"], dtype, TOLERANCE, problem_of(CASES[key], dtype))
    close(gradient_BT, case["grad_logp"], dtype, TOLERANCE)


@mark.parametrize("key", REJECTIONS)
def test_rejection_keeps_the_worked_sequences_and_edits_the_mask_alone(key):
    found = corrected(REJECTIONS[key])
    expected_B = torch.tensor(EXPECTED[key]).bool()
    assert torch.equal(found.mask_BT, MASK_BT & expected_B[:, None])
    assert torch.equal(found.weights_BT, found.mask_BT.double())
    assert found.figures["rejected"] == approx(1.0 - sum(EXPECTED[key]) / len(EXPECTED[key]))


def test_a_sequence_outside_its_bounds_leaves_the_denominator_only_when_it_is_rejected():
    ((key, bounds),) = named("seq_mis_").items()
    weighted = corrected(CASES[key])
    rejecting = CorrectionSettings(weight="sequence_tis", cap=1e6, sequence_bounds=bounds)
    rejected = corrected(rejecting)
    torch.testing.assert_close(weighted.weights_BT, rejected.weights_BT)
    assert torch.equal(weighted.mask_BT, MASK_BT)
    kept = int(rejected.mask_BT.sum())
    assert kept < int(MASK_BT.sum())
    loss, _, _ = solve_corrected(rejecting, torch.float64)
    assert loss == approx(EXPECTED[key]["loss"] * int(MASK_BT.sum()) / kept)


@mark.parametrize("dtype", PRECISIONS)
def test_with_the_samplers_logprobs_as_the_old_ones_a_clipped_loss_needs_no_weights(dtype):
    case = EXPECTED["bypass_ppo_clip_ratio_vs_rollout"]
    streams = streams_of(INPUTS, GOLDEN["advantage"], dtype, old="rollout_logp")
    loss, gradient_BT, _ = solve(DAPO, logprobs(dtype)[0], streams)
    close(loss, case["loss"], dtype, TOLERANCE)
    close(gradient_BT, case["grad_logp"], dtype, TOLERANCE)


@mark.parametrize("dtype", PRECISIONS)
def test_with_the_samplers_logprobs_reinforce_is_weighted_by_the_policy_itself(dtype):
    case = EXPECTED["bypass_reinforce_seq_tis"]
    logprobs_BT, _, sampled_BT = logprobs(dtype)
    streams = streams_of(INPUTS, GOLDEN["advantage"], dtype, old="rollout_logp")
    recipe = LossSettings(name="reinforce", aggregation="token-mean", importance_cap=SEQUENCE_CAP)
    ratio_BT = joint_ratio(logprobs_BT, streams)
    close(ratio_BT[:, 0].clamp(max=SEQUENCE_CAP), case["weight"], dtype, TOLERANCE)
    moved = Mismatch.between(logprobs_BT, sampled_BT, MASK_BT)
    asked = CorrectionSettings(weight="sequence_tis", cap=SEQUENCE_CAP)
    close(importance_weights(moved, asked).amax(dim=1), case["weight"], dtype, TOLERANCE)
    loss, gradient_BT, _ = solve(recipe, logprobs_BT, streams)
    meets(loss, case["loss"], dtype, TOLERANCE, (recipe, logprobs_BT, streams))
    close(gradient_BT, case["grad_logp"], dtype, TOLERANCE)


def test_off_policy_sequence_masking_spares_what_is_to_become_likelier():
    case = EXPECTED["opsm"]
    advantages_BT = tensor_of(case["advantage"])[:, None]
    kept_BT = opsm(advantages_BT, tensor_of(case["mean_kl_mu_minus_theta"]), case["delta"])
    assert kept_BT[:, 0].tolist() == [bool(each) for each in case["keep"]]


def test_off_policy_sequence_masking_takes_weight_and_leaves_the_denominator():
    found = corrected(CorrectionSettings(opsm_delta=0.05))
    _, old_BT, sampled_BT = logprobs()
    for row, advantage in enumerate(GOLDEN["advantage"]):
        drift = (sampled_BT - old_BT)[row][MASK_BT[row]].mean().item()
        weight = 0.0 if advantage < 0 and drift > 0.05 else 1.0
        assert found.weights_BT[row][MASK_BT[row]].unique().tolist() == [weight]
    assert torch.equal(found.mask_BT, MASK_BT)


def test_off_policy_sequence_masking_drops_what_became_unlikely_and_is_to_be_more_so():
    old_BT = torch.tensor([[-3.0, -3.0], [-3.0, -3.0], [-1.0, -1.0]])
    sampled_BT = torch.full((3, 2), -1.0)
    advantages_BT = torch.tensor([[-1.0], [1.0], [-1.0]]).expand(3, 2)
    asked = CorrectionSettings(opsm_delta=0.5)
    found = correct(old_BT, sampled_BT, advantages_BT, old_BT < 0, asked)
    assert found.weights_BT.tolist() == [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]


@mark.parametrize("dtype", PRECISIONS)
def test_figures_meet_the_worked_numbers(dtype):
    metrics = EXPECTED["metrics"]
    figures = corrected(CorrectionSettings(weight="token_tis", cap=CAP), dtype).figures
    for name, key in {
        "k1": "kl_k1_rollout_vs_old",
        "k3": "k3_kl",
        "chi2_token": "chi2_token",
        "chi2_sequence": "chi2_seq",
        "ess": "ess_token_tis",
    }.items():
        close(figures[name], metrics[key], dtype, TOLERANCE)
    icepop = corrected(CorrectionSettings(weight="icepop"), dtype).figures
    assert icepop["out_of_bounds"] == approx(metrics["icepop_oob_frac"])
    ratios = tensor_of(EXPECTED["rho_token"])[MASK_BT]
    assert figures["rho_p50"] == approx(ratios.median().item(), rel=1e-6)
    assert figures["rho_p01"] == approx(ratios.min().item(), rel=1e-6)
    assert figures["rho_p99"] == approx(ratios.max().item(), rel=1e-6)
    assert figures["ppl_ratio"] == approx((1 / tensor_of(EXPECTED["rho_geo"])).mean().item())


def test_what_is_out_of_bounds_is_counted_in_what_is_weighted():
    of_tokens = corrected(CorrectionSettings(weight="token_tis")).figures
    of_sequences = corrected(CorrectionSettings(weight="sequence_mis")).figures
    unweighted = corrected(CorrectionSettings()).figures
    tokens, sequences = tensor_of(EXPECTED["rho_token"])[MASK_BT], tensor_of(EXPECTED["rho_seq"])
    assert of_tokens["out_of_bounds"] == approx((tokens > 2.0).double().mean().item())
    outside = (sequences > 2.0) | (sequences < 0.5)
    assert of_sequences["out_of_bounds"] == approx(outside.double().mean().item())
    assert unweighted["out_of_bounds"] == approx(EXPECTED["metrics"]["icepop_oob_frac"])
    assert unweighted["ess"] < of_tokens["ess"] < 1.0


KINDS = ["none", "token_tis", "sequence_tis", "icepop", "sequence_mis"]


@st.composite
def askings(draw):
    """Every kind of weight with any rejection and any normalisation."""
    weight = draw(st.sampled_from(KINDS))
    return CorrectionSettings(
        weight=weight,
        normalize=weight != "none" and draw(st.booleans()),
        sequence_bounds=draw(st.sampled_from([None, (0.3, 3.0)])),
        geometric_bounds=draw(st.sampled_from([None, (0.8, 1.2)])),
        most_k3=draw(st.sampled_from([None, 0.05])),
        veto_below=draw(st.sampled_from([None, 0.3])),
        opsm_delta=draw(st.sampled_from([None, 0.05])),
    )


def some_streams(seed, scale=0.4):
    generator = torch.Generator().manual_seed(seed)
    old_BT = -torch.rand(5, 6, generator=generator, dtype=torch.float64)
    sampled_BT = old_BT + scale * torch.randn(5, 6, generator=generator, dtype=torch.float64)
    advantages_BT = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    return old_BT, sampled_BT, advantages_BT, torch.rand(5, 6, generator=generator) < 0.7


@given(askings(), st.integers(0, 2**31), st.sampled_from(["nan", "inf", "-inf"]))
@settings(deadline=None, max_examples=100)
def test_garbage_at_masked_places_changes_neither_weight_nor_mask_nor_figure(asked, seed, garbage):
    *values, mask_BT = some_streams(seed)
    clean = correct(*values, mask_BT, asked)
    dirty = correct(
        *(torch.where(mask_BT, each, float(garbage)) for each in values), mask_BT, asked
    )
    assert torch.equal(clean.weights_BT, dirty.weights_BT)
    assert torch.equal(clean.mask_BT, dirty.mask_BT)
    assert clean.figures == dirty.figures
    assert not (clean.mask_BT & ~mask_BT).any()
    assert torch.all(clean.weights_BT[~clean.mask_BT] == 0.0)


@given(askings(), st.integers(0, 2**31))
@settings(deadline=None, max_examples=60)
def test_where_learner_and_sampler_agree_nothing_is_corrected(asked, seed):
    old_BT, _, advantages_BT, mask_BT = some_streams(seed)
    found = correct(old_BT, old_BT, advantages_BT, mask_BT, asked)
    assert torch.equal(found.weights_BT, mask_BT.double())
    assert torch.equal(found.mask_BT, mask_BT)
    if mask_BT.any():
        assert found.figures == {
            **dict.fromkeys(("k1", "k3", "chi2_token", "chi2_sequence"), 0.0),
            **dict.fromkeys(("out_of_bounds", "rejected"), 0.0),
            **dict.fromkeys(("ppl_ratio", "ess", "rho_p01", "rho_p50", "rho_p99"), 1.0),
        }


@given(st.sampled_from(KINDS[1:]), st.integers(0, 2**31))
@settings(deadline=None, max_examples=60)
def test_normalised_weights_have_a_mean_of_1_over_what_was_kept(weight, seed):
    asked = CorrectionSettings(weight=weight, normalize=True, most_k3=0.2)
    found = correct(*some_streams(seed), asked)
    if weight.startswith("sequence"):
        kept_B = found.mask_BT.any(dim=1)
        weights = found.weights_BT.amax(dim=1)[kept_B]
    else:
        weights = found.weights_BT[found.mask_BT]
    if weights.any():
        assert weights.mean().item() == approx(1.0)


def test_bounds_hold_for_the_ratio_itself_and_not_for_its_inverse():
    sampled_BT = torch.full((2, 1), -1.0, dtype=torch.float64)
    old_BT = sampled_BT + torch.tensor([[math.log(3.0)], [math.log(1 / 3.0)]], dtype=torch.float64)
    mismatch = Mismatch.between(old_BT, sampled_BT, old_BT < 9)
    for key in ("sequence_bounds", "geometric_bounds"):
        kept_B = kept_sequences(mismatch, CorrectionSettings(**{key: (0.5, 4.0)}))
        assert kept_B.tolist() == [True, False]


@mark.parametrize("weight", KINDS)
def test_an_extreme_ratio_stays_finite(weight):
    sampled_BT = torch.tensor([[-1e4, -1.0], [-1.0, -1.0]])
    old_BT = torch.tensor([[-1.0, -1.0], [-1e4, -1.0]])
    found = correct(
        old_BT, sampled_BT, -torch.ones(2, 2), old_BT < 0, CorrectionSettings(weight=weight)
    )
    assert torch.isfinite(found.weights_BT).all()
    assert all(map(math.isfinite, found.figures.values()))


@given(askings(), st.integers(0, 2**31), st.booleans())
@settings(deadline=None, max_examples=60)
def test_a_logprob_that_is_nan_is_neither_rejected_nor_weighed_as_nothing(asked, seed, of_sampler):
    old_BT, sampled_BT, advantages_BT, mask_BT = some_streams(seed)
    mask_BT[2, 3] = True
    (sampled_BT if of_sampler else old_BT)[2, 3] = float("nan")
    found = correct(old_BT, sampled_BT, advantages_BT, mask_BT, asked)
    assert torch.equal(found.mask_BT[2], mask_BT[2])
    expected_BT = torch.zeros_like(mask_BT)
    expected_BT[2] = mask_BT[2]
    assert torch.equal(found.weights_BT.isnan(), expected_BT)


@mark.parametrize("weight", KINDS)
def test_a_step_of_which_nothing_is_left_has_no_weight_and_no_nan(weight):
    old_BT, sampled_BT, advantages_BT, mask_BT = some_streams(0, scale=3.0)
    asked = CorrectionSettings(weight=weight, normalize=weight != "none", most_k3=1e-9)
    found = correct(old_BT, sampled_BT, advantages_BT, mask_BT, asked)
    assert not found.mask_BT.any()
    assert torch.equal(found.weights_BT, torch.zeros_like(old_BT))
    assert found.figures["rejected"] == 1.0
    nothing = correct(old_BT, sampled_BT, advantages_BT, mask_BT & False, asked)
    assert nothing.figures == {}


def test_weights_and_figures_are_constants():
    old_BT, sampled_BT, advantages_BT, mask_BT = some_streams(1)
    asked = CorrectionSettings(weight="token_tis", normalize=True)
    found = correct(old_BT.requires_grad_(), sampled_BT, advantages_BT, mask_BT, asked)
    assert not found.weights_BT.requires_grad


def test_a_recipe_that_is_silent_gets_the_usual_cap_and_bounds():
    for weight, chosen in {
        "none": (0.5, 5.0),
        "token_tis": (0.0, 2.0),
        "sequence_tis": (0.0, 2.0),
        "icepop": (0.5, 5.0),
        "sequence_mis": (0.5, 2.0),
    }.items():
        assert CorrectionSettings(weight=weight).chosen_bounds == chosen


@mark.parametrize(
    ("asked", "reason"),
    [
        ({"weight": "icepop", "cap": 2.0}, "has no cap; .*token_tis"),
        ({"weight": "token_tis", "bounds": (0.5, 2.0)}, "has no bounds; .*icepop"),
        ({"normalize": True}, "no weights to divide"),
        ({"geometric_bounds": (1.1, 0.9)}, "geometric_bounds .* exchange them"),
        ({"weight": "icepop", "bounds": (2.0, 2.0)}, "bounds .* exchange them"),
    ],
)
def test_a_correction_that_does_not_apply_is_refused(asked, reason):
    with raises(RecipeError, match=reason):
        CorrectionSettings.model_validate(asked)


@mark.parametrize("asked", [{"cap": 0.0}, {"veto_below": 1.0}, {"most_k3": 0.0}, {"weight": "is"}])
def test_a_correction_out_of_range_or_unknown_is_refused(asked):
    with raises(ValidationError):
        CorrectionSettings.model_validate(asked)


@mark.parametrize(
    ("base", "change"),
    [
        ({}, {"weight": "token_tis"}),
        ({"weight": "token_tis"}, {"cap": 1.01}),
        ({"weight": "icepop"}, {"bounds": (0.9, 1.1)}),
        ({"weight": "token_tis"}, {"normalize": True}),
        ({}, {"sequence_bounds": (0.99, 1.01)}),
        ({}, {"geometric_bounds": (0.999, 1.001)}),
        ({}, {"most_k3": 1e-3}),
        ({}, {"veto_below": 0.9}),
    ],
)
def test_each_setting_of_a_correction_decides_weights_or_mask(base, change):
    plain, changed = (corrected(CorrectionSettings(**each)) for each in (base, base | change))
    same_weights = torch.equal(plain.weights_BT, changed.weights_BT)
    assert not (same_weights and torch.equal(plain.mask_BT, changed.mask_BT))
