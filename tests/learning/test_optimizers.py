"""Every trained parameter has one optimiser, and rates rise and fall as the recipe says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from forethought.learning.optimizers import build_optimizers, rate_share
from forethought.learning.settings import OptimizerSettings
from tiny import network


def owned(optimizer):
    return [each for group in optimizer.param_groups for each in group["params"]]


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_every_trained_parameter_belongs_to_exactly_one_optimiser(kind):
    model = network()
    frozen = next(model.parameters())
    frozen.requires_grad_(False)
    found = [id(each) for one in build_optimizers(model, settings_of(kind)) for each in owned(one)]
    assert sorted(found) == sorted(id(each) for each in model.parameters() if each is not frozen)


def test_muon_is_alone_where_only_matrices_inside_the_layers_are_trained():
    model = network("qwen2")
    for name, each in model.named_parameters():
        each.requires_grad_(".layers." in name and each.ndim == 2)
    (muon,) = build_optimizers(model, settings_of("muon"))
    assert all(each.requires_grad for each in owned(muon))


def settings_of(kind, **chosen):
    return OptimizerSettings(type=kind, rate=0.5, muon_rate=0.25, **chosen)


def test_muon_takes_the_matrices_inside_the_layers_and_nothing_else():
    model = network("qwen2")
    _, muon = build_optimizers(model, settings_of("muon"))
    names = {id(each): name for name, each in model.named_parameters()}
    found = {names[id(each)].split(".", 3)[3] for each in owned(muon)}
    parts = ("q_proj", "k_proj", "v_proj", "o_proj")
    feeds = ("gate_proj", "up_proj", "down_proj")
    expected = {f"self_attn.{part}.weight" for part in parts}
    assert found == expected | {f"mlp.{part}.weight" for part in feeds}


def test_settings_reach_their_optimiser():
    adamw, muon = build_optimizers(
        network(), settings_of("muon", beta_1=0.8, beta_2=0.9, weight_decay=0.125)
    )
    assert adamw.param_groups[0]["betas"] == (0.8, 0.9)
    assert [each.param_groups[0]["full_rate"] for each in (adamw, muon)] == [0.5, 0.25]
    assert [each.param_groups[0]["weight_decay"] for each in (adamw, muon)] == [0.125, 0.125]


def test_a_warm_up_rises_in_equal_steps_to_the_full_rate():
    warm = OptimizerSettings(warmup=4)
    assert [rate_share(warm, step, 10) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_a_cosine_begins_at_the_full_rate_and_ends_at_its_floor():
    cosine = OptimizerSettings(schedule="cosine", warmup=2, floor=0.2)
    shares = [rate_share(cosine, step, 10) for step in (2, 6, 10, 15)]
    assert shares == approx([1.0, 0.6, 0.2, 0.2])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 9), st.integers(0, 9), st.floats(0, 1))
def test_after_warm_up_a_cosine_never_rises_and_never_leaves_its_bounds(warmup, steps, floor):
    cosine = OptimizerSettings(schedule="cosine", warmup=warmup, floor=floor)
    shares = [rate_share(cosine, step, steps) for step in range(warmup, warmup + 12)]
    assert shares == sorted(shares, reverse=True)
    assert all(floor - 1e-12 <= share <= 1.0 for share in shares)
