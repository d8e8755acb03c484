"""The decoder is the library's own forward pass, by another way."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from forethought.core.errors import RecipeError
from forethought.policy.local.decoder import CACHE_BLOCK, Cache, Decoder, rotate
from tiny import FAMILIES, VOCABULARY, network

EXACT = {"rtol": 0, "atol": 1e-5}


def ids(rows, length, seed=0, vocabulary=VOCABULARY):
    return torch.randint(vocabulary, (rows, length), generator=torch.Generator().manual_seed(seed))


def stepped(decoder, ids_BT, start):
    """Logits at the end of the first `start` ids, then after each further id, [B, steps, V]."""
    cache = Cache(keys=[], values=[])
    logits = [decoder.logits(decoder.hidden(ids_BT[:, :start], cache)[:, -1])]
    for place in range(start, ids_BT.shape[1]):
        where_B = torch.full((len(ids_BT),), place)
        logits.append(decoder.logits(decoder.step(ids_BT[:, place], where_B, cache)))
    return torch.stack(logits, dim=1)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_whole_rows_give_the_logits_of_transformers(family):
    model = network(family)
    decoder = Decoder(model)
    ids_BT = ids(3, 17)
    torch.testing.assert_close(
        decoder.logits(decoder.hidden(ids_BT)), model(ids_BT).logits, **EXACT
    )


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_steps_with_a_cache_give_the_logits_of_transformers(family):
    model = network(family)
    ids_BT = ids(3, 17)
    expected = model(ids_BT).logits[:, 4:]
    torch.testing.assert_close(stepped(Decoder(model), ids_BT, 5), expected, **EXACT)


def test_qwen2_has_biases_and_qwen3_has_norms_that_are_not_trivial():
    assert network("qwen2").model.layers[0].self_attn.q_proj.bias.abs().min() > 0
    assert network("qwen3").model.layers[0].self_attn.k_norm.weight.std() > 0.1


@torch.no_grad()
def test_rows_of_different_lengths_step_as_if_each_were_alone():
    model = network()
    decoder = Decoder(model)
    long, short = ids(1, 9)[0], ids(1, 4, seed=1)[0]
    padded = torch.stack((long, torch.cat((short, torch.zeros(5, dtype=torch.long)))))
    cache = Cache(keys=[], values=[])
    decoder.hidden(padded, cache)
    hidden = decoder.step(torch.tensor([3, 5]), torch.tensor([9, 4]), cache)
    for row, whole in zip(hidden, ([*long, 3], [*short, 5]), strict=True):
        alone = model(torch.tensor([whole])).logits[0, -1]
        torch.testing.assert_close(decoder.logits(row), alone, **EXACT)


@torch.no_grad()
def test_what_stands_to_the_right_of_a_token_does_not_reach_it():
    decoder = Decoder(network())
    one, other = ids(1, 8), ids(1, 8)
    other[0, 5:] = (other[0, 5:] + 1) % VOCABULARY
    one_hidden, other_hidden = decoder.hidden(one), decoder.hidden(other)
    torch.testing.assert_close(one_hidden[:, :5], other_hidden[:, :5], **EXACT)
    assert not torch.allclose(one_hidden[:, 5:], other_hidden[:, 5:])


@torch.no_grad()
def test_rows_longer_than_the_first_table_of_rotations_are_right_too():
    shape = {"num_hidden_layers": 1, "max_position_embeddings": 8192}
    model = network("llama", **shape)
    decoder = Decoder(model)
    ids_BT = ids(1, 4200)
    torch.testing.assert_close(
        decoder.hidden(ids_BT)[:, -3:], model.model(ids_BT).last_hidden_state[:, -3:], **EXACT
    )


def test_a_turn_beyond_the_first_table_of_rotations_leaves_a_decoder_that_can_be_trained():
    model = network("llama", num_hidden_layers=1, max_position_embeddings=8192)
    decoder = Decoder(model)
    with torch.inference_mode():
        decoder.hidden(ids(1, 4200))
    decoder.logits(decoder.hidden(ids(1, 4200))[:, -1]).sum().backward()
    assert model.model.layers[0].self_attn.q_proj.weight.grad.abs().sum() > 0


@torch.no_grad()
def test_rotations_are_not_computed_again_for_every_token():
    model = network("llama", num_hidden_layers=1, max_position_embeddings=8192)
    decoder = Decoder(model)
    computed = []
    model.model.rotary_emb.register_forward_hook(lambda *_: computed.append(1))
    cache = Cache(keys=[], values=[])
    decoder.hidden(ids(1, 4100), cache)
    for place in range(4100, 4104):
        decoder.step(torch.tensor([1]), torch.tensor([place]), cache)
    assert len(computed) == 1


def test_a_rotation_by_a_right_angle_turns_the_halves_into_each_other():
    states = torch.tensor([1.0, 2.0, 3.0, 4.0])
    turned = rotate(states, cos=torch.zeros(4), sin=torch.ones(4))
    assert turned.tolist() == [-3.0, -4.0, 1.0, 2.0]


def test_a_cache_grows_in_blocks_and_keeps_what_it_holds():
    key = torch.arange(6.0).view(1, 1, 3, 2)
    cache = Cache(keys=[key], values=[-key])
    cache.grow(3)
    assert cache.places == 3
    cache.grow(4)
    assert cache.places == 3 + CACHE_BLOCK
    assert torch.equal(cache.keys[0][:, :, :3], key)
    assert torch.equal(cache.values[0][:, :, :3], -key)


def test_a_row_of_a_cache_may_be_picked_twice():
    cache = Cache(keys=[torch.arange(3.0).view(3, 1, 1, 1)], values=[torch.zeros(3, 1, 1, 1)])
    cache.pick(torch.tensor([2, 0, 2]))
    assert cache.keys[0].flatten().tolist() == [2.0, 0.0, 2.0]


def test_an_unknown_architecture_is_refused_by_name():
    stranger = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=8))
    with pytest.raises(RecipeError, match=r"'gpt2' is not one of llama, qwen2, qwen3"):
        Decoder(stranger)


def test_a_model_with_sliding_windows_is_refused():
    sliding = network("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=0)
    with pytest.raises(RecipeError, match="sliding"):
        Decoder(sliding)


def test_a_model_with_another_activation_is_refused():
    with pytest.raises(RecipeError, match="'gelu'"):
        Decoder(network("llama", hidden_act="gelu"))
