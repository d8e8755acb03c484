"""In which number type to multiply."""

import warnings
from collections.abc import Mapping

import torch

from forethought.learning.settings import Precision

HALVES: Mapping[Precision, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}

NATIVE: Mapping[Precision, tuple[str, ...]] = {
    "bfloat16": ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"),
    "float16": ("avx512_fp16", "amx_fp16", "fp16_arith"),
}
"""What a processor says of itself that multiplies such numbers."""


class SlowPrecision(UserWarning):
    """A number type was asked for that this machine has to imitate."""


def chosen_dtype(
    precision: Precision, device: torch.device, *, native: bool | None = None
) -> torch.dtype | None:
    """The number type of matrix multiplications; None for that of the weights.

    Warns (`SlowPrecision`) when one of two bytes is asked of a device that has no instructions for
    it; `native` says whether it has (None: `has_native`).
    """
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" and has_bfloat16(device) else "float32"
    if precision not in HALVES:
        return None
    native = has_native(precision, device) if native is None else native
    if not native:
        warnings.warn(
            f'compute.precision = "{precision}": this {device.type} has no {precision} arithmetic '
            'and imitates it, slower than float32; use "float32" or "auto"',
            SlowPrecision,
            stacklevel=2,
        )
    return HALVES[precision]


def has_native(precision: Precision, device: torch.device) -> bool:
    """Whether a device multiplies such numbers by instructions of its own."""
    if device.type == "cuda":
        return precision != "bfloat16" or torch.cuda.is_bf16_supported(including_emulation=False)
    found = torch.cpu.get_capabilities()
    return any(found.get(name, False) for name in NATIVE[precision])


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 numbers by instructions of its own."""
    return has_native("bfloat16", device)
