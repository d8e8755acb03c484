"""A small tokenizer for a model that starts from nothing: byte-level BPE with single digits.

Numbers are spelt digit by digit, so that reading and copying one is the same skill everywhere.
The chat's control tokens are special: no text is ever encoded to them. The frame of a call to
the one tool is a token of its own at each end; it is ordinary text and decodes to itself.
"""

from collections.abc import Iterable, Sequence

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as InTurn
from tokenizers.trainers import BpeTrainer

from forethought.core.messages import ToolSpec

CONTROL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tools>",
    "</tools>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
PIECES = Regex(r"\\boxed\{|\\[^\d\n]| ?[A-Za-z]+|\d|[^\sA-Za-z\d]|\s+")


def train_tokenizer(texts: Iterable[str], tools: Sequence[ToolSpec], vocabulary: int) -> Tokenizer:
    """Learn a vocabulary of at most `vocabulary` tokens from `texts`.

    The 256 bytes are always in it, so every text can be written: they and the control tokens take
    280, and `vocabulary` is no less than 320.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = InTurn(
        [Split(PIECES, "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocabulary - len(_frames(tools)),
        special_tokens=list(CONTROL),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(frame, normalized=False) for frame in _frames(tools)])
    return tokenizer


def _frames(tools: Sequence[ToolSpec]) -> list[str]:
    frames: list[str] = []
    for tool in tools:
        required = list(tool.parameters.get("required", ()))
        if len(required) == 1:
            frames.append(f'{{"name": "{tool.name}", "arguments": {{"{required[0]}": "')
    return [*dict.fromkeys(frames), '"}}'] if frames else []
