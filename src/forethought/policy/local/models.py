"""Models on this machine: made fresh, loaded, adapted, saved as ordinary Hugging Face folders."""

import copy
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors_torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging as transformers_logging

from forethought.core.errors import PolicyError, RecipeError, boundary
from forethought.policy.formats import ChatFormat, chat_format
from forethought.policy.local.description import saved_format, saved_thinking, write_description
from forethought.policy.local.settings import FormatName, FreshModel
from forethought.policy.local.tokenizer_config import write_tokenizer_config
from forethought.policy.local.value_head import belongs_to_head
from forethought.policy.protocol import ThinkingHistory

tensors: Any = safetensors_torch
TOKENIZER = "tokenizer.json"
GENERATION = "generation_config.json"
ADAPTER = "adapter_config.json"
WEIGHTS = "*model*.safetensors"
"""The files that hold a network's weights, or its adapters'."""
ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

NEUTRAL = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
}
"""What a `generation_config.json` may say of sampling, each with the value that changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """Weights, their tokenizer and their chat format.

    `thinking` is what the model was trained to see of its earlier thinking, None if nobody said.
    """

    network: nn.Module
    tokenizer: Tokenizer
    format: ChatFormat
    thinking: ThinkingHistory | None = None

    @property
    def parameters(self) -> int:
        """How many numbers the network has."""
        return sum(each.numel() for each in self.network.parameters())

    def save(self, folder: Path) -> dict[str, Mapping[str, Tensor]]:
        """Write network, tokenizer and how it is spoken with into `folder`.

        Other programs read in `generation_config.json` that the format's end of turn ends a text,
        beside what ended one before. Returns the weights that are to be in the files, by the
        pattern of these: of weights that are tied, one alone is written.
        """
        transformers_logging.disable_progress_bar()
        network: Any = self.network
        weights = _own_weights(network)
        whole = {} if hasattr(network, "peft_config") else {"state_dict": {**weights}}
        network.save_pretrained(folder, **whole)  # which empties the dictionary that it is given
        # A copy, since the library refuses to save some published configs once they are changed.
        config = copy.deepcopy(network.generation_config)
        config.eos_token_id = _ends(config.eos_token_id, self.format.end_of_turn)
        config.to_json_file(folder / GENERATION)
        # Written by Python, whose errors say that the disk refused; the library's are untyped.
        (folder / TOKENIZER).write_text(self.tokenizer.to_str(pretty=True), encoding="utf-8")
        write_tokenizer_config(folder, self.tokenizer, self.format, self.thinking)
        write_description(folder, self.format.name, self.thinking)
        return {WEIGHTS: weights}

    def load_weights(self, folder: Path) -> None:
        """Take the weights that `save` wrote, in place: whoever shares them sees them."""
        network: Any = self.network
        if hasattr(network, "peft_config"):
            peft: Any = importlib.import_module("peft")  # slow to import, seldom needed

            weights = tensors.load_file(folder / "adapter_model.safetensors")
            peft.set_peft_model_state_dict(network, weights)
        else:
            _take(network, tensors.load_file(folder / "model.safetensors"))


def _own_weights(network: nn.Module) -> dict[str, Tensor]:
    """What of a network is saved, by the names in the file: not a critic's head.

    Of a network with adapters, these alone.
    """
    if hasattr(network, "peft_config"):
        peft: Any = importlib.import_module("peft")
        return peft.get_peft_model_state_dict(network, save_embedding_layers=False)
    state = network.state_dict()
    return {name: weight for name, weight in state.items() if not belongs_to_head(name)}


def _ends(known: int | list[int] | None, end_of_turn: int) -> list[int]:
    """The ids that end a text: those that are known, and the end of a turn.

    >>> _ends(None, 7), _ends(2, 7), _ends([7, 2], 7)
    ([7], [2, 7], [7, 2])
    """
    ends = [known] if isinstance(known, int) else list(known or ())
    return ends if end_of_turn in ends else [*ends, end_of_turn]


def _take(network: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights into the parameters that are there, wherever they lie in memory.

    A weight that is tied to another was saved under one of their names. Raises `RuntimeError` for
    weights of another model, as `load_state_dict` does.
    """
    held = network.state_dict()
    by_place = {held[name].data_ptr(): weight for name, weight in weights.items() if name in held}
    tied = {
        name: by_place[tensor.data_ptr()]
        for name, tensor in held.items()
        if name not in weights and tensor.data_ptr() in by_place
    }
    aside = {name: tensor for name, tensor in held.items() if belongs_to_head(name)}
    network.load_state_dict(weights | tied | aside)


