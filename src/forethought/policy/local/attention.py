"""Causal attention over rows that are laid end to end and may share beginnings.

Each stretch attends to itself in a call of its own, so that nothing is padded. What has read a
shared stretch attends to it in one more call, and the parts are put together by their
log-normalisers; each part's gradient then follows from the whole's output and log-normaliser, as
for blocks of keys in FlashAttention (arXiv 2205.14135). torch's kernels for the CPU give these;
on other devices every row is padded, with its own copy of what it shares. On the CPU it is always
in float32 or wider: the kernels' way back is slower in bfloat16.

Shapes: N tokens, H heads, K key-value heads, D head size, S states (H + 2 K), B rows, T positions.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from forethought.policy.local.packing import Packing
from forethought.policy.local.projections import norm_gradients, reciprocal_norm

_forward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_backward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """How many heads of which size."""

    query: int
    key: int
    size: int

    @property
    def turned(self) -> int:
        """Heads that have a position: all but those of values."""
        return self.query + self.key


class TurnedHeads(torch.autograd.Function):
    """Queries and keys normed a head (where a model does) and turned to their positions.

    Rotary positions (arXiv 2104.09864) turn pairs of numbers, which a head holds in its two
    halves. Here each pair is put side by side, as one complex number: one multiplication turns it.
    Queries and keys are rearranged alike, so that their products stay what they were.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states_NSD: Tensor,
        norm_SD: Tensor | None,
        epsilon: float,
        turns_N1C: Tensor,
        heads: Heads,
    ) -> Tensor:
        """States [N, S, D] as attention reads them, in the number type of `turns_N1C`.

        `norm_SD` has a row for each turned head; `turns_N1C` is cos + i sin, with C = D / 2.
        """
        raw_NSD, values_NKD = states_NSD.split((heads.turned, heads.key), 1)
        turned_NSD = torch.empty_like(states_NSD, dtype=turns_N1C.real.dtype)
        turned_NSD[:, heads.turned :] = values_NKD
        paired_NSC2 = turned_NSD[:, : heads.turned].unflatten(-1, (-1, 2))
        for half, part_NSC in enumerate(raw_NSD.chunk(2, -1)):
            paired_NSC2[..., half] = part_NSC
        scale_NS1 = None
        if norm_SD is not None:
            scale_NS1 = reciprocal_norm(raw_NSD.to(turned_NSD.dtype), epsilon)
            paired_NSC2.mul_(scale_NS1[..., None]).mul_(paired(norm_SD))
        torch.view_as_complex(paired_NSC2).mul_(turns_N1C)
        ctx.save_for_backward(None if norm_SD is None else states_NSD, norm_SD, scale_NS1)
        ctx.turns, ctx.heads, ctx.dtype = turns_N1C, heads, states_NSD.dtype
        return turned_NSD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of states and norms."""
        states_NSD, norm_SD, scale_NS1 = ctx.saved_tensors
        turned = ctx.heads.turned
        of_paired_NSC2 = gradients[0][:, :turned].unflatten(-1, (-1, 2)).contiguous()
        torch.view_as_complex(of_paired_NSC2).mul_(ctx.turns.conj())
        of_states_NSD = torch.empty_like(gradients[0])
        of_states_NSD[:, turned:] = gradients[0][:, turned:]
        for half, part_NSC in enumerate(of_states_NSD[:, :turned].chunk(2, -1)):
            part_NSC.copy_(of_paired_NSC2[..., half])
        of_norm_SD = None
        if norm_SD is not None:
            normed_NSD = states_NSD[:, :turned] * scale_NS1
            _, of_norm_SD = norm_gradients(
                of_states_NSD[:, :turned], normed_NSD, norm_SD, scale_NS1
            )
        return of_states_NSD.to(ctx.dtype), of_norm_SD, None, None, None


def paired(values_D: Tensor) -> Tensor:
    """Numbers of the two halves side by side, [..., D / 2, 2].

    >>> paired(torch.tensor([1, 2, 3, 4])).tolist()
    [[1, 3], [2, 4]]
    """
    return values_D.unflatten(-1, (2, -1)).transpose(-1, -2)


def attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of queries [..., H, T, D] over keys and values, by torch's kernel for the CPU.

    The output, and beside it each token's log-normaliser [..., H, T] (float32).
    """
    return _forward(query, key, value, 0.0, causal, attn_mask=mask)


