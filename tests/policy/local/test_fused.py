"""A model's weights as sampling reads them: shared where they can be, fresh where they cannot."""

import copy
import importlib

import pytest
import torch

from forethought.policy.local.fused import PACKED_FROM, FusedWeights, can_pack, fuse
from tiny import FAMILIES, local_model, network, same_weights, weights

FEED = PACKED_FROM // 512
"""A feed-forward size whose gate and up, beside a width of 264, are together large."""


def storages(model):
    """Where the tensors that sampling reads lie."""
    read = FusedWeights(model, torch.float32)
    layers = [
        matrix.weight_OE
        for layer in read.layers
        for matrix in (layer.query_key_value, layer.gate_up, layer.output, layer.down)
    ]
    return {tensor.untyped_storage().data_ptr() for tensor in layers}


def own_storages(model):
    return {weight.untyped_storage().data_ptr() for weight in model.parameters()}


@pytest.mark.parametrize("family", FAMILIES)
def test_fusing_changes_no_weight_and_holds_nothing_twice(family):
    model = network(family)
    before, names = weights(model), [name for name, _ in model.named_parameters()]
    objects = list(model.parameters())
    assert not storages(model) <= own_storages(model)
    fuse(model)
    assert same_weights(weights(model), before)
    assert [name for name, _ in model.named_parameters()] == names
    assert all(one is other for one, other in zip(model.parameters(), objects, strict=True))
    assert storages(model) <= own_storages(model)


def test_what_an_optimiser_writes_is_read_without_copying():
    model = network()
    fuse(model)
    read = FusedWeights(model, torch.float32)
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight.add_(1.0)
    attention = model.model.layers[1].self_attn
    expected = torch.cat(
        [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]
    )
    assert torch.equal(read.layers[1].query_key_value.weight_OE, expected)


def test_fusing_twice_moves_nothing():
    model = network()
    fuse(model)
    places = [weight.data_ptr() for weight in model.parameters()]
    fuse(model)
    assert [weight.data_ptr() for weight in model.parameters()] == places


def test_a_fused_model_is_saved_and_loaded_like_any_other(tmp_path):
    model = network()
    fuse(model)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert same_weights(weights(again), weights(model))


def test_a_fused_model_still_learns_by_its_own_parameters():
    one, other = network(), network()
    fuse(one)
    ids = torch.tensor([[1, 2, 3, 4]])
    for model in (one, other):
        model(ids, labels=ids).loss.backward()
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_shared_memory_keeps_matrices_together():
    model = network()
    fuse(model)
    model.share_memory()
    assert storages(model) <= own_storages(model)
    assert all(weight.is_shared() for weight in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_large_matrices_are_read_in_another_order_with_the_same_product(family, dtype):
    model = network(family, hidden_size=264, intermediate_size=FEED, spread=0.1)
    fuse(model)
    read = FusedWeights(model, dtype)
    matrix = read.layers[1].gate_up
    assert (matrix.packed is not None) == can_pack(dtype)
    assert FusedWeights(network(family), dtype).layers[1].gate_up.packed is None
    for rows in (1, 5, 64):
        inputs = torch.randn(rows, 264, generator=torch.Generator().manual_seed(rows))
        found = matrix(inputs)
        expected = inputs.to(dtype) @ matrix.weight_OE.t()
        expected = expected if matrix.bias_O is None else expected + matrix.bias_O
        assert found.dtype is dtype
        wide = (inputs.double() @ matrix.weight_OE.double().t()).abs().max()
        limit = 1e-6 if dtype is torch.float32 else 1e-2
        torch.testing.assert_close(found / wide, expected / wide, rtol=0, atol=limit)


def test_a_processor_with_onednn_has_an_order_for_float32_and_none_for_float64():
    assert can_pack(torch.float32) == torch.backends.mkldnn.is_available()
    assert not can_pack(torch.float64)


@torch.no_grad()
def test_what_lies_in_another_order_is_given_back_and_made_again_of_the_weights_as_they_are():
    model = network(hidden_size=264, intermediate_size=FEED)
    read = FusedWeights(model, torch.float32)
    before = read.layers[0].gate_up(torch.ones(1, 264))
    for _ in range(2):  # nothing is left to give back, and that is no error
        read.release()
        assert not read.layers
    model.model.layers[0].mlp.up_proj.weight.mul_(2.0)
    read.refresh()
    after = read.layers[0].gate_up(torch.ones(1, 264))
    torch.testing.assert_close(after[:, :FEED], before[:, :FEED])
    torch.testing.assert_close(after[:, FEED:], 2 * before[:, FEED:])


def test_copies_in_another_number_type_are_made_again_when_asked():
    model = network()
    read = FusedWeights(model, torch.bfloat16)
    down = model.model.layers[0].mlp.down_proj.weight
    with torch.no_grad():
        down.fill_(2.0)
    assert not read.layers[0].down.weight_OE.eq(2).all()
    read.refresh()
    assert read.layers[0].down.weight_OE.dtype is torch.bfloat16
    assert read.layers[0].down.weight_OE.eq(2).all()


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_adapters_are_part_of_what_is_read_and_the_weights_beneath_stay():
    peft = importlib.import_module("peft")
    model = network()
    beneath = copy.deepcopy(model.model.layers[0].self_attn.q_proj.weight)
    adapted = peft.get_peft_model(
        model, peft.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj"])
    )
    fuse(adapted)
    read = FusedWeights(adapted, torch.float32)
    module = model.model.layers[0].self_attn.q_proj
    for round_ in range(3):
        with torch.no_grad():
            module.lora_B["default"].weight.fill_(0.1 * round_)
        read.refresh()
        change = module.scaling["default"] * (
            module.lora_B["default"].weight @ module.lora_A["default"].weight
        )
        mine = read.layers[0].query_key_value.weight_OE[: len(beneath)]
        torch.testing.assert_close(mine, (beneath + change).detach())
    assert torch.equal(module.base_layer.weight, beneath)


def test_a_fused_model_takes_saved_weights_in_place(tmp_path):
    model, other = local_model(), local_model(seed=9)
    fuse(model.network)
    fuse(other.network)
    read = FusedWeights(model.network, torch.float32)
    other.save(tmp_path)
    model.load_weights(tmp_path)
    assert same_weights(weights(model.network), weights(other.network))
    theirs = FusedWeights(other.network, torch.float32)
    mine, yours = (each.layers[1].query_key_value.weight_OE for each in (read, theirs))
    assert torch.equal(mine, yours)
