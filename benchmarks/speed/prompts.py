"""Prompts as ids, of mixed lengths: chats about problems, with the tool announced or without."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from forethought.core.messages import ToolSpec, User
from forethought.core.problem import Problem
from forethought.policy.formats import ChatFormat, chat_format
from forethought.tools.python_tool import PYTHON


def format_of(folder: Path, name: str) -> ChatFormat:
    """The chat format called `name` for the tokenizer of a model's folder."""
    return chat_format(name, Tokenizer.from_file(str(folder / "tokenizer.json")))


def mixed_prompts(chat: ChatFormat, problems: Sequence[Problem], count: int) -> list[list[int]]:
    """`count` different prompts; every second one announces the tool and is longer for it."""
    return [
        chat.opening([User(text=problems[number % len(problems)].prompt)], _tools(number))
        for number in range(count)
    ]


def _tools(number: int) -> list[ToolSpec]:
    return [PYTHON] if number % 2 else []
