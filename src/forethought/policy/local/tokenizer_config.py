"""How transformers is to read a saved tokenizer: as it stands in `tokenizer.json`.

Without it a class is chosen by the network's family, which puts that family's own way of cutting
text in place of the tokenizer's.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer

from forethought.policy.chat_template import chat_template
from forethought.policy.formats import ChatFormat
from forethought.policy.protocol import ThinkingHistory
from forethought.policy.tokenizing import added_tokens

TOKENIZER_CONFIG = "tokenizer_config.json"
_PADDING = "<|endoftext|>"


def write_tokenizer_config(
    folder: Path, tokenizer: Tokenizer, words: ChatFormat, thinking: ThinkingHistory | None
) -> None:
    """Write the class, what ends and what fills up a text, and the format's template if any."""
    end = tokenizer.id_to_token(words.end_of_turn)
    template = chat_template(words.name, thinking)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "eos_token": end,
        "pad_token": _PADDING if _PADDING in added_tokens(tokenizer) else end,
        **({} if template is None else {"chat_template": template}),
    }
    (folder / TOKENIZER_CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")
