"""A bonus for answers that few attempts of a group give.

A count-based bonus, 1 over the square root of the count (1611.04717), where what is counted is the
final answer, as in outcome-based exploration (2509.06941): final answers are few, and how a program
is laid out does not make one new. A pure function of the group.
"""

import math
from collections import Counter
from collections.abc import Sequence

from forethought.core.trajectory import Episode
from forethought.tasks.answers import canonical_answer


def rarity(episodes: Sequence[Episode]) -> tuple[float, ...]:
    """For each attempt of a group, 1 / sqrt(attempts with its answer); 0 without an answer.

    Two spellings of one value are one answer.
    """
    answers = [episode.verdict.answer for episode in episodes]
    named = [None if answer is None else canonical_answer(answer) for answer in answers]
    counts = Counter(named)
    return tuple(0.0 if name is None else 1.0 / math.sqrt(counts[name]) for name in named)
