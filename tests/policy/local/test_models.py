"""Models are made, adapted, saved and loaded without losing a bit."""

import asyncio
import copy
import json
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from forethought.core.errors import RecipeError
from forethought.core.messages import User
from forethought.policy.local.crew import LocalCrew
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.linear import Arithmetic
from forethought.policy.local.models import (
    fresh_model,
    fresh_parameters,
    load_local,
    merged,
    sampling_defaults,
    with_adapters,
)
from forethought.policy.local.packed import Effort, packed_hidden
from forethought.policy.local.packing import pack
from forethought.policy.local.replica import trained_parameters
from forethought.policy.local.sampler import LocalSampler
from forethought.policy.local.settings import FreshModel
from forethought.policy.protocol import SamplingSettings
from tiny import local_model, same_weights, tokenizer, weights

# The adapters' library asks the models' library for something that it is about to rename.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

SMALL = FreshModel(type="fresh", width=16, layers=1, heads=2, feed=24, context=64)
IDS = torch.tensor([[1, 2, 3, 4, 5]])


@torch.no_grad()
def logits(model):
    return model.network(IDS).logits


@pytest.fixture
def adapted(tmp_path):
    """A saved model, loaded again and given adapters that are not trivial."""
    local_model().save(tmp_path / "base")
    model = with_adapters(load_local(str(tmp_path / "base")), rank=2, alpha=4)
    with torch.no_grad():
        for parameter in trained_parameters(model.network):
            parameter.copy_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_a_fresh_model_is_what_the_settings_say(architecture):
    words = tokenizer()
    settings = SMALL.model_copy(update={"architecture": architecture})
    model = fresh_model(settings, words, seed=0)
    config = model.network.config
    assert config.model_type == architecture
    assert (config.hidden_size, config.num_hidden_layers, config.head_dim) == (16, 1, 8)
    assert config.vocab_size == words.get_vocab_size()
    assert Decoder(model.network).context == 64
    assert model.format.name == "compact"


def test_a_fresh_model_counts_its_numbers():
    words = tokenizer()
    model = fresh_model(SMALL.model_copy(update={"architecture": "llama"}), words, seed=0)
    layer = 4 * 16 * 16 + 3 * 16 * 24 + 2 * 16  # attention, feed-forward, two norms
    assert model.parameters == words.get_vocab_size() * 16 + layer + 16
    assert fresh_parameters(SMALL, words.get_vocab_size()) == model.parameters


def test_a_seed_decides_the_weights_and_leaves_other_randomness_alone():
    words = tokenizer()
    state = torch.get_rng_state()
    one, again, other = (fresh_model(SMALL, words, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert same_weights(weights(one.network), weights(again.network))
    assert not same_weights(weights(one.network), weights(other.network))


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(RecipeError, match=r"model\.width = 16.*multiple of model\.heads = 3"):
        FreshModel(type="fresh", width=16, heads=3)


def test_heads_of_an_odd_size_are_refused():
    with pytest.raises(RecipeError, match=r"model\.width = 12, model\.heads = 4.*3 wide.*even"):
        FreshModel(type="fresh", width=12, heads=4)
    words = tokenizer()
    even = fresh_model(FreshModel(type="fresh", width=8, heads=4, layers=1), words, seed=0)
    assert logits(even).shape == (1, 5, words.get_vocab_size())


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_saved_model_comes_back_to_the_bit_with_its_words_and_format(family, tmp_path):
    model = local_model(family)
    model.save(tmp_path)
    loaded = load_local(str(tmp_path))
    assert same_weights(weights(loaded.network), weights(model.network))
    assert loaded.format.name == "compact"
    assert loaded.format.opening([User(text="6 * 7?")], ()) == model.format.opening(
        [User(text="6 * 7?")], ()
    )


@pytest.mark.parametrize("thinking", ["keep", "strip"])
def test_a_saved_model_says_what_became_of_its_earlier_thinking(thinking, tmp_path):
    replace(local_model(), thinking=thinking).save(tmp_path / "base")
    for words in ((), ("compact",)):
        assert load_local(str(tmp_path / "base"), *words).thinking == thinking
    adapted = with_adapters(load_local(str(tmp_path / "base")), rank=2, alpha=4)
    assert adapted.thinking == thinking
    other = "strip" if thinking == "keep" else "keep"
    replace(adapted, thinking=other).save(tmp_path / "adapters")
    loaded = load_local(str(tmp_path / "adapters"))
    assert loaded.thinking == merged(loaded).thinking == other


def test_a_folder_that_says_nothing_of_thinking_is_loaded_as_before(tmp_path):
    local_model().save(tmp_path)
    assert json.loads((tmp_path / "forethought.json").read_text()) == {"format": "compact"}
    assert load_local(str(tmp_path)).thinking is None


def test_weights_are_loaded_in_place(tmp_path):
    source, target = local_model(seed=1), local_model(seed=2)
    source.save(tmp_path)
    shared = next(target.network.parameters())
    target.load_weights(tmp_path)
    assert same_weights(weights(target.network), weights(source.network))
    assert shared is next(target.network.parameters())
    assert torch.equal(shared, next(source.network.parameters()))


def test_weights_of_another_shape_of_model_are_not_half_loaded(tmp_path):
    local_model(num_hidden_layers=1).save(tmp_path)
    with pytest.raises(RuntimeError, match="Missing key"):
        local_model(num_hidden_layers=2).load_weights(tmp_path)


def test_a_recipe_may_choose_another_format_than_the_saved_one(tmp_path):
    local_model().save(tmp_path)
    assert load_local(str(tmp_path), "hermes").format.name == "hermes"


@pytest.mark.parametrize("lost", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_that_lacks_a_part_is_refused_by_name(lost, tmp_path):
    local_model().save(tmp_path)
    (tmp_path / lost).unlink()
    with pytest.raises(RecipeError, match=rf"model '{tmp_path}' cannot be loaded.*give a folder"):
        load_local(str(tmp_path))


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("model.safetensors", b"\x10"),
        ("model.safetensors", b""),
        ("tokenizer.json", b"garbage"),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"\xff"),
        ("forethought.json", b"{}"),
        ("forethought.json", b"[]"),
        ("forethought.json", b'{"format": "odd"}'),
        ("forethought.json", b'{"format": "compact", "thinking": "odd"}'),
        ("adapter_config.json", b"{}"),
    ],
)
def test_a_folder_with_a_damaged_part_is_refused(part, content, tmp_path):
    local_model().save(tmp_path)
    (tmp_path / part).write_bytes(content)
    with pytest.raises(RecipeError, match=rf"model '{tmp_path}' cannot be loaded.*give a folder"):
        load_local(str(tmp_path))