def fresh_model(settings: FreshModel, tokenizer: Tokenizer, seed: int) -> LocalModel:
    """A network with random weights drawn from `seed`; it says in its files what ends its turns."""
    words = chat_format(settings.format, tokenizer)
    sizes: dict[str, Any] = {
        "eos_token_id": words.end_of_turn,
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": settings.width,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": settings.heads,
        "head_dim": settings.width // settings.heads,
        "intermediate_size": settings.feed,
        "max_position_embeddings": settings.context,
        "tie_word_embeddings": True,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if settings.architecture == "qwen3":
            network: nn.Module = Qwen3ForCausalLM(Qwen3Config(**sizes))
        else:
            network = LlamaForCausalLM(LlamaConfig(**sizes))
    return LocalModel(network=network, tokenizer=tokenizer, format=words)


def fresh_parameters(settings: FreshModel, vocabulary: int) -> int:
    """About how many numbers a fresh network would have, before it is made."""
    width = settings.width
    layer = 4 * width**2 + 3 * width * settings.feed + 2 * width
    return vocabulary * width + settings.layers * layer + width


def load_local(name: str, format_name: FormatName | None = None) -> LocalModel:
    """A model from a folder or, where there is a network, from the hub.

    `format_name` None takes the format that the folder was saved with. Raises `RecipeError` for
    a model that is not there, is damaged, has no `tokenizer.json`, or has no format.
    """
    folder = Path(name)
    try:
        if (folder / ADAPTER).is_file():
            return _load_adapted(folder)
        return _load_whole(name, format_name)
    except (OSError, ValueError, KeyError, SafetensorError, PolicyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RecipeError(
            f"model {name!r} cannot be loaded: {reason}; give a folder with intact "
            "config.json, model.safetensors and tokenizer.json, or a hub name and a network"
        ) from error


def sampling_defaults(model: LocalModel) -> dict[str, float]:
    """What the model's `generation_config.json` would have samplers do; nothing here follows it."""
    network: Any = model.network
    said: dict[str, Any] = network.generation_config.to_dict()
    found = {name: said.get(name) for name in NEUTRAL}
    return {name: value for name, value in found.items() if value not in (None, NEUTRAL[name])}


def with_adapters(model: LocalModel, rank: int, alpha: int, seed: int = 0) -> LocalModel:
    """The same model with low-rank adapters (LoRA, arXiv 2106.09685), alone trained.

    They are drawn from `seed` and change nothing until they are trained.
    """
    peft: Any = importlib.import_module("peft")
    settings = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(ADAPTED))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        adapted: Any = peft.get_peft_model(model.network, settings)
    return replace(model, network=adapted)


def merged(model: LocalModel) -> LocalModel:
    """A model with its adapters put into its weights (LoRA: W + alpha / rank * B A), so that it
    stands by itself; one without adapters as it is. Uses `model` up: its network is changed.
    """
    network: Any = model.network
    if not hasattr(network, "peft_config"):
        return model
    return replace(model, network=network.merge_and_unload())


def _load_whole(name: str, format_name: FormatName | None) -> LocalModel:
    """A model that stands by itself."""
    folder = Path(name)
    transformers_logging.disable_progress_bar()
    network: Any = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    # Whatever is wrong with a tokenizer, its library raises a bare `Exception`.
    with boundary(PolicyError, str(folder / TOKENIZER)):
        if folder.is_dir():
            tokenizer = Tokenizer.from_str((folder / TOKENIZER).read_text(encoding="utf-8"))
        else:
            tokenizer = Tokenizer.from_pretrained(name)
    # Some published files ask for both: text would be cut, or rows filled up, without a word.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    words = chat_format(format_name or saved_format(folder), tokenizer)
    thinking = saved_thinking(folder)
    return LocalModel(network=network, tokenizer=tokenizer, format=words, thinking=thinking)


def _load_adapted(folder: Path) -> LocalModel:
    """What `with_adapters` made and `save` wrote: the base model again, and its adapters."""
    peft: Any = importlib.import_module("peft")
    described = json.loads((folder / ADAPTER).read_text())
    base = load_local(described["base_model_name_or_path"], saved_format(folder))
    network: Any = peft.PeftModel.from_pretrained(base.network, folder, is_trainable=True)
    return replace(base, network=network, thinking=saved_thinking(folder))
