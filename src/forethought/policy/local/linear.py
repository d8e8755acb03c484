"""Weights of linear maps, plain or with an adapter, and how their gradients come about.

A parameter's gradient is added where it is kept, by the multiplication that makes it: autograd
would make it apart and add it afterwards.

Shapes: N tokens, E width, O outputs, R rank.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """The number type of matrix multiplications and of what passes between them.

    Parameters stay as they are: each is converted once, so an `Arithmetic` is good for as long as
    the weights do not change.
    """

    dtype: torch.dtype = torch.float32
    _converted: dict[int, Tensor] = field(default_factory=dict[int, Tensor])

    def weight(self, weight: "Tensor | Adapted") -> Tensor:
        """A weight as it is multiplied with."""
        if isinstance(weight, Tensor) and weight.dtype is self.dtype:
            return weight
        key = id(weight.down_RE if isinstance(weight, Adapted) else weight)
        found = self._converted.get(key)
        if found is None:
            whole = weight.merged() if isinstance(weight, Adapted) else weight.detach()
            found = self._converted[key] = whole.to(self.dtype)
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Adapted:
    """A frozen weight and a trained change of low rank: frozen + scale * up @ down (LoRA).

    It is multiplied with as one matrix, and its parts learn from what goes in and comes out.
    """

    frozen_OE: Tensor
    down_RE: nn.Parameter
    up_OR: nn.Parameter
    scale: float

    def __len__(self) -> int:
        return len(self.frozen_OE)

    def merged(self) -> Tensor:
        """The whole weight [O, E]."""
        return torch.addmm(
            self.frozen_OE.detach(), self.up_OR.detach(), self.down_RE.detach(), alpha=self.scale
        )

    def add_gradient(self, outputs_NO: Tensor, inputs_NE: Tensor) -> None:
        """Add the gradients of `up` and `down` where they are kept."""
        dtype = outputs_NO.dtype
        down_RE, up_OR = self.down_RE.detach().to(dtype), self.up_OR.detach().to(dtype)
        between_NR = (inputs_NE @ down_RE.t()).mul_(self.scale)
        of_between_NR = (outputs_NO @ up_OR).mul_(self.scale)
        add_gradient(self.up_OR, outputs_NO, between_NR)
        add_gradient(self.down_RE, of_between_NR, inputs_NE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A linear map [E] to [O]; `bias_O` None is none."""

    weight_OE: Tensor | Adapted
    bias_O: Tensor | None

    @classmethod
    def of(cls, module: nn.Module) -> "Linear | None":
        """The map of a linear module, plain or with one adapter; None for one that does more."""
        if type(module) is nn.Linear:
            return cls(weight_OE=module.weight, bias_O=module.bias)
        adapted = _adapted(module)
        if adapted is None:
            return None
        beneath: Any = module.base_layer
        return cls(weight_OE=adapted, bias_O=beneath.bias)


def _adapted(module: Any) -> Adapted | None:
    """The weight of peft's linear layer with one low-rank adapter and nothing else at work."""
    if type(getattr(module, "base_layer", None)) is not nn.Linear or not hasattr(module, "lora_A"):
        return None
    names = list(module.active_adapters)
    if len(names) != 1 or module.merged or module.disable_adapters or module.lora_variant:
        return None
    (name,) = names
    dropout = module.lora_dropout[name]
    if dropout.training and not isinstance(dropout, nn.Identity):
        return None
    return Adapted(
        frozen_OE=module.base_layer.weight,
        down_RE=module.lora_A[name].weight,
        up_OR=module.lora_B[name].weight,
        scale=module.scaling[name],
    )


def add_gradient(
    weight_OE: Tensor | Adapted, outputs_NO: Tensor, inputs_NE: Tensor
) -> Tensor | None:
    """The gradient of a weight whose outputs have the gradient `outputs_NO`.

    That of a parameter is added to its `grad`, and None returned, as to autograd from a backward.
    """
    if isinstance(weight_OE, Adapted):
        weight_OE.add_gradient(outputs_NO, inputs_NE)
        return None
    if not weight_OE.requires_grad:
        return None
    if not isinstance(weight_OE, nn.Parameter):
        return (outputs_NO.t() @ inputs_NE).to(weight_OE.dtype)
    if weight_OE.grad is None:
        weight_OE.grad = (outputs_NO.t() @ inputs_NE).to(weight_OE.dtype)
    elif weight_OE.grad.dtype is outputs_NO.dtype:
        weight_OE.grad.addmm_(outputs_NO.t(), inputs_NE)
    else:
        weight_OE.grad.add_(outputs_NO.t() @ inputs_NE)
    return None
