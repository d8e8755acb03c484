"""The number type of matrix multiplications follows the recipe and the machine."""

import warnings

import pytest
import torch

from forethought.learning.precision import SlowPrecision, chosen_dtype, has_bfloat16

CPU = torch.device("cpu")


def test_float32_is_the_type_of_the_weights():
    assert chosen_dtype("float32", CPU) is None


def test_auto_is_float32_on_a_processor():
    assert chosen_dtype("auto", CPU) is None


def test_bfloat16_is_given_and_its_slowness_told_where_it_is_imitated():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert chosen_dtype("bfloat16", CPU) is torch.bfloat16
    assert [one.category for one in told] == ([] if has_bfloat16(CPU) else [SlowPrecision])


def test_a_processor_without_bfloat16_is_told_to_be_slow():
    with pytest.warns(SlowPrecision, match='slower than float32; use "float32" or "auto"'):
        assert chosen_dtype("bfloat16", torch.device("cpu"), native=False) is torch.bfloat16


def test_bfloat16_is_found_in_what_the_processor_says_of_itself():
    flags = torch.cpu.get_capabilities()
    assert has_bfloat16(CPU) == any(
        flags.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
    )