def test_a_folder_without_a_format_needs_one_named(tmp_path):
    local_model().save(tmp_path)
    (tmp_path / "forethought.json").unlink()
    assert load_local(str(tmp_path), "compact").format.name == "compact"
    with pytest.raises(RecipeError, match="format"):
        load_local(str(tmp_path))


def test_only_adapters_are_trained(adapted):
    trained = {id(each) for each in trained_parameters(adapted.network)}
    names = {name for name, each in adapted.network.named_parameters() if id(each) in trained}
    assert len(names) == 2 * 2 * 7  # two matrices for each of seven modules in two layers
    assert all(".lora_A." in name or ".lora_B." in name for name in names)


def test_fresh_adapters_change_nothing_and_follow_from_their_seed(tmp_path):
    model = local_model()
    before = logits(model)
    one = with_adapters(copy.deepcopy(model), rank=2, alpha=4)
    again = with_adapters(copy.deepcopy(model), rank=2, alpha=4)
    torch.testing.assert_close(logits(one), before, rtol=0, atol=1e-6)
    assert same_weights(weights(one.network), weights(again.network))


def test_adapters_come_back_to_the_bit(adapted, tmp_path):
    adapted.save(tmp_path / "adapters")
    loaded = load_local(str(tmp_path / "adapters"))
    assert same_weights(weights(loaded.network), weights(adapted.network))
    assert len(trained_parameters(loaded.network)) == len(trained_parameters(adapted.network))
    assert loaded.format.name == "compact"


def test_adapters_are_loaded_in_place(adapted, tmp_path):
    adapted.save(tmp_path / "adapters")
    expected = weights(adapted.network)
    with torch.no_grad():
        for parameter in trained_parameters(adapted.network):
            parameter.zero_()
    adapted.load_weights(tmp_path / "adapters")
    assert same_weights(weights(adapted.network), expected)


@torch.no_grad()
def packed_logits(model):
    """What training computes: logits [T, V] after each of `IDS`."""
    decoder, packing = Decoder(model.network), pack(IDS.tolist())
    effort = Effort(arithmetic=Arithmetic(dtype=torch.float32))
    return decoder.head(packed_hidden(decoder, packing, packing.place_BT[0], effort))


def sampled_turn(model, settings, prompt=(1, 2, 3), seed=7):
    """What the sampler says after a prompt."""

    async def run():
        seat = LocalSampler(crew=LocalCrew(model.network)).sit()
        return await seat.sample(prompt, (), settings, seed)

    return asyncio.run(run())


