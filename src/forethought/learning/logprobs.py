"""Log-probabilities of given tokens, without ever holding the logits of a whole batch.

Shapes: B rows, T positions, N trained tokens, E width.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from forethought.policy.local.decoder import Decoder


def token_logprobs(
    decoder: Decoder, ids_BT: Tensor, mask_BT: Tensor, temperature: float, logit_tokens: int
) -> Tensor:
    """log pi(id_t | id_<t) [B, T] where `mask_BT`, 0 elsewhere; float32, natural logarithm.

    Evaluated at `temperature`, over the full vocabulary. Logits exist for `logit_tokens` trained
    tokens at a time and are computed again on the way back.
    """
    hidden_BTE = decoder.hidden(ids_BT[:, :-1])
    trained_BT = mask_BT[:, 1:]
    hidden_NE, targets_N = hidden_BTE[trained_BT], ids_BT[:, 1:][trained_BT]

    def portion(hidden_NE: Tensor, targets_N: Tensor) -> Tensor:
        logits_NV = decoder.logits(hidden_NE) / temperature
        return torch.log_softmax(logits_NV, -1).gather(1, targets_N[:, None])[:, 0]

    logprobs_N = torch.cat(
        [
            checkpoint(portion, hidden, targets, use_reentrant=False)
            if hidden_NE.shape[0] > logit_tokens
            else portion(hidden, targets)
            for hidden, targets in zip(
                hidden_NE.split(logit_tokens), targets_N.split(logit_tokens), strict=True
            )
        ]
    )
    scattered_BT = torch.zeros_like(trained_BT, dtype=logprobs_N.dtype)
    scattered_BT = scattered_BT.masked_scatter(trained_BT, logprobs_N)
    return torch.nn.functional.pad(scattered_BT, (1, 0))
