"""Text to ids and back, with control tokens only where a format puts them on purpose.

A format renders a conversation as pieces: a `Mark` is control text that the format writes, a
`str` is anybody's text. Only a `Mark` can become the id of an added token.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Mark:
    """Control text: one added token where the tokenizer has it, ordinary text where not.

    >>> Mark("<|im_end|>").text
    '<|im_end|>'
    """

    text: str


Piece = Mark | str


def added_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """The id of every added token (control tokens among them) by its text."""
    return {token.content: id for id, token in tokenizer.get_added_tokens_decoder().items()}


def plain_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Encode text of which nothing may be read as an added token.

    Where the text spells an added token, it is cut after the first character and both sides are
    encoded apart; all else is encoded as the tokenizer does. An added token of a single character
    cannot be cut and stays.
    """
    added = {word: id for word, id in added_tokens(tokenizer).items() if len(word) > 1}
    if not added:
        return tokenizer.encode(text, add_special_tokens=False).ids
    cuts = [match.start() + 1 for match in _spelling(frozenset(added)).finditer(text)]
    forbidden = frozenset(added.values())
    ids: list[int] = []
    for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True):
        ids += _ids_without(tokenizer, text[start:stop], forbidden)
    return ids


def marked_ids(tokenizer: Tokenizer, pieces: Iterable[Piece]) -> list[int]:
    """Encode pieces: marks as control tokens, the text between two of them as one stretch."""
    added = added_tokens(tokenizer)
    ids: list[int] = []
    stretch: list[str] = []
    for piece in pieces:
        text = piece.text if isinstance(piece, Mark) else piece
        if isinstance(piece, Mark) and text in added:
            ids += [*plain_ids(tokenizer, "".join(stretch)), added[text]]
            stretch.clear()
        else:
            stretch.append(text)
    return ids + plain_ids(tokenizer, "".join(stretch))


def decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of ids, control tokens spelled out."""
    return tokenizer.decode(ids, skip_special_tokens=False)


@lru_cache(maxsize=16)
def _spelling(words: frozenset[str]) -> re.Pattern[str]:
    # Looking ahead finds overlapping spellings too.
    return re.compile(f"(?={'|'.join(map(re.escape, words))})")


def _ids_without(tokenizer: Tokenizer, text: str, forbidden: frozenset[int]) -> list[int]:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if forbidden.isdisjoint(ids):
        return ids
    # A normalizer made an added token out of other characters: one at a time it cannot.
    single = (tokenizer.encode(character, add_special_tokens=False).ids for character in text)
    return [id for ids in single for id in ids]
