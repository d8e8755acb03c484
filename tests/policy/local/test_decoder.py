"""What is read of a model, and which models are refused."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from forethought.core.errors import RecipeError
from forethought.policy.local.decoder import Decoder, turn
from tiny import network


def test_qwen2_has_biases_and_qwen3_has_norms_that_are_not_trivial():
    assert network("qwen2").model.layers[0].self_attn.q_proj.bias.abs().min() > 0
    assert network("qwen3").model.layers[0].self_attn.k_norm.weight.std() > 0.1


@torch.no_grad()
def test_rotations_beyond_the_first_table_are_the_librarys_too():
    model = network("llama", num_hidden_layers=1, max_position_embeddings=8192)
    decoder = Decoder(model)
    expected = model.model.rotary_emb(torch.zeros(1, 1), torch.arange(4200)[None])
    for mine, theirs in zip(decoder.rotations(4200), expected, strict=True):
        torch.testing.assert_close(mine, theirs[0])


def test_rotations_made_while_sampling_can_be_trained_with():
    decoder = Decoder(network("llama", num_hidden_layers=1, max_position_embeddings=8192))
    with torch.inference_mode():
        cos_TD, _ = decoder.rotations(4200)
    assert not cos_TD.is_inference()


def test_rotations_are_not_computed_again_for_every_token():
    model = network("llama", num_hidden_layers=1, max_position_embeddings=8192)
    decoder = Decoder(model)
    computed = []
    model.model.rotary_emb.register_forward_hook(lambda *_: computed.append(1))
    for length in (4100, 4101, 4102):
        decoder.rotations(length)
    assert len(computed) == 1


def test_a_rotation_by_a_right_angle_turns_the_halves_into_each_other():
    states = torch.tensor([1.0, 2.0, 3.0, 4.0])
    turn(states, cos=torch.zeros(4), signed_sin=torch.tensor([-1.0, -1.0, 1.0, 1.0]))
    assert states.tolist() == [-3.0, -4.0, 1.0, 2.0]


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