@torch.no_grad()
def test_a_merged_folder_says_elsewhere_what_training_and_sampling_compute(adapted, tmp_path):
    base = load_local(adapted.network.peft_config["default"].base_model_name_or_path)
    trained = packed_logits(adapted)
    turn = sampled_turn(adapted, SamplingSettings(max_tokens=12))
    merged(adapted).save(tmp_path / "merged")
    names = {path.name for path in (tmp_path / "merged").iterdir()}
    assert not {name for name in names if "adapter" in name}
    elsewhere = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    torch.testing.assert_close(elsewhere(IDS).logits[0], trained, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(logits(base)[0], trained, atol=1e-2)
    said = elsewhere(torch.tensor([[1, 2, 3, *turn.ids]])).logits[0, 2:-1].log_softmax(-1)
    logprobs = said.gather(1, torch.tensor(turn.ids)[:, None])[:, 0]
    torch.testing.assert_close(logprobs, torch.tensor(turn.logprobs), rtol=1e-5, atol=1e-5)


def test_a_merged_folder_is_loaded_as_a_whole_model(adapted, tmp_path):
    merged(adapted).save(tmp_path / "merged")
    whole = load_local(str(tmp_path / "merged"))
    assert len(trained_parameters(whole.network)) == len(list(whole.network.parameters()))
    assert whole.format.name == "compact"


def test_a_model_without_adapters_is_merged_already():
    model = local_model()
    assert merged(model) is model


def ends_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder).generation_config.eos_token_id


def test_a_model_from_a_folder_ends_its_turns_in_other_programs(tmp_path):
    local_model().save(tmp_path / "a")
    loaded = load_local(str(tmp_path / "a"))
    loaded.save(tmp_path / "b")
    assert ends_of(tmp_path / "b") == [loaded.format.end_of_turn]


@pytest.mark.parametrize(("known", "kept"), [(0, [0]), ([3, 4], [3, 4])])
def test_what_ended_a_text_before_does_so_beside_the_end_of_a_turn(known, kept, tmp_path):
    local_model().save(tmp_path / "a")
    config = tmp_path / "a" / "generation_config.json"
    config.write_text(json.dumps({"eos_token_id": known}))
    loaded = load_local(str(tmp_path / "a"))
    for name in ("b", "c"):
        loaded.save(tmp_path / name)
        loaded = load_local(str(tmp_path / name))
        assert ends_of(tmp_path / name) == [*kept, loaded.format.end_of_turn]


def test_a_folder_of_adapters_says_what_ends_a_turn(adapted, tmp_path):
    adapted.save(tmp_path / "adapters")
    ends = GenerationConfig.from_pretrained(tmp_path / "adapters").eos_token_id
    assert ends == [adapted.format.end_of_turn]
    merged(load_local(str(tmp_path / "adapters"))).save(tmp_path / "merged")
    assert ends_of(tmp_path / "merged") == ends


BROUGHT = {"top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05, "temperature": 0.7}


@pytest.mark.parametrize("sampling", [{}, {"do_sample": True}])
def test_what_a_folder_says_of_sampling_is_told_and_survives_a_checkpoint(sampling, tmp_path):
    model = local_model()
    model.save(tmp_path)
    assert sampling_defaults(load_local(str(tmp_path))) == {}
    config = tmp_path / "generation_config.json"
    config.write_text(json.dumps(BROUGHT | sampling))
    loaded = load_local(str(tmp_path))
    assert sampling_defaults(loaded) == BROUGHT
    loaded.save(tmp_path / "checkpoint")
    assert sampling_defaults(load_local(str(tmp_path / "checkpoint"))) == BROUGHT
    config.unlink()
    assert sampling_defaults(load_local(str(tmp_path))) == {}


def test_no_sampling_value_of_a_folder_reaches_the_sampler(tmp_path):
    def said(folder):
        return sampled_turn(load_local(str(folder)), SamplingSettings(max_tokens=40))

    local_model().save(tmp_path)
    plain = said(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps(BROUGHT | {"top_k": 1}))
    assert said(tmp_path) == plain


def test_a_tokenizer_that_was_published_cutting_and_filling_up_does_neither(tmp_path):
    model = local_model()
    model.save(tmp_path)
    cutting = tokenizer()
    cutting.enable_truncation(4)
    cutting.enable_padding(length=9)
    (tmp_path / "tokenizer.json").write_text(cutting.to_str())
    loaded = load_local(str(tmp_path))
    for words in ("6", "6 * 7 is 42. " * 9):
        assert loaded.tokenizer.encode(words).ids == model.tokenizer.encode(words).ids
    question = [User(text="6 * 7? " * 9)]
    assert loaded.format.opening(question, ()) == model.format.opening(question, ())


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
@torch.no_grad()
def test_a_saved_fresh_model_ends_its_turns_in_other_programs(architecture, tmp_path):
    settings = SMALL.model_copy(update={"architecture": architecture})
    model = fresh_model(settings, tokenizer(), 0)
    end = model.format.end_of_turn
    model.save(tmp_path)
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert reloaded.config.eos_token_id == end
    head = torch.nn.Linear(16, reloaded.config.vocab_size)
    head.weight.zero_()
    head.bias.copy_(torch.nn.functional.one_hot(torch.tensor(end), len(head.bias)))
    reloaded.lm_head = head  # it would say nothing but the end, again and again
    said = reloaded.generate(IDS, max_new_tokens=20, do_sample=False)
    assert said[0].tolist() == [*IDS[0].tolist(), end]
