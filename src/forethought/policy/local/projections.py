"""Linear maps for training, with gradients written by hand where that saves passes over memory.

A parameter's gradient is added where it is kept, by the multiplication that makes it: autograd
would make it apart and add it afterwards. What can be computed again in one pass (a normed input,
a gated product) is not kept for the way back.

Shapes: N tokens, E width, O outputs, F feed-forward size.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forethought.policy.local.linear import Adapted, Arithmetic, add_gradient


def reciprocal_norm(inputs: Tensor, epsilon: float) -> Tensor:
    """1 / sqrt(mean square + epsilon) over the last dimension, kept with size 1."""
    norm = torch.linalg.vector_norm(inputs, dim=-1, keepdim=True)
    return norm.square_().div_(inputs.shape[-1]).add_(epsilon).rsqrt_()


def norm_gradients(
    gradient: Tensor, normed: Tensor, weight: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of a norm's input, written over `gradient`, and of its weight.

    `normed` is the input times `scale`, its reciprocal norm.
    """
    both = gradient * normed
    of_weight = both.sum(0)
    shared = both.mul_(weight).sum(-1, keepdim=True)
    gradient.mul_(weight).addcmul_(normed, shared, value=-1 / normed.shape[-1]).mul_(scale)
    return gradient, of_weight


class RootMeanSquareNorm(torch.autograd.Function):
    """Inputs [N, E] over their root mean square, times a weight [E] (arXiv 1910.07467)."""

    @staticmethod
    def forward(ctx: Any, inputs_NE: Tensor, weight_E: Tensor, epsilon: float) -> Tensor:
        """Normed inputs, in their own number type."""
        scale_N1 = reciprocal_norm(inputs_NE, epsilon)
        ctx.save_for_backward(inputs_NE, weight_E, scale_N1)
        return (inputs_NE * scale_N1).mul_(weight_E)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of inputs and weight."""
        inputs_NE, weight_E, scale_N1 = ctx.saved_tensors
        normed_NE = inputs_NE * scale_N1
        return *norm_gradients(gradients[0].clone(), normed_NE, weight_E, scale_N1), None


class Embedding(torch.autograd.Function):
    """Rows [N, E] of a table [V, E]."""

    @staticmethod
    def forward(ctx: Any, ids_N: Tensor, weight_VE: Tensor) -> Tensor:
        """The rows of these ids."""
        ctx.save_for_backward(ids_N)
        ctx.weight = weight_VE
        return F.embedding(ids_N, weight_VE)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the table; that of a parameter is added where it is kept."""
        (ids_N,) = ctx.saved_tensors
        weight: Tensor = ctx.weight
        used_U, which_N = ids_N.unique(return_inverse=True)
        of_used_UE = torch.ops.aten.embedding_dense_backward(
            gradients[0], which_N, len(used_U), -1, False
        )
        parameter = isinstance(weight, nn.Parameter)
        kept = weight.grad if parameter and weight.grad is not None else torch.zeros_like(weight)
        kept[used_U] += of_used_UE
        if not parameter:
            return None, kept
        weight.grad = kept
        return None, None


class NormedProjections(torch.autograd.Function):
    """A norm and then several linear maps of it, side by side [N, sum of O]."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs_NE: Tensor,
        weight_E: Tensor,
        epsilon: float,
        arithmetic: Arithmetic,
        *maps: Tensor | Adapted | None,
    ) -> Tensor:
        """`maps` are weights [O, E] and biases [O] (or None) by turns."""
        scale_N1 = reciprocal_norm(inputs_NE, epsilon)
        normed_NE = (inputs_NE * scale_N1).mul_(weight_E).to(arithmetic.dtype)
        weights = [each for each in maps[::2] if each is not None]
        sizes = [len(each) for each in weights]
        outputs_NO = normed_NE.new_empty(len(normed_NE), sum(sizes))
        for weight, bias, part in zip(weights, maps[1::2], outputs_NO.split(sizes, 1), strict=True):
            torch.mm(normed_NE, arithmetic.weight(weight).t(), out=part)
            if isinstance(bias, Tensor):
                part.add_(bias)
        ctx.save_for_backward(inputs_NE, weight_E, scale_N1)
        ctx.maps, ctx.sizes, ctx.arithmetic = maps, sizes, arithmetic
        return outputs_NO

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of inputs, norm and maps; those of parameters are added where they are kept."""
        inputs_NE, weight_E, scale_N1 = ctx.saved_tensors
        normed_NE = inputs_NE * scale_N1
        fed_NE = (normed_NE * weight_E).to(ctx.arithmetic.dtype)
        of_fed_NE: Tensor | None = None
        of_maps: list[Tensor | None] = []
        parts = gradients[0].split(ctx.sizes, 1)
        for weight, bias, part in zip(ctx.maps[::2], ctx.maps[1::2], parts, strict=True):
            used = ctx.arithmetic.weight(weight)
            of_fed_NE = part @ used if of_fed_NE is None else of_fed_NE.addmm_(part, used)
            of_maps.append(add_gradient(weight, part, fed_NE))
            of_maps.append(None if bias is None else part.sum(0, dtype=bias.dtype))
        assert of_fed_NE is not None
        of_inputs_NE, of_weight_E = norm_gradients(
            of_fed_NE.to(inputs_NE.dtype), normed_NE, weight_E, scale_N1
        )
        return of_inputs_NE, of_weight_E, None, None, *of_maps


