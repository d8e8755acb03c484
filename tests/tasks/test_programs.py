"""The program of a message is its last block for Python, whatever stands around it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.tasks.programs import fenced, last_program

TICKS = "```"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nx = 1\n```", "x = 1"),
        ("so:\n```python\nx = 1\n```\nor rather\n```py\nx = 2\n```\nthat is it", "x = 2"),
        ("```Python3 title=a\nx = 1\n```", "x = 1"),
        ("```python\nx = 1\n```\nit prints\n```\n5\n```", "x = 1"),
        ("```\nx = 1\n```", "x = 1"),
        ("```\nx = 1\n```\n```bash\nls\n```", "x = 1"),
        ("~~~python\nx = '```'\n~~~", "x = '```'"),
        ("````python\n'''\n```\n'''\n````", "'''\n```\n'''"),
        ("```python\r\nx = 1\r\n\r\ny = 2\r\n```", "x = 1\n\ny = 2"),
        ("1. so\n   ```python\n   def f():\n       return 1\n   ```", "def f():\n    return 1"),
        ("```python\n\tx = 1\n```", "\tx = 1"),
        ("```python\n```", ""),
    ],
)
def test_the_last_block_for_python_is_read(text, program):
    assert last_program(text) == program


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = 1",
        "`x = 1`",
        "```python\nx = 1",
        "```bash\nls\n```",
        "```python x = 1 ```",
        "    ```python\n    x = 1\n    ```",
        "```python\nx = 1\n~~~",
        "```json\n```python\n",
    ],
)
def test_text_without_a_whole_block_for_python_holds_no_program(text):
    assert last_program(text) is None


def test_a_block_that_was_cut_does_not_hide_the_one_before():
    assert last_program("```python\nx = 1\n```\nbetter:\n```python\nx = ") == "x = 1"


@given(st.text(alphabet="`~ab \t\n#'\"", max_size=60))
def test_a_program_is_read_as_it_was_given(program):
    assert last_program(f"so\n{fenced(program)}\n") == program


def test_a_very_long_line_takes_no_longer_than_its_length():
    assert last_program(f"```{'a ' * 500_000}`") is None
