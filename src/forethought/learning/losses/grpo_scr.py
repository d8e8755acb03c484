"""GRPO-SCR: one length-normalised ratio a sequence (2510.11701, eq. 5 and 7).

It is GSPO (2507.18071) in its token form. A sequence's ratio moves far less than a token's, so
its clip range is hundreds of times narrower and clips far more often.
"""

from functools import partial

from forethought.learning.losses.clipped import clipped_policy_loss
from forethought.learning.losses.ratios import sequence_ratio
from forethought.learning.losses.settings import Terms

OWN = Terms(clip_low=3e-4, clip_high=4e-4)

grpo_scr = partial(clipped_policy_loss, own=OWN, ratio=sequence_ratio)
"""The clipped surrogate of `sequence_ratio`, every sequence weighing the same."""
