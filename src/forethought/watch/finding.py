"""One sentence that a run supports, and what kind of sentence it is."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a finding is worth."""

    LEARNT = "learnt"
    NOT_SHOWN = "not shown"
    LOST = "lost"
    CAUTION = "caution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence about the run, for a reader who was not there.

    >>> Finding(kind=Kind.LEARNT, text="avg@8 rose.").kind.value
    'learnt'
    """

    kind: Kind
    text: str
