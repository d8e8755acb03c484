"""Worked examples of losses as tensors, and what a loss makes of them."""

import json
from dataclasses import fields, replace
from pathlib import Path

import torch
from hypothesis import strategies as st

from forethought.learning.losses.catalogue import LOSSES, objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Denominators, Streams

FOLDER = Path(__file__).parents[1] / "golden"
PRECISIONS = [torch.float64, torch.float32]
NAMES = sorted(LOSSES)
ESTIMATORS = ["k2", "k3", "k3+", "k3_off_policy", "abs"]
BUDGET = 16.0
ROUNDING = 2.0**-23
"""By how much of itself a number near 1 is moved to the next in single precision."""

ASKED = {
    "clip_low": 0.1,
    "clip_high": 0.1,
    "dual_clip": 3.0,
    "cispo_cap_abs": 5.0,
    "importance_cap": 1e3,
    "tau_positive": 0.5,
    "tau_negative": 0.5,
    "drift_coefficient": 0.5,
}
"""A value of every key that not every loss has, far from any loss's own."""


def read(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


def tensor_of(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def streams_of(inputs, advantages, dtype=torch.float64, old="old_logp"):
    """The streams of a file's inputs; advantages of sequences or of tokens."""
    mask_BT = torch.tensor(inputs["response_mask"]).bool()
    old_BT = tensor_of(inputs[old], dtype)
    given = tensor_of(advantages, dtype)
    reference = inputs.get("ref_logp")
    return Streams(
        mask_BT=mask_BT,
        advantages_BT=(given if given.ndim == 2 else given[:, None]).expand_as(old_BT),
        old_logprobs_BT=old_BT,
        weights_BT=torch.ones_like(old_BT),
        ref_logprobs_BT=None if reference is None else tensor_of(reference, dtype),
    )


def solve(recipe, logprobs_BT, streams, denominators=None):
    """The loss, its gradient and its tally."""
    leaf = logprobs_BT.detach().clone().requires_grad_()
    whole = Denominators.count([streams.mask_BT], budget=BUDGET)
    result = objective(recipe)(leaf, streams, denominators or whole)
    result.loss.backward()
    return result.loss.item(), leaf.grad, result.tally


def terms(recipe, logprobs_BT, streams, denominators=None):
    """What the objective of each token adds to the loss, and what the loss is without objectives.

    A loss is linear in the weights, so that each of them alone tells its token's term.
    """
    whole = denominators or Denominators.count([streams.mask_BT], budget=BUDGET)
    found_BT = torch.zeros(streams.mask_BT.shape, dtype=torch.float64)

    def loss_with(weights_BT):
        return solve(recipe, logprobs_BT, replace(streams, weights_BT=weights_BT), whole)[0]

    without = loss_with(torch.zeros_like(streams.weights_BT))
    for row, place in streams.mask_BT.nonzero().tolist():
        alone_BT = torch.zeros_like(streams.weights_BT)
        alone_BT[row, place] = streams.weights_BT[row, place]
        found_BT[row, place] = loss_with(alone_BT) - without
    return found_BT, without


def close(found, expected, dtype, tolerance):
    """Within the file's tolerance; in single precision within 1e-6 of the largest number."""
    expected = torch.as_tensor(expected, dtype=dtype)
    close_sum(found, expected, dtype, tolerance, 1e-6 / ROUNDING * expected.abs().max().item())


def close_sum(found, expected, dtype, tolerance, size):
    """Within the file's tolerance; in single precision within `ROUNDING` of the sum of all sizes.

    Where what is added cancels, single precision has no more to give: rounding the inputs alone
    moves the loss near the policy that sampled (04) by 1e-5 of itself, whatever is computed after.
    Wherever a sum is at least an eighth of its `size`, this is 1e-6 of the sum or less.
    """
    limit = tolerance if dtype is torch.float64 else ROUNDING * size
    torch.testing.assert_close(
        torch.as_tensor(found, dtype=dtype),
        torch.as_tensor(expected, dtype=dtype),
        atol=limit,
        rtol=0.0,
    )


def meets(found, expected, dtype, tolerance, problem):
    """A loss against its worked number, by the sizes of the terms that it is the sum of."""
    found_BT, without = terms(*problem)
    close_sum(found, expected, dtype, tolerance, found_BT.abs().sum().item() + abs(without))


def each_stream(streams, change):
    """The streams with every one of them changed, the mask too."""
    present = {field.name: getattr(streams, field.name) for field in fields(streams)}
    return replace(
        streams, **{name: change(each) for name, each in present.items() if each is not None}
    )


def rows(streams, chosen):
    return each_stream(streams, lambda stream_BT: stream_BT[chosen])


@st.composite
def batches(draw):
    """Log-probabilities and streams of some rows, every third position of which begins a turn."""
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
        turns_BT=(torch.arange(T) // 3).expand(B, T) if draw(st.booleans()) else None,
    )
    return old_BT + normal(0.3), streams


@st.composite
def recipes(draw):
    """Every loss, with and without every KL penalty."""
    name = draw(st.sampled_from(NAMES))
    if draw(st.booleans()):
        return LossSettings(name=name)
    estimator = draw(st.sampled_from(ESTIMATORS))
    return LossSettings(name=name, kl_coefficient=0.1, kl_estimator=estimator)
