"""What a folder was when it was written: the size and the digest of each file, in `files.json`.

Whether that is what was in memory `altered` tells, while both are there. A folder of an earlier
version has no such record; there the files must at least open.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

Contents = Mapping[str, Mapping[str, Tensor]]
"""Tensors by name, as they are in memory, by the pattern of the files that they were written to.

Of tensors that share their numbers, a file may hold one alone.
"""

RECORD = "files.json"
_ALGORITHM = "blake2b"


def seal(folder: Path) -> None:
    """Write down what is in `folder`. Raises `OSError` when the disk refuses."""
    record = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, _ALGORITHM: _digest(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    (folder / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")


def fault(folder: Path) -> str | None:
    """Why `folder` is not what was written; None when it is. Files beside those written are not
    looked at.

    Reads every byte: what a disk lost without a word is found here and not as other weights.
    Raises `OSError` where it cannot be read at all, which says nothing of what was written.
    """
    if not (folder / RECORD).is_file():
        return unreadable(folder)
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        faults = (_file_fault(folder / name, written) for name, written in record.items())
        return next((found for found in faults if found), None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{RECORD} cannot be read ({type(error).__name__}: {error})"


def unreadable(folder: Path) -> str | None:
    """Which JSON or safetensors file of `folder` does not open, and why; None when all do."""
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")]):
        try:
            if path.suffix == ".json":
                json.loads(path.read_bytes())
            else:
                # One that is cut short does not open.
                with safe_open(path, framework="pt"):
                    pass
        except (ValueError, SafetensorError) as error:
            return f"{path.name} cannot be read ({error})"
    return None


def altered(folder: Path, contents: Contents) -> str | None:
    """Which tensor that was read back is not the one in memory to the bit; None when all are.

    One tensor at a time is held twice.
    """
    for pattern, held in contents.items():
        for path in sorted(folder.glob(pattern)):
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (it is no mapping)
                    if name not in held or not _same(file.get_tensor(name), held[name]):
                        return f"{path.name} holds another {name} than was written"
    return None


def _same(read: Tensor, held: Tensor) -> bool:
    """Whether two tensors are the same bytes; NaN is like any other number here."""
    if (read.shape, read.dtype) != (held.shape, held.dtype):
        return False
    one, other = (each.detach().cpu().contiguous().flatten() for each in (read, held))
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def _file_fault(path: Path, written: dict[str, Any]) -> str | None:
    if not path.is_file():
        return f"{path.name} is missing"
    size = path.stat().st_size
    if size != written["bytes"]:
        return f"{path.name} has {size:,} bytes, {written['bytes']:,} were written"
    if _digest(path) != written[_ALGORITHM]:
        return f"{path.name} holds other bytes than were written"
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, _ALGORITHM).hexdigest()
