"""What a saved model says of how it is spoken with, in `forethought.json` beside its weights.

It needs no torch, so that a recipe can be held against a model before one is loaded.
"""

import json
from pathlib import Path
from typing import Any, cast, get_args

from forethought.policy.local.settings import FormatName
from forethought.policy.protocol import ThinkingHistory

DESCRIPTION = "forethought.json"


def write_description(folder: Path, format_name: str, thinking: ThinkingHistory | None) -> None:
    """Write the chat format and, where it is known, what becomes of earlier thinking."""
    known = {} if thinking is None else {"thinking": thinking}
    (folder / DESCRIPTION).write_text(json.dumps({"format": format_name, **known}))


def saved_format(folder: Path) -> FormatName:
    """The chat format. Raises `OSError` where nothing is written, `ValueError` for another."""
    name: Any = _read(folder).get("format")
    if name not in get_args(FormatName):
        raise ValueError(f"{folder / DESCRIPTION} names no chat format")
    return name


def saved_thinking(folder: Path) -> ThinkingHistory | None:
    """What became of earlier thinking as the model was trained; None where it does not say.

    Raises `ValueError` for what is neither `keep` nor `strip`.
    """
    if not (folder / DESCRIPTION).is_file():
        return None
    thinking: Any = _read(folder).get("thinking")
    if thinking is not None and thinking not in get_args(ThinkingHistory):
        raise ValueError(f"{folder / DESCRIPTION}: thinking is neither keep nor strip")
    return thinking


def _read(folder: Path) -> dict[str, Any]:
    found: Any = json.loads((folder / DESCRIPTION).read_text())
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
