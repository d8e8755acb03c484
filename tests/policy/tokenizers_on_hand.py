"""Real tokenizers where the data is present, and a small one that is always there."""

import gzip
from functools import cache
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

DATA = Path(__file__).parents[2] / "../shared/data"
CONTROL = (
    *("<|im_start|>", "<|im_end|>", "<tools>", "</tools>", "<think>", "</think>"),
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
)
FRAME, FRAME_END = '{"name": "python", "arguments": {"code": "', '"}}'


@cache
def small_tokenizer(*frames: str) -> Tokenizer:
    """Byte-level, with every control token; `frames` are added as ordinary tokens."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=400,
        special_tokens=list(CONTROL),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["user system assistant python code print answer"] * 3, trainer)
    tokenizer.add_tokens([AddedToken(frame, normalized=False) for frame in frames])
    return tokenizer


@cache
def real_tokenizer(name: str) -> Tokenizer:
    """A published tokenizer, `qwen2_5` or `smollm2`."""
    path = DATA / f"tokenizers/{name}_tokenizer.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is not present")
    return Tokenizer.from_str(gzip.decompress(path.read_bytes()).decode())


def published_template(path: str) -> str:
    """The source of a published chat template."""
    if not (DATA / path).exists():
        pytest.skip(f"{DATA / path} is not present")
    return (DATA / path).read_text()
