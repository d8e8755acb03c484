"""What a program wrote and how it ended, as the text that a model reads."""

import re
import sys

from forethought.tools.sandbox.inside.frames import HALF
from forethought.tools.sandbox.outcome import Kind, Outcome
from forethought.tools.settings import PythonSettings

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def worded(outcome: Outcome, settings: PythonSettings) -> str:
    """Output, then errors, both ends of them if they are long; then how the program ended."""
    streams = (
        _readable(outcome.out, outcome.out_bytes),
        _readable(outcome.err, outcome.err_bytes),
    )
    written = "\n".join(stream for stream in streams if stream)
    parts = (cut(written, settings.shown_characters), _note(outcome, settings))
    return "\n".join(part for part in parts if part) or "[no output]"


def cut(text: str, most: int) -> str:
    """The text, or its beginning and its end with the number of characters left out between.

    >>> cut("aaaabbbbcccc", 8)
    'aaaa\\n[4 characters left out]\\ncccc'
    """
    if len(text) <= most:
        return text
    tail = most // 2
    head = most - tail
    left_out = len(text) - most
    return f"{text[:head]}\n[{left_out} characters left out]\n{text[-tail:]}"


def clean(text: str) -> str:
    """The text without terminal escapes and control characters, and without host paths."""
    if sys.base_prefix != "/usr":
        text = text.replace(sys.base_prefix, "/python")
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _CONTROLS.sub("", text)


def _readable(data: bytes, total: int) -> str:
    text = clean(data.decode("utf-8", "replace"))
    if total > len(data):
        head, tail = data[:HALF], data[HALF:]
        left_out = f"\n[{total - len(data)} bytes left out]\n"
        texts = (clean(part.decode("utf-8", "replace")) for part in (head, tail))
        text = left_out.join(texts)
    return text.rstrip("\n")


def _note(outcome: Outcome, settings: PythonSettings) -> str:
    notes = {
        Kind.OK: "",
        Kind.ERROR: "" if outcome.err else f"[exit code {outcome.detail}]",
        Kind.TIMEOUT: f"[stopped after {settings.wall_seconds:g} seconds]",
        Kind.CPU: f"[stopped after {settings.cpu_seconds} seconds of processor time]",
        Kind.MEMORY: f"[stopped: more than {settings.memory_mb} MB of memory]",
        Kind.OUTPUT: "[stopped: too much output]",
        Kind.CRASH: f"[the process was ended by {outcome.detail}]",
    }
    return notes[outcome.kind]
