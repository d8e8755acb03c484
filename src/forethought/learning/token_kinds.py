"""What an assistant's token is part of: its thinking, a call, or what it answers with."""

import re
from collections.abc import Iterator

from tokenizers import Tokenizer

from forethought.core.trajectory import Tokens
from forethought.policy.calls import CALL, CALL_END
from forethought.policy.parsing import THINK, THINK_END
from forethought.policy.tokenizing import decode

KINDS = ("thinking", "call", "answer")
"""All that is neither thinking nor call is answer, the end of the turn included."""
NOT_TRAINED = -1

_FRAMED = re.compile(
    rf"(?P<thinking>{THINK}.*?(?:{THINK_END}|\Z))|(?P<call>{CALL}.*?(?:{CALL_END}|\Z))", re.DOTALL
)
_OPENING = 4
"""Tokens before a turn that may open its thinking."""


def token_kinds(tokens: Tokens, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The place in `KINDS` of each trained token, `NOT_TRAINED` of the others.

    Tags belong to what they frame. A turn whose prompt opens its thinking begins inside it.
    """
    kinds = [NOT_TRAINED] * len(tokens)
    for start, stop in _stretches(tokens):
        before = decode(tokenizer, tokens.ids[max(start - _OPENING, 0) : start])
        opened = THINK if before.rstrip().endswith(THINK) else ""
        words = [decode(tokenizer, [id]) for id in tokens.ids[start:stop]]
        kinds[start:stop] = _kinds(opened, words)
    return tuple(kinds)


def _stretches(tokens: Tokens) -> Iterator[tuple[int, int]]:
    """Where the assistant speaks without a pause."""
    start = 0
    for place, sampled in enumerate((*tokens.sampled, False)):
        if not sampled:
            if place > start:
                yield start, place
            start = place + 1


def _kinds(opened: str, words: list[str]) -> Iterator[int]:
    framed = list(_FRAMED.finditer(opened + "".join(words)))
    place = len(opened)
    for word in words:
        around = next((each for each in framed if each.start() <= place < each.end()), None)
        kind = "answer" if around is None or around.lastgroup is None else around.lastgroup
        yield KINDS.index(kind)
        place += len(word)
