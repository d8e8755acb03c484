"""Hostile programs by group, each with the ways it may end; `test_hostile.py` runs them everywhere.

They stand in `hostile.txt`, each below a line with its group, its name, and the kinds it may end
as. `refused` there: the lower tiers may refuse part of it, and it may then also fail or do nothing.
"""

import re
from pathlib import Path
from typing import NamedTuple


class Hostile(NamedTuple):
    """One program."""

    group: str
    code: str
    kinds: frozenset[str]
    refused: bool


# Every program that breaks out says ESCAPED, or shows the host's secret.
ATTEMPT = """
import ctypes, errno, os, signal, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(action, *arguments):
    try:
        result = action(*arguments)
    except Exception as error:
        print(type(error).__name__)
    else:
        print("ESCAPED", result)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
        raise PermissionError
    return number  # any other error shows that the kernel has looked at the arguments
def look(path):
    try:
        with open(path, "rb") as file:
            print(path, file.read(100_000))
    except OSError as error:
        print(type(error).__name__)
"""


def read_programs(text):
    found = {}
    for part in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
        head, _, code = part.partition("\n")
        group, name, words = head.split(": ")
        kinds = frozenset(words.split(", "))
        code = code.rstrip("\n")
        found[name] = Hostile(group, code, kinds - {"refused"}, "refused" in kinds)
    return found


PROGRAMS = read_programs(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
