"""DAPO: token mean and clip-higher, without a dual clip (2503.14476, eq. 8).

Its dynamic sampling belongs to the loop, its overlong punishment to the reward.
"""

from functools import partial

from forethought.learning.losses.clipped import token_clipped
from forethought.learning.losses.settings import Terms

dapo = partial(token_clipped, own=Terms(clip_low=0.2, clip_high=0.28))
"""Clip-higher: unlikely tokens of good attempts have more room to become likely."""
