"""Dr. GRPO: every token weighs the same, over a constant length (2503.20783, sec. 3.2).

Its advantage is the reward minus the mean of its group, not divided by a deviation
(`advantage.dr_grpo`).
"""

from functools import partial

from forethought.learning.losses.clipped import token_clipped
from forethought.learning.losses.settings import Terms

dr_grpo = partial(token_clipped, own=Terms(clip_low=0.2, clip_high=0.2))
"""A long wrong attempt is not excused by its length, nor a short right one favoured."""
