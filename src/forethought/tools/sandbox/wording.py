"""What a program wrote and how it ended, as the text that a model reads."""

import re
import sys
from collections.abc import Mapping

from forethought.core.excerpt import cut
from forethought.tools.sandbox.inside.limits import TMP_MEGABYTES
from forethought.tools.sandbox.outcome import SHORT_OF_MEMORY, Kind, Outcome
from forethought.tools.settings import PythonSettings

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|\x1b[ -/]*[0-~]"
)
_FOLDERS = re.compile(r"/(?:tmp|dev/shm)/forethought-[0-9a-f]{16}/\d+")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


_USUAL_NAMES = {} if sys.base_prefix == "/usr" else {sys.base_prefix: "/python"}


def worded(
    outcome: Outcome, settings: PythonSettings, names: Mapping[str, str] = _USUAL_NAMES
) -> str:
    """Output, then errors, both ends of them if they are long; then how the program ended.

    `names` maps paths of the host to what is shown of them.
    """
    streams = (_readable(outcome.out, names), _readable(outcome.err, names))
    written = "\n".join(stream for stream in streams if stream)
    kept = len(outcome.out) + len(outcome.err)
    gone = outcome.out_bytes + outcome.err_bytes - kept
    lost = "[the variables of earlier programs are lost]" if outcome.state_lost else ""
    parts = (cut(written, settings.shown_characters, gone), _note(outcome, settings), lost)
    return "\n".join(part for part in parts if part) or "[no output]"


def clean(text: str, names: Mapping[str, str] = _USUAL_NAMES) -> str:
    """The text without terminal escapes and control characters, and without host paths."""
    for path, shown in names.items():
        text = text.replace(path, shown)
    text = _ESCAPES.sub("", _FOLDERS.sub("/tmp", text.replace("\r\n", "\n")))
    return _CONTROLS.sub("", text)


def _readable(data: bytes, names: Mapping[str, str]) -> str:
    return clean(data.decode("utf-8", "replace"), names).rstrip("\n")


def _note(outcome: Outcome, settings: PythonSettings) -> str:
    short = outcome.detail == SHORT_OF_MEMORY
    held = SHORT_OF_MEMORY if short else f"more than {settings.memory_mb} MB of memory"
    notes = {
        Kind.OK: "",
        Kind.ERROR: "" if outcome.err else f"[exit code {outcome.detail}]",
        Kind.SYNTAX: "" if outcome.err else f"[exit code {outcome.detail}]",
        Kind.REJECTED: outcome.detail,
        Kind.DISK: f"[stopped: more than {TMP_MEGABYTES} MB of files]",
        Kind.TIMEOUT: f"[stopped after {settings.wall_seconds:g} seconds]",
        Kind.CPU: f"[stopped after {settings.cpu_seconds} seconds of processor time]",
        Kind.MEMORY: f"[stopped: {held}]",
        Kind.OUTPUT: "[stopped: too much output]",
        Kind.CRASH: f"[the process was ended by {outcome.detail}]",
    }
    return notes[outcome.kind]
