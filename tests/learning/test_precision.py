"""The number type of matrix multiplications follows the recipe and the machine."""

import warnings

import pytest
import torch

from forethought.learning import precision as precisions
from forethought.learning.precision import (
    NATIVE,
    SlowPrecision,
    bfloat16_gain,
    chosen_dtype,
    has_native,
)

CPU = torch.device("cpu")
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def test_float32_is_the_type_of_the_weights():
    assert chosen_dtype("float32", CPU) is None


def test_auto_is_float32_on_a_processor():
    assert chosen_dtype("auto", CPU) is None


@pytest.mark.parametrize("precision", HALVES)
def test_two_bytes_are_given_and_their_slowness_told_where_they_are_imitated(precision):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert chosen_dtype(precision, CPU) is HALVES[precision]
    native = has_native(precision, CPU)
    assert [one.category for one in told] == ([] if native else [SlowPrecision])


@pytest.mark.parametrize("precision", HALVES)
def test_a_processor_without_such_numbers_is_told_to_be_slow(precision):
    told = f'no {precision} arithmetic .* slower than float32; use "float32" or "auto"'
    with pytest.warns(SlowPrecision, match=told):
        assert chosen_dtype(precision, CPU, native=False) is HALVES[precision]


@pytest.mark.parametrize("precision", HALVES)
def test_what_a_processor_multiplies_is_found_in_what_it_says_of_itself(precision):
    flags = torch.cpu.get_capabilities()
    assert has_native(precision, CPU) == any(flags.get(name, False) for name in NATIVE[precision])


def test_what_bfloat16_gains_is_measured_where_there_are_instructions_for_it(monkeypatch):
    monkeypatch.setattr(precisions, "has_bfloat16", lambda device: True)
    assert bfloat16_gain() > 0
    seconds = {torch.float32: 3.0, torch.bfloat16: 1.5}
    monkeypatch.setattr(precisions, "_product_seconds", seconds.get)
    assert bfloat16_gain() == 2.0
    monkeypatch.setattr(precisions, "has_bfloat16", lambda device: False)
    assert bfloat16_gain() == 1.0
