"""What a program wrote and how it ended, as the text that a model reads."""

import re
import sys

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
    streams = (_readable(outcome.out), _readable(outcome.err))
    written = "\n".join(stream for stream in streams if stream)
    kept = len(outcome.out) + len(outcome.err)
    gone = outcome.out_bytes + outcome.err_bytes - kept
    parts = (cut(written, settings.shown_characters, gone), _note(outcome, settings))
    return "\n".join(part for part in parts if part) or "[no output]"


def cut(text: str, most: int, gone: int = 0) -> str:
    """The text, or its beginning and its end with the number of characters left out between.

    `gone` counts what was left out of the middle before.

    >>> cut("aaaabbbbcccc", 8)
    'aaaa\\n[4 characters left out]\\ncccc'
    """
    left_out = max(0, len(text) - most) + gone
    if not left_out:
        return text
    tail = min(most, len(text)) // 2
    head = min(most, len(text)) - tail
    return f"{text[:head]}\n[{left_out} characters left out]\n{text[len(text) - tail :]}"


def clean(text: str) -> str:
    """The text without terminal escapes and control characters, and without host paths."""
    if sys.base_prefix != "/usr":
        text = text.replace(sys.base_prefix, "/python")
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _CONTROLS.sub("", text)


def _readable(data: bytes) -> str:
    return clean(data.decode("utf-8", "replace")).rstrip("\n")


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
