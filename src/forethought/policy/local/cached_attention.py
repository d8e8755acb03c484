"""Attention to keys and values that are kept: by rows that speak, and by rows that are read.

Where rows stand on a root, each attends to it and to what it holds itself apart, and the two are
put together by their log-normalisers: all rows of a root then read it from memory once.

Shapes: B rows that speak, R of them with a root, T tokens read, H heads, K key-value heads, G heads
to each of those, L places, D head size; the pair 2 is keys and values.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from forethought.policy.local.attention import attended, put_together
from forethought.policy.local.prefixes import Prefix
from forethought.policy.local.shelves import Window
from forethought.policy.local.slots import Sharing


def attend_to_windows(
    query_BHD: Tensor, windows: Sequence[Window], sharing: Sharing | None, layer: int
) -> Tensor:
    """Attention of one query a row to its own places and its root's, [B, H * D].

    Rows are those of the windows, one window after the other. Heads that share keys and values go
    in as if they were places of one head: what they share is then read from memory once.
    """
    B, H, D = query_BHD.shape
    K = windows[0].seen(layer).shape[2]
    query_BKGD = query_BHD.reshape(B, K, H // K, D)
    asked = [(query_BKGD[each.rows], *each.seen(layer), each.mask_R11L) for each in windows]
    if sharing is None:
        alone = [
            F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
            for query, keys, values, mask in asked
        ]
        return torch.cat(alone).view(B, H * D)
    parts = [attended(query, keys, values, mask=mask) for query, keys, values, mask in asked]
    mixed_BKGD, totals_BKG = (torch.cat(each) for each in zip(*parts, strict=True))
    rows_R = sharing.rows_R
    of_rows, of_totals = mixed_BKGD[rows_R], totals_BKG[rows_R]
    put_together(of_rows, of_totals, *_attend_to_roots(query_BKGD[rows_R], sharing, layer))
    return mixed_BKGD.index_copy(0, rows_R, of_rows).reshape(B, H * D)


def _attend_to_roots(query_RKGD: Tensor, sharing: Sharing, layer: int) -> tuple[Tensor, Tensor]:
    """Each row's attention to its root [R, K, G, D], and its log-normalisers [R, K, G]."""
    parts: list[tuple[Tensor, Tensor]] = []
    counts = [count for _, count in sharing.roots]
    for (root, count), query in zip(sharing.roots, query_RKGD.split(counts), strict=True):
        # All rows' queries go in as places of one row.
        query_1KQD = query.transpose(0, 1).flatten(1, 2)[None]
        mixed_1KQD, totals_1KQ = attended(query_1KQD, *root.own[layer][:, None])
        parts.append(
            (
                mixed_1KQD[0].unflatten(1, (count, -1)).transpose(0, 1),
                totals_1KQ[0].unflatten(1, (count, -1)).transpose(0, 1),
            )
        )
    mixed, totals = zip(*parts, strict=True)
    return torch.cat(mixed), torch.cat(totals)


def attend_to_past(query_THD: Tensor, prefix: Prefix, layer: int) -> Tensor:
    """Causal attention [T, H, D] of T tokens that follow what `prefix` has read.

    Their own keys and values must have been written into it already.
    """
    T, H, _ = query_THD.shape
    places = prefix.after(prefix.root) + T
    states_2KLD = prefix.states_Y2KLD[layer, :, :, :places]
    query_1HTD = query_THD.transpose(0, 1)[None]
    keys, values = states_2KLD[:, None]
    causal = T > 1 and places == T
    mask_TL = None
    if places > T > 1:
        beyond_TL = torch.ones(T, places, dtype=torch.bool, device=query_THD.device)
        beyond_TL = beyond_TL.triu_(places - T + 1)
        mask_TL = torch.zeros_like(beyond_TL, dtype=query_THD.dtype)
        mask_TL.masked_fill_(beyond_TL, -torch.inf)
    if prefix.root is None:
        mixed = F.scaled_dot_product_attention(
            query_1HTD,
            keys,
            values,
            attn_mask=mask_TL,
            is_causal=causal,
            enable_gqa=keys.shape[1] != H,
        )
        return mixed[0].transpose(0, 1)
    mixed, totals = attended(query_1HTD, keys, values, causal=causal, mask=mask_TL)
    put_together(mixed, totals, *attended(query_1HTD, *prefix.root.own[layer][:, None]))
    return mixed[0].transpose(0, 1)