class Projection(torch.autograd.Function):
    """One linear map, added to what the tokens held before."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs_NF: Tensor,
        weight_EF: Tensor | Adapted,
        bias_E: Tensor | None,
        held_NE: Tensor,
        arithmetic: Arithmetic,
    ) -> Tensor:
        """held + inputs @ weight.T + bias, in the number type of `held_NE`."""
        fed_NF = inputs_NF.to(arithmetic.dtype)
        ctx.save_for_backward(fed_NF)
        ctx.weight, ctx.bias, ctx.arithmetic = weight_EF, bias_E, arithmetic
        ctx.dtype = inputs_NF.dtype
        outputs_NE = plus_product(held_NE, fed_NF, arithmetic.weight(weight_EF))
        return outputs_NE if bias_E is None else outputs_NE.add_(bias_E)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of inputs, weight, bias and what was held."""
        (fed_NF,) = ctx.saved_tensors
        of_outputs_NE = gradients[0].to(ctx.arithmetic.dtype)
        return (
            (of_outputs_NE @ ctx.arithmetic.weight(ctx.weight)).to(ctx.dtype),
            add_gradient(ctx.weight, of_outputs_NE, fed_NF),
            None if ctx.bias is None else gradients[0].sum(0),
            gradients[0],
            None,
        )


class GatedProjection(torch.autograd.Function):
    """SwiGLU (arXiv 2002.05202) and the linear map after it, added to what was held."""

    @staticmethod
    def forward(
        ctx: Any,
        gate_up_NF: Tensor,
        weight_EF: Tensor | Adapted,
        held_NE: Tensor,
        arithmetic: Arithmetic,
    ) -> Tensor:
        """held + (silu(gate) * up) @ weight.T; `gate_up_NF` holds both side by side."""
        gate_NF, up_NF = gate_up_NF.chunk(2, 1)
        ctx.save_for_backward(gate_up_NF)
        ctx.weight, ctx.arithmetic = weight_EF, arithmetic
        return plus_product(held_NE, F.silu(gate_NF).mul_(up_NF), arithmetic.weight(weight_EF))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of gate and up, weight and what was held."""
        (gate_up_NF,) = ctx.saved_tensors
        gate_NF, up_NF = gate_up_NF.chunk(2, 1)
        of_outputs_NE = gradients[0].to(ctx.arithmetic.dtype)
        of_gated_NF = of_outputs_NE @ ctx.arithmetic.weight(ctx.weight)
        opened_NF = F.silu(gate_NF)
        of_gate_up_NF = torch.empty_like(gate_up_NF)
        of_gate_NF, of_up_NF = of_gate_up_NF.chunk(2, 1)
        torch.mul(of_gated_NF, opened_NF, out=of_up_NF)
        of_weight = add_gradient(ctx.weight, of_outputs_NE, opened_NF.mul_(up_NF))
        torch.ops.aten.silu_backward.grad_input(
            of_gated_NF.mul_(up_NF), gate_NF, grad_input=of_gate_NF
        )
        return of_gate_up_NF, of_weight, gradients[0], None


def plus_product(held_NE: Tensor, inputs_NF: Tensor, weight_EF: Tensor) -> Tensor:
    """held + inputs @ weight.T, in one pass where the number types allow."""
    if held_NE.dtype is inputs_NF.dtype:
        return torch.addmm(held_NE, inputs_NF, weight_EF.t())
    return held_NE + inputs_NF @ weight_EF.t()
