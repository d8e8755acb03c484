"""In which number type to multiply."""

import time
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


LARGE = 2**25
"""Parameters from which on products of matrices are most of a model's work."""
_WIDTH = 1024
"""Rows and columns of the matrices by which number types are compared."""


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


def faster_precision(chosen: Precision, parameters: int) -> str:
    """In a sentence, which precision is much faster on this processor than `auto`; empty if none.

    A model with few parameters does other things for most of its time.
    """
    if chosen != "auto" or parameters < LARGE or (gain := bfloat16_gain()) < 2:
        return ""
    return (
        f"this processor multiplies bfloat16 {gain:.1f} times as fast as float32, which is used "
        "for its exactness: --compute.precision=bfloat16 is faster"
    )


def bfloat16_gain() -> float:
    """How many times as fast as float32 numbers this processor multiplies bfloat16 ones.

    1 where it has no instructions for them; otherwise measured, in some hundredths of a second.
    """
    if not has_bfloat16(torch.device("cpu")):
        return 1.0
    return _product_seconds(torch.float32) / _product_seconds(torch.bfloat16)


def _product_seconds(dtype: torch.dtype) -> float:
    matrix = torch.ones(_WIDTH, _WIDTH, dtype=dtype)
    taken: list[float] = []
    for _ in range(4):
        began = time.perf_counter()
        torch.mm(matrix, matrix)
        taken.append(time.perf_counter() - began)
    return min(taken)
