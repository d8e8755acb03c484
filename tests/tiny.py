"""Tiny real models: random weights of every supported family, and what is needed around them."""

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from forethought.policy.formats import chat_format
from forethought.policy.local.models import LocalModel
from forethought.policy.protocol import SamplingSettings
from forethought.policy.small_tokenizer import train_tokenizer
from scripted import PYTHON

FAMILIES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
VOCABULARY = 29
TEXTS = ("6 * 7 is 42.", "print(6 * 7)", "the answer is \\boxed{42}", "été 123 456 \\n")
GREEDY = SamplingSettings(temperature=0.0, max_tokens=12)


def network(family="qwen3", *, seed=0, spread=0.3, **sizes):
    """A model with grouped heads whose every number is drawn, biases and norms included."""
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 40,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "eos_token_id": None,
        "pad_token_id": None,
        "bos_token_id": None,
    }
    if family == "qwen3":
        shape["head_dim"] = 8  # not the width divided by the heads
    config, kind = FAMILIES[family]
    model = kind(config(**shape | sizes)).eval()
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            about = 1.0 if "norm" in name else 0.0
            weight.copy_(about + spread * torch.randn(weight.shape, generator=drawn))
    return model


def tokenizer():
    """A small tokenizer that knows the frame of a call to the one tool."""
    return train_tokenizer(TEXTS * 3, [PYTHON], 320)


def local_model(family="qwen3", **sizes):
    """A tiny network with a tokenizer and a format, as the learner wants it."""
    words = tokenizer()
    return LocalModel(
        network=network(family, **sizes), tokenizer=words, format=chat_format("compact", words)
    )


def weights(model):
    """A copy of every weight, by name."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def same_weights(one, other):
    """Whether two sets of weights are equal to the bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
