"""A model's weights as sampling reads them: few large matrices, and no gradients.

A layer's query, key and value projections are one matrix here, and so are gate and up. `fuse`
moves the model's own parameters into such matrices, as views: what the optimiser writes is then
what sampling reads, and nothing is held twice. Where that cannot be (adapters, another number
type) copies are kept, and `FusedWeights.refresh` makes them again.

A processor multiplies a few rows with a large matrix much faster when the matrix lies in the order
in which it is read (measured with SmolLM2: 1.5 to 2 times at 8 to 64 rows; a model of 3M speaks a
tenth faster). Such copies are kept while sampling goes on, and `FusedWeights.release` gives them
back.

Shapes: E width, O outputs, D head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forethought.policy.local.decoder import unwrapped

JOINED = (("self_attn", ("q_proj", "k_proj", "v_proj")), ("mlp", ("gate_proj", "up_proj")))
"""Which modules of a layer are read as one."""

PACKED_FROM = 2**15
"""Numbers in a matrix from which on it is copied in the order of reading: smaller ones gain
nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A linear map: weight [O, E], and a bias [O] where there is one.

    `packed` is the weight once more, in the order of reading, where that pays.
    """

    weight_OE: Tensor
    bias_O: Tensor | None
    packed: Tensor | None = None

    def __call__(self, inputs_E: Tensor) -> Tensor:
        """Outputs [..., O] of inputs [..., E], in the weight's number type."""
        inputs_E = inputs_E.to(self.weight_OE.dtype)
        if self.packed is None:
            return F.linear(inputs_E, self.weight_OE, self.bias_O)
        plain: tuple[str, list[float], str] = ("none", [], "")  # nothing on top of the product
        return torch.ops.mkldnn._linear_pointwise(inputs_E, self.packed, self.bias_O, *plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """A root-mean-square norm (arXiv 1910.07467), computed in float32."""

    weight_E: Tensor
    epsilon: float

    def __call__(self, inputs_E: Tensor) -> Tensor:
        """Normed inputs [..., E]; `weight_E` may also be [heads, D] for inputs [..., heads, D]."""
        size = inputs_E.shape[-1:]
        return F.rms_norm(inputs_E.float(), size, None, self.epsilon).mul_(self.weight_E)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLayer:
    """One layer. `head_norm` holds the norms of all query heads and then all key heads."""

    attention_norm: Norm
    query_key_value: Matrix
    head_norm: Norm | None
    output: Matrix
    feed_norm: Norm
    gate_up: Matrix
    down: Matrix


class FusedWeights:
    """What a sampler reads of one model; `refresh` after its weights have changed or after
    `release`."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        """Read a (possibly adapted) causal language model of a family that `Decoder` knows."""
        whole = unwrapped(model)
        self._whole = whole
        self._dtype = dtype
        self._heads: tuple[int, int] = (
            whole.config.num_attention_heads,
            whole.config.num_key_value_heads,
        )
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy again what is not shared with the model."""
        whole: Any = self._whole
        self.release()
        self.embedding_VE: Tensor = whole.model.embed_tokens.weight.detach()
        self.layers = [self._layer(layer) for layer in whole.model.layers]
        self.norm = _norm(whole.model.norm)
        self.head = self._matrix([whole.lm_head])

    def release(self) -> None:
        """Give back what was copied, if it is there. Nothing can be read until `refresh`."""
        self.layers = []
        vars(self).pop("head", None)

    def _layer(self, layer: Any) -> FusedLayer:
        attention, feed = layer.self_attn, layer.mlp
        return FusedLayer(
            attention_norm=_norm(layer.input_layernorm),
            query_key_value=self._matrix([attention.q_proj, attention.k_proj, attention.v_proj]),
            head_norm=self._head_norm(attention),
            output=self._matrix([attention.o_proj]),
            feed_norm=_norm(layer.post_attention_layernorm),
            gate_up=self._matrix([feed.gate_proj, feed.up_proj]),
            down=self._matrix([feed.down_proj]),
        )

    def _matrix(self, modules: Sequence[Any]) -> Matrix:
        biases = [module.bias.detach() for module in modules if module.bias is not None]
        weight_OE = _joined([_effective(module) for module in modules]).to(self._dtype)
        return Matrix(
            weight_OE=weight_OE,
            bias_O=_joined(biases).to(self._dtype) if biases else None,
            packed=_packed(weight_OE),
        )

    def _head_norm(self, attention: Any) -> Norm | None:
        if not hasattr(attention, "q_norm"):
            return None
        query, key = attention.q_norm, attention.k_norm
        parts = [
            norm.weight.detach().expand(heads, -1)
            for norm, heads in zip((query, key), self._heads, strict=True)
        ]
        return Norm(weight_E=torch.cat(parts), epsilon=query.variance_epsilon)


def fuse(model: nn.Module) -> None:
    """Make the matrices that are read as one lie side by side in memory.

    Parameters stay the objects they were. Modules with adapters are left alone. Call it after the
    model has been moved to its device and before memory is shared.
    """
    for layer in unwrapped(model).model.layers:
        for part, names in JOINED:
            modules = [getattr(getattr(layer, part), name) for name in names]
            if not any(hasattr(module, "base_layer") for module in modules):
                _lay_together([module.weight for module in modules])
                _lay_together([module.bias for module in modules if module.bias is not None])


def _lay_together(parameters: Sequence[nn.Parameter]) -> None:
    if not parameters or _lie_together(parameters):
        return
    joined = torch.cat([each.data for each in parameters])
    start = 0
    for parameter in parameters:
        stop = start + len(parameter)
        parameter.data = joined[start:stop]
        start = stop


def _lie_together(tensors: Sequence[Tensor]) -> bool:
    """Whether each tensor begins where the one before it ends, in one storage."""
    place = tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != place or not tensor.is_contiguous():
            return False
        place += tensor.nbytes
    return len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """One tensor of all rows: a view where they lie together, else a copy."""
    first = tensors[0]
    if not _lie_together(tensors):
        return torch.cat(list(tensors))
    shape = (sum(len(tensor) for tensor in tensors), *first.shape[1:])
    return first.as_strided(shape, first.stride())


def _packed(weight_OE: Tensor) -> Tensor | None:
    """The weight in the order in which this machine reads it; None where that does not pay.

    The copy is of oneDNN's making, by the operators that compiled models use.
    """
    if weight_OE.device.type != "cpu" or weight_OE.numel() < PACKED_FROM:
        return None
    if not can_pack(weight_OE.dtype):
        return None
    return torch.ops.mkldnn._reorder_linear_weight(weight_OE.contiguous())


def can_pack(dtype: torch.dtype) -> bool:
    """Whether this processor has an order of reading for such numbers: few have for bfloat16."""
    if not torch.backends.mkldnn.is_available():
        return False
    bfloat16: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype is torch.float32 or (dtype is torch.bfloat16 and bfloat16)


def _effective(module: Any) -> Tensor:
    """The weight that a linear module multiplies with, its active adapters included."""
    if not hasattr(module, "base_layer"):
        return module.weight.detach()
    weight_OE = module.base_layer.weight.detach().clone()
    for name in module.active_adapters:
        weight_OE += module.get_delta_weight(name).detach()
    return weight_OE


def _norm(module: Any) -> Norm:
    return Norm(weight_E=module.weight.detach(), epsilon=module.variance_epsilon)
