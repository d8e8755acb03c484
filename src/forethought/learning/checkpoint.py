"""Checkpoints on disk: written beside, synced, read back, renamed; older ones go only then.

A checkpoint is a folder named by its step. What is in it is its writer's business; here is only
how it comes to be there whole, or not at all.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
import os
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from forethought.core.errors import RecipeError
from forethought.journal.files import sync_folder

STATE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The checkpoints of one stage in one folder; the last `keep_last` stay."""

    folder: Path
    keep_last: int = 2

    def save(self, name: str, write: Callable[[Path], None], state: Mapping[str, Any]) -> Path:
        """Write a checkpoint with `write(folder)` and a state; return its final folder.

        Raises `RecipeError` when the disk refuses, or holds something else than was written; the
        earlier checkpoints are untouched.
        """
        beside, final = self.folder / f".{name}.partial", self.folder / name
        try:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)
            write(beside)
            (beside / STATE).write_text(json.dumps(state))
            _sync(beside)
            _read_back(beside)
            shutil.rmtree(final, ignore_errors=True)
            beside.rename(final)
            sync_folder(self.folder)
        except (OSError, SafetensorError, json.JSONDecodeError) as error:
            shutil.rmtree(beside, ignore_errors=True)
            reason = getattr(error, "strerror", None) or error
            raise RecipeError(
                f"checkpoint {final}: {reason}; free space or choose another "
                "--run folder, then run the same command again"
            ) from error
        return final

    def numbered(self) -> dict[int, Path]:
        """The finished checkpoints that are named by a step."""
        if not self.folder.is_dir():
            return {}
        found = (path for path in self.folder.iterdir() if path.name.isdecimal())
        return {int(path.name): path for path in sorted(found, key=lambda path: int(path.name))}

    def forget_old(self) -> None:
        """Remove all but the newest numbered checkpoints."""
        for path in list(self.numbered().values())[: -self.keep_last]:
            shutil.rmtree(path)

    def forget_after(self, last: int) -> None:
        """Remove the checkpoints of steps after `last`."""
        for step, path in self.numbered().items():
            if step > last:
                shutil.rmtree(path)

    def newest(self, last: int) -> tuple[int, Path] | None:
        """The newest checkpoint of a step up to `last`, and its step."""
        steps = [step for step in self.numbered() if step <= last]
        return (max(steps), self.folder / str(max(steps))) if steps else None


def read_state(folder: Path) -> dict[str, Any]:
    """The state that a checkpoint was saved with. Raises `RecipeError` when it is damaged."""
    with intact(folder / STATE):
        return json.loads((folder / STATE).read_text())


@contextmanager
def intact(path: Path) -> Generator[None]:
    """Turn what goes wrong while `path` is read back into a `RecipeError` that names it."""
    try:
        yield
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise RecipeError(
            f"checkpoint {path} is damaged ({type(error).__name__}: {error}); restore it from a "
            "copy, or run that stage in another --run folder"
        ) from error


def save_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """An optimiser's moments, as safetensors named `<parameter>.<moment>`."""
    state: Mapping[int, Mapping[str, Tensor]] = optimizer.state_dict()["state"]
    moments = {
        f"{number}.{name}": value.contiguous()
        for number, values in state.items()
        for name, value in values.items()
    }
    save_file(moments, path)


def load_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Put saved moments back; the settings stay those that the optimiser was built with."""
    state: dict[int, dict[str, Tensor]] = {}
    with intact(path):
        for key, value in load_file(path).items():
            number, name = key.split(".", 1)
            state.setdefault(int(number), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _sync(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(folder)


def _read_back(folder: Path) -> None:
    """Open what is on the disk: a safetensors file that is cut short does not open."""
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt"):
            pass
    json.loads((folder / STATE).read_text())
