"""GRPO-T: token ratios, token mean, symmetric clip (2510.11701, eq. 2-6).

Equation 6 prints the reference policy in the ratio; the policy that sampled is meant. The clipped
objective of PPO (1707.06347) and of REINFORCE++ (2501.03262) is this one, with other advantages.
"""

from functools import partial

from forethought.learning.losses.clipped import token_clipped
from forethought.learning.losses.settings import Terms

grpo_t = partial(token_clipped, own=Terms(clip_low=0.2, clip_high=0.2))
"""The conservative setting: the ratio may rise no further than it may fall."""
