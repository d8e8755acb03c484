"""What training makes of an episode. Exams read verdicts and never see this.

A reward is a sum of named components: the outcome with the bonus for calls and the penalty for
length (`outcome`, `lengths`), and penalties and process parts that are off unless a recipe sets
them (`calls`, `turns`, `named_values`, `exploration`, `judge`). `reward` puts them together.
Comparing attempts is not done here.
"""

from forethought.learning.rewards.calls import fresh_successes
from forethought.learning.rewards.lengths import overlong_penalty, response_length
from forethought.learning.rewards.reward import Reward, score_episode, score_group
from forethought.learning.rewards.settings import RewardSettings

__all__ = [
    "Reward",
    "RewardSettings",
    "fresh_successes",
    "overlong_penalty",
    "response_length",
    "score_episode",
    "score_group",
]
