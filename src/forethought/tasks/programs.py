"""Programs in messages: how one is asked for, how one is given, and how one is read.

A program is given as a fenced block of Markdown (CommonMark 0.31, section 4.5).
"""

import re

ASKED = (
    "Answer with the whole program, imports included, in one block that begins with ```python and "
    "ends with ```."
)
"""What a problem says of how to answer it."""

NO_PYTHON = (SyntaxError, ValueError, MemoryError, RecursionError)
"""What reading a text as Python raises where it is none, or is too long or nested too deeply."""

_OPENS = re.compile(r"( {0,3})(`{3,}+|~{3,}+)[ \t]*+([^\s`{]*+)[^`]*+")
_PYTHON = frozenset({"python", "python3", "py"})


def fenced(program: str) -> str:
    """A program as an answer gives it.

    >>> fenced("print(1)")
    '```python\\nprint(1)\\n```'
    """
    ticks = max((len(each) for each in re.findall("`{3,}", program)), default=2) + 1
    fence = "`" * max(3, ticks)
    return f"{fence}python\n{program}\n{fence}"


def last_program(text: str) -> str | None:
    """What stands in the last fenced block for Python; None where there is none.

    A block is for Python where it says so; if none does, one that names no language is taken.
    A block that does not end, as in a message that was cut, is none.

    >>> last_program("first\\n```python\\nx = 1\\n```\\nit prints\\n```\\n5\\n```")
    'x = 1'
    """
    blocks = _blocks(text)
    named = [content for language, content in blocks if language.lower() in _PYTHON]
    found = named or [content for language, content in blocks if not language]
    return found[-1] if found else None


def _blocks(text: str) -> list[tuple[str, str]]:
    """The language and the content of each block that ends."""
    blocks: list[tuple[str, str]] = []
    indent, fence, language, content = "", "", "", list[str]()
    for line in text.replace("\r\n", "\n").split("\n"):
        opens = _OPENS.fullmatch(line)
        if not fence and opens:
            (indent, fence, language), content = opens.groups(), []
        elif fence and _closes(line, fence):
            blocks.append((language, "\n".join(content)))
            fence = ""
        elif fence:
            content.append(_without(indent, line))
    return blocks


def _closes(line: str, fence: str) -> bool:
    """Whether a line ends a block: nothing but the fence's character, as often or more."""
    mark = line.strip(" \t")
    indent = len(line) - len(line.lstrip(" "))
    return indent < 4 and len(mark) >= len(fence) and set(mark) == {fence[0]}


def _without(indent: str, line: str) -> str:
    """A line without as many blanks as stand before its block's fence."""
    blanks = len(line) - len(line.lstrip(" "))
    return line[min(blanks, len(indent)) :]
