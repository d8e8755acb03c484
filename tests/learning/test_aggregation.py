import json
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx, mark, raises

from forethought.learning.aggregation import AGGREGATIONS
from forethought.learning.streams import Denominators, Streams

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/15_loss_aggregation.json").read_text())
INPUTS, EXPECTED, TOLERANCE = GOLDEN["inputs"], GOLDEN["expected"], GOLDEN["tolerance"]
MODES = sorted(AGGREGATIONS)
MASKS = {"plain": "response_mask", "seq3_fully_masked": "response_mask_seq3_masked"}
BUDGET = 16.0


def golden(mask_name, dtype=torch.float64):
    return (
        torch.tensor(INPUTS["per_token_loss"], dtype=dtype),
        torch.tensor(INPUTS[mask_name]).bool(),
    )


def aggregate(mode, per_token_BT, mask_BT, masks_BT=None, budget=BUDGET):
    denominators = Denominators.count(masks_BT or [mask_BT], budget=budget)
    return AGGREGATIONS[mode](per_token_BT, mask_BT, denominators)


@st.composite
def batches(draw):
    B, T = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    per_token_BT = torch.randn(B, T, generator=generator, dtype=torch.float64)
    return per_token_BT, torch.rand(B, T, generator=generator) < draw(st.floats(0, 1))


@mark.parametrize(("case", "mask"), MASKS.items())
@mark.parametrize("mode", MODES)
def test_modes_meet_the_worked_numbers(mode, case, mask):
    found = aggregate(mode, *golden(mask), budget=INPUTS["loss_scale_len"])
    assert found.item() == approx(EXPECTED[case][mode], abs=TOLERANCE, rel=0)


@mark.parametrize(("case", "mask"), MASKS.items())
@mark.parametrize("mode", MODES)
def test_modes_meet_the_worked_numbers_in_single_precision(mode, case, mask):
    found = aggregate(mode, *golden(mask, torch.float32), budget=INPUTS["loss_scale_len"])
    assert found.item() == approx(EXPECTED[case][mode], rel=1e-6)


def test_micro_batches_add_up_to_the_worked_number_and_their_own_means_do_not():
    per_token_BT, mask_BT = golden("response_mask")
    split = EXPECTED["microbatch"]
    masks = [mask_BT[start:stop] for start, stop in split["split"]]
    parts = [per_token_BT[start:stop] for start, stop in split["split"]]
    pairs = list(zip(parts, masks, strict=True))
    exact = sum(aggregate("token-mean", part, mask, masks).item() for part, mask in pairs)
    naive = sum(aggregate("token-mean", part, mask).item() for part, mask in pairs) / len(pairs)
    assert exact == approx(split["exact_global_token_mean"], abs=TOLERANCE, rel=0)
    assert naive == approx(split["naive_mean_of_means"], abs=TOLERANCE, rel=0)
    assert exact != approx(naive, rel=0.1)


@mark.parametrize("mode", MODES)
@settings(deadline=None, max_examples=40)
@given(batch=batches(), data=st.data())
def test_any_split_in_any_order_leaves_value_and_gradient_unchanged(mode, batch, data):
    per_token_BT, mask_BT = batch
    order = data.draw(st.permutations(range(len(mask_BT))))
    cut = data.draw(st.integers(0, len(order)))
    shares = [share for share in (order[:cut], order[cut:]) if share]
    masks = [mask_BT[share] for share in shares]
    whole = per_token_BT.clone().requires_grad_()
    split = per_token_BT.clone().requires_grad_()
    value = aggregate(mode, whole, mask_BT)
    value.backward()
    parts = [
        aggregate(mode, split[share], mask, masks)
        for share, mask in zip(shares, masks, strict=True)
    ]
    torch.stack(parts).sum().backward()
    assert sum(part.item() for part in parts) == approx(value.item(), abs=1e-12)
    torch.testing.assert_close(split.grad, whole.grad)


@mark.parametrize("garbage", [float("nan"), float("inf"), float("-inf")])
@mark.parametrize("mode", MODES)
def test_what_stands_at_masked_positions_never_matters(mode, garbage):
    clean, mask_BT = golden("response_mask_seq3_masked")
    dirty = torch.where(mask_BT, clean, garbage).requires_grad_()
    value = aggregate(mode, dirty, mask_BT)
    value.backward()
    assert value.item() == aggregate(mode, clean, mask_BT).item()
    assert dirty.grad is not None
    assert torch.all(dirty.grad[~mask_BT] == 0.0)


@mark.parametrize("mode", MODES)
@settings(deadline=None, max_examples=40)
@given(batch=batches(), more=st.integers(1, 5))
def test_padding_changes_nothing(mode, batch, more):
    per_token_BT, mask_BT = batch
    wide_BT = torch.nn.functional.pad(per_token_BT, (0, more), value=float("nan"))
    wide_mask_BT = torch.nn.functional.pad(mask_BT, (0, more), value=False)
    found = aggregate(mode, wide_BT, wide_mask_BT).item()
    assert found == approx(aggregate(mode, per_token_BT, mask_BT).item(), abs=1e-12)


@mark.parametrize("mode", MODES)
def test_without_a_policy_token_the_loss_is_a_zero_with_a_gradient(mode):
    per_token_BT = torch.full((2, 3), float("nan"), requires_grad=True)
    value = aggregate(mode, per_token_BT, torch.zeros(2, 3, dtype=torch.bool))
    value.backward()
    assert value.item() == 0.0
    assert per_token_BT.grad is not None
    assert torch.all(per_token_BT.grad == 0.0)


def test_a_constant_length_must_be_given():
    with raises(ValueError, match="completion limit"):
        aggregate("seq-mean-token-sum-norm", *golden("response_mask"), budget=None)


def test_denominators_count_policy_tokens_and_sequences_that_have_any():
    masks = [torch.tensor([[True, False], [False, False]]), torch.tensor([[True, True]])]
    assert Denominators.count(masks, budget=9.0) == Denominators(
        tokens=3.0, sequences=2.0, budget=9.0
    )


@mark.parametrize(
    ("change", "reason"),
    [
        ({"mask_BT": torch.ones(2, 3)}, "must be a bool tensor"),
        ({"advantages_BT": torch.ones(2, 1)}, "advantages_BT must have the mask's shape"),
        ({"ref_logprobs_BT": torch.ones(3)}, "ref_logprobs_BT must have the mask's shape"),
        ({"weights_BT": torch.ones(2, 3, requires_grad=True)}, "weights_BT must be constant"),
        ({"advantages_BT": torch.ones(2, 3, dtype=torch.int64)}, "advantages_BT must be .*int64"),
        ({"old_logprobs_BT": torch.ones(2, 3).bfloat16()}, "old_logprobs_BT must be .*bfloat16"),
        ({"weights_BT": torch.ones(2, 3).half()}, "weights_BT must be .*float16"),
        ({"ref_logprobs_BT": torch.ones(2, 3).bool()}, "ref_logprobs_BT must be .*bool"),
        ({"turns_BT": torch.ones(2, 3)}, "turns_BT must be a tensor of int64"),
        ({"turns_BT": torch.ones(3, dtype=torch.int64)}, "turns_BT must have the mask's shape"),
    ],
)
def test_streams_that_do_not_fit_are_refused(change, reason):
    one_BT = torch.ones(2, 3)
    fitting = {
        "mask_BT": one_BT.bool(),
        "advantages_BT": one_BT,
        "old_logprobs_BT": one_BT,
        "weights_BT": one_BT,
    }
    with raises(ValueError, match=reason):
        Streams(**fitting | change)
