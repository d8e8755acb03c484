"""What the Python tool takes as a call, and what it says to everything else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.tools.arguments import ArgumentError, read_code


def test_a_program_is_read_as_it_was_written():
    assert read_code('{"code": "print(\\"\\u00e9\\")\\n"}') == 'print("é")\n'


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",))))
def test_every_text_without_nul_is_a_program(code):
    assert read_code(json.dumps({"code": code})) == code


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("", "not JSON"),
        ("print(1)", "not JSON"),
        ('{"code": "print(1)"', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("1" * 10_000, "not JSON"),
        ('["print(1)"]', "got an array"),
        ('"print(1)"', "got a string"),
        ("null", "got null"),
        ("7", "got a number"),
        ("true", "got a boolean"),
        ("{}", '"code" is missing'),
        ('{"program": "1"}', '"code" is missing'),
        ('{"code": "1", "timeout": 3}', "other keys"),
        ('{"code": 1}', '"code" is a number'),
        ('{"code": null}', '"code" is null'),
        ('{"code": ["1"]}', '"code" is an array'),
        ('{"code": {"a": 1}}', '"code" is an object'),
        ('{"code": "a\\u0000b"}', "NUL"),
        ('{"code": "\\ud800"}', "surrogate"),
        (json.dumps({"code": "#" * 262_145}), "262145 bytes"),
        (json.dumps({"code": "é" * 131_073}), "262146 bytes"),
    ],
)
def test_anything_else_is_told_what_is_wrong(arguments, reason):
    with pytest.raises(ArgumentError, match=reason):
        read_code(arguments)


def test_a_program_of_exactly_the_largest_size_is_read():
    assert len(read_code(json.dumps({"code": "#" * 262_144}))) == 262_144


def test_at_most_two_hundred_characters_of_a_bad_call_are_echoed():
    with pytest.raises(ArgumentError) as caught:
        read_code("~" * 5000)
    assert str(caught.value).count("~") == 200