def attend(turned_NSD: Tensor, heads: Heads, packing: Packing, dtype: torch.dtype) -> Tensor:
    """What each token takes from those before it, [N, H, D], of turned states [N, S, D].

    Other devices compute in `dtype`.
    """
    if turned_NSD.device.type == "cpu":
        return StretchAttention.apply(turned_NSD, heads, packing)
    return padded_attention(turned_NSD.to(dtype), heads, packing)


def padded_attention(turned_NSD: Tensor, heads: Heads, packing: Packing) -> Tensor:
    """The same with every row padded, and whole: what rows share is attended to by each."""
    B, T = packing.place_BT.shape
    states_BSTD = turned_NSD[packing.place_BT.flatten()].unflatten(0, (B, T)).transpose(1, 2)
    query, key, value = states_BSTD.split((heads.query, heads.key, heads.key), 1)
    mixed_BHTD = F.scaled_dot_product_attention(
        query, key, value, is_causal=T > 1, enable_gqa=heads.query != heads.key
    )
    return mixed_BHTD.transpose(1, 2).flatten(0, 1)[packing.owner_N]


class StretchAttention(torch.autograd.Function):
    """`attend` by torch's kernels for the CPU."""

    @staticmethod
    def forward(ctx: Any, turned_NSD: Tensor, heads: Heads, packing: Packing) -> Tensor:
        """Output, and beside it each token's log-normaliser."""
        query, key, value = _heads_first(turned_NSD, heads)
        lengths = [each.stop - each.start for each in packing.stretches]
        own = zip(*(each.split(lengths, 2) for each in (query, key, value)), strict=True)
        parts = [attended(*each, causal=True) for each in own]
        # The kernels write tokens first, whatever the shape says.
        mixed_1HND = torch.cat([each.transpose(1, 2) for each, _ in parts], 1).transpose(1, 2)
        totals_1HN = torch.cat([each.transpose(1, 2) for _, each in parts], 1).transpose(1, 2)
        for each in packing.shared:
            readers, read = slice(each.stop, each.reach), slice(each.start, each.stop)
            put_together(
                mixed_1HND[:, :, readers],
                totals_1HN[:, :, readers],
                *attended(query[:, :, readers], key[:, :, read], value[:, :, read]),
            )
        ctx.save_for_backward(turned_NSD, mixed_1HND, totals_1HN)
        ctx.heads, ctx.packing, ctx.lengths = heads, packing, lengths
        return mixed_1HND[0].transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the states."""
        turned_NSD, mixed, totals = ctx.saved_tensors
        of_mixed = gradients[0].transpose(0, 1)[None]
        found_NSD = torch.empty_like(turned_NSD)
        read = (*_heads_first(turned_NSD, ctx.heads), mixed, totals)
        found = _heads_first(found_NSD, ctx.heads)
        parts = [each.split(ctx.lengths, 2) for each in (of_mixed, *read, *found)]
        for of_own, query, key, value, own, total, *kept in zip(*parts, strict=True):
            new = _backward(of_own, query, key, value, own, total, 0.0, True)
            for place, part in zip(kept, new, strict=True):
                place.copy_(part)
        for each in ctx.packing.shared:
            readers, above = slice(each.stop, each.reach), slice(each.start, each.stop)
            query, key, value, own, total = (
                tensor[:, :, above if number in (1, 2) else readers]
                for number, tensor in enumerate(read)
            )
            of_own = of_mixed[:, :, readers]
            new = _backward(of_own, query, key, value, own, total, 0.0, False)
            for tensor, tokens, part in zip(found, (readers, above, above), new, strict=True):
                tensor[:, :, tokens].add_(part)
        return found_NSD, None, None


def _heads_first(states_NSD: Tensor, heads: Heads) -> tuple[Tensor, ...]:
    """Views of queries, keys and values as the kernels read them, [1, heads, N, D] each."""
    return states_NSD.transpose(0, 1)[None].split((heads.query, heads.key, heads.key), 1)


def put_together(held: Tensor, held_totals: Tensor, mixed: Tensor, totals: Tensor) -> None:
    """Add attention over other keys to attention over some, in place, by their log-normalisers."""
    both = torch.logaddexp(held_totals, totals)
    held.mul_((held_totals - both).exp_()[..., None])
    held.add_(mixed * (totals - both).exp_()[..., None])
    held_totals.copy_(both)
