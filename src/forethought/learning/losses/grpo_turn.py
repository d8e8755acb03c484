"""One length-normalised ratio a turn: between a ratio a token and GSPO's ratio a sequence.

Our own extension of GSPO (2507.18071) to attempts of several turns: a turn that has drifted is
clipped without its neighbours. No clip range is published for it; that of sequences is taken.
"""

from functools import partial

from forethought.learning.losses.clipped import clipped_policy_loss
from forethought.learning.losses.grpo_scr import OWN
from forethought.learning.losses.ratios import turn_ratio

grpo_turn = partial(clipped_policy_loss, own=OWN, ratio=turn_ratio)
"""The clipped surrogate of `turn_ratio`, every sequence weighing the same."""
