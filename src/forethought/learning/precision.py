"""In which number type to multiply."""

import warnings

import torch

from forethought.learning.settings import Precision

NATIVE = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
"""What a processor says of itself that multiplies bfloat16 numbers."""


class SlowPrecision(UserWarning):
    """A number type was asked for that this machine has to imitate."""


def chosen_dtype(
    precision: Precision, device: torch.device, *, native: bool | None = None
) -> torch.dtype | None:
    """The number type of matrix multiplications; None for that of the weights.

    Warns (`SlowPrecision`) when bfloat16 is asked of a device that has no instructions for it;
    `native` says whether it has (None: `has_bfloat16`).
    """
    native = has_bfloat16(device) if native is None else native
    if precision == "bfloat16" and not native:
        warnings.warn(
            f'compute.precision = "bfloat16": this {device.type} has no bfloat16 arithmetic and '
            'imitates it, slower than float32; use "float32" or "auto"',
            SlowPrecision,
            stacklevel=2,
        )
    wanted = precision == "bfloat16" or (precision == "auto" and device.type == "cuda" and native)
    return torch.bfloat16 if wanted else None


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 numbers by instructions of its own."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    found = torch.cpu.get_capabilities()
    return any(found.get(name, False) for name in NATIVE)
