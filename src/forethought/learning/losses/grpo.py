"""GRPO as first published: token ratios, every sequence weighing the same (2402.03300, eq. 3)."""

from functools import partial

from forethought.learning.losses.clipped import token_clipped
from forethought.learning.losses.settings import Terms

grpo = partial(token_clipped, own=Terms(clip_low=0.2, clip_high=0.2))
"""A token of a long sequence counts for less than one of a short sequence."""
