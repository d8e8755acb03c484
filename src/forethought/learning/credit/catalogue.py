"""Every form of credit by name. A new one is a file beside this and a line here."""

from collections.abc import Callable, Sequence

from forethought.learning.credit.attempts import (
    UNCREDITED,
    Attempt,
    Credit,
    Turns,
    earned_at_turns,
)
from forethought.learning.credit.gigpo import gigpo
from forethought.learning.credit.merged import merged
from forethought.learning.credit.mt_grpo import mt_grpo
from forethought.learning.credit.outcome import outcome
from forethought.learning.credit.settings import CreditName, CreditSettings
from forethought.learning.credit.turn_rloo import turn_rloo
from forethought.learning.credit.turn_rtg import turn_rtg

Form = Callable[[Sequence[Attempt], CreditSettings], list[float] | list[Turns]]
"""One advantage an attempt, or one a turn of each; the attempts may be those of many groups.

`gae` gives what each turn earned: a critic, which needs the weights, makes advantages of that."""

CREDITS: dict[CreditName, Form] = {
    "outcome": lambda attempts, credit: outcome(attempts, credit.advantage),
    "merged": lambda attempts, credit: merged(attempts, credit.advantage, credit.turn_weight),
    "mt_grpo": mt_grpo,
    "turn_rtg": lambda attempts, credit: turn_rtg(attempts, credit.decay, credit.advantage),
    "turn_rloo": lambda attempts, credit: turn_rloo(attempts, credit.decay, credit.baseline),
    "gigpo": gigpo,
    "gae": lambda attempts, _: [tuple(earned_at_turns(each)) for each in attempts],
}


def assign(
    attempts: Sequence[Attempt], credit: CreditSettings, *, turns_earn: bool
) -> list[Credit]:
    """What each attempt is credited with, in the order given.

    `turns_earn` says whether turns earn something of their own, by which type `auto` goes.

    An attempt whose reward is not known, NaN in total or at a turn, leaves every statistic and
    gets 0.
    """
    known = [place for place, attempt in enumerate(attempts) if attempt.known]
    form = CREDITS[credit.chosen(turns_earn=turns_earn)]
    found = form([attempts[place] for place in known], credit)
    credits = [UNCREDITED] * len(attempts)
    for place, each in zip(known, found, strict=True):
        if isinstance(each, tuple):
            credits[place] = Credit.of_turns(each, attempts[place].spoken)
        else:
            credits[place] = Credit(whole=each)
    return credits
