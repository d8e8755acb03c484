"""Imitation: the negative log-likelihood of the tokens that a demonstration's author chose."""

from torch import Tensor

from forethought.learning.aggregation import token_mean
from forethought.learning.losses.catalogue import Objective
from forethought.learning.losses.result import LossResult, Tally
from forethought.learning.streams import Denominators, Streams


def likelihood(logprobs_BT: Tensor, streams: Streams, denominators: Denominators) -> LossResult:
    """Weighted -log π, averaged over tokens. Reads only the mask and the weights.

    A weight scales a token's share and leaves the denominator as it is.
    """
    nll_BT = -streams.kept(logprobs_BT)
    loss_BT = nll_BT * streams.kept(streams.weights_BT)
    return LossResult(
        loss=token_mean(loss_BT, streams.mask_BT, denominators),
        tally=Tally.over(streams.mask_BT, {"nll": nll_BT}),
    )


sft = Objective(loss=likelihood, reads_every_row=True)
"""`likelihood` as a learner is given it: no row of it has an advantage."""
