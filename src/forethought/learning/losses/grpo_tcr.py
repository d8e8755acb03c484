"""GRPO-TCR: token mean, clip-higher, overlong reward shaping, no KL (2510.11701, sec. 4.1).

The shaping is part of the reward (`rewards.lengths.overlong_penalty`), not of this loss.
"""

from functools import partial

from forethought.learning.losses.clipped import token_clipped
from forethought.learning.losses.settings import Terms

grpo_tcr = partial(token_clipped, own=Terms(clip_low=0.2, clip_high=0.28, dual_clip=10.0))
"""Clip-higher: unlikely tokens of good attempts have more room to become likely."""
