"""Checkpoints on disk: written beside, synced, read back, renamed; older ones go only then.

A checkpoint is a folder named by its step. What is in it is its writer's business; here is only
how it comes to be there whole, or not at all, and which of them stay.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from forethought.core.errors import RecipeError
from forethought.journal.files import sync_folder
from forethought.learning.eight_bit import MAPS, is_bitsandbytes, restore
from forethought.learning.seal import Contents, altered, fault, seal, unreadable

STATE = "state.json"

_LEFT_OVER = re.compile(r"\.\d+\.(partial|gone)")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EBUSY)
_NO_NAME = (errno.ENAMETOOLONG, errno.ELOOP)
_SAYS_NO_SPACE = re.compile(rf"os error ({'|'.join(map(str, _NO_SPACE))})\b")


def _nobody(sentence: str) -> None:
    """Who is told when nobody listens."""


def _unranked() -> Sequence[int]:
    """An order in which no step is better than another."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The checkpoints of one stage in one folder.

    The last `keep_last` stay, and of the steps in `ranking` (the best comes first) the first
    `keep_best` that have one. `say` is told which are skipped, and why. `elsewhere` is what
    messages name to choose instead where the disk refuses.
    """

    folder: Path
    keep_last: int = 2
    keep_best: int = 0
    ranking: Callable[[], Sequence[int]] = _unranked
    say: Callable[[str], None] = _nobody
    elsewhere: str = "another --run folder"

    def save(self, name: str, write: Callable[[Path], Contents], state: Mapping[str, Any]) -> Path:
        """Write a checkpoint with `write(folder)` and a state; return its final folder.

        `write` returns the tensors that its files are to hold. Raises `RecipeError` when the disk
        refuses, when a file does not open, or when a tensor that is read back is not the one in
        memory to the bit; the earlier checkpoints are untouched.
        """
        beside, final = self.folder / f".{name}.partial", self.folder / name
        try:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)
            contents = write(beside)
            (beside / STATE).write_text(json.dumps(state))
            # Before the tensors are compared: what is lost between the two shows as a wrong digest.
            seal(beside)
            _sync(beside)
            if found := unreadable(beside) or altered(beside, contents):
                raise OSError(found)  # noqa: TRY301
            self._remove([final])
            beside.rename(final)
            sync_folder(self.folder)
        except (OSError, SafetensorError) as error:
            written = _size(beside)
            shutil.rmtree(beside, ignore_errors=True)
            raise self._refusal(final, error, written) from error
        return final

    def numbered(self) -> dict[int, Path]:
        """The published checkpoints that are named by a step, the oldest first."""
        if not self.folder.is_dir():
            return {}
        found = (path for path in self.folder.iterdir() if path.name.isdecimal() and path.is_dir())
        return {int(path.name): path for path in sorted(found, key=lambda path: int(path.name))}

    def forget_old(self) -> None:
        """Remove all but the newest and the best numbered checkpoints."""
        there = self.numbered()
        ranked = self.ranking() if self.keep_best else ()
        best = [step for step in ranked if step in there][: self.keep_best]
        kept = {*list(there)[-self.keep_last :], *best}
        self._remove(path for step, path in there.items() if step not in kept)

    def forget_after(self, last: int) -> None:
        """Remove the checkpoints of steps after `last`, and what an interrupted process left."""
        self._remove(path for step, path in self.numbered().items() if step > last)
        if self.folder.is_dir():
            for path in [*self.folder.iterdir()]:
                if _LEFT_OVER.fullmatch(path.name):
                    shutil.rmtree(path)

    def newest(self, last: int) -> tuple[int, Path] | None:
        """The newest whole checkpoint of a step up to `last`, and its step.

        Says which newer ones are not as they were written, and what is wrong with them.
        """
        skipped = 0
        for step, path in reversed(self.numbered().items()):
            if step > last:
                continue
            with intact(path):
                found = fault(path)
            if found is None:
                return step, path
            skipped += 1
            self.say(f"checkpoint {path} is skipped: {found}")
        if skipped:
            self.say(f"no checkpoint of {self.folder.name} is whole: it begins again at step 0")
        return None

    def _remove(self, paths: Iterable[Path]) -> None:
        """Remove folders; a kill in between leaves none that looks like a checkpoint."""
        for path in list(paths):
            if path.exists():
                going = path.with_name(f".{path.name}.gone")
                shutil.rmtree(going, ignore_errors=True)
                path.rename(going)
                shutil.rmtree(going)

    def _refusal(self, final: Path, error: Exception, written: int) -> RecipeError:
        reason = getattr(error, "strerror", None) or error
        no_space = getattr(error, "errno", None) in _NO_SPACE
        if not no_space and not _SAYS_NO_SPACE.search(str(error)):
            return RecipeError(
                f"checkpoint {final}: {reason}; {self._remedy(error)} or choose {self.elsewhere}, "
                "then run the same command again"
            )
        earlier = max(map(_size, self.numbered().values()), default=0)
        needed = (
            f"{_told(earlier)}, as an earlier one" if earlier else f"more than {_told(written)}"
        )
        place = next(path for path in (self.folder, *self.folder.parents) if path.is_dir())
        told = (
            f"checkpoint {final}: {reason}; it needs {needed}, "
            f"{_told(shutil.disk_usage(place).free)} are free; free space on that disk"
        )
        again = f"or choose {self.elsewhere}, then run the same command again"
        if not final.name.isdecimal():  # it leaves the run, and lies among other things
            return RecipeError(f"{told} {again}")
        return RecipeError(
            f"{told} (`{self.folder.parent}` holds {_told(_size(self.folder.parent))} of "
            f"checkpoints, fewer with keep_last = 1) {again}: earlier checkpoints are whole"
        )

    def _remedy(self, error: Exception) -> str:
        number = getattr(error, "errno", None)
        if number in _NO_PLACE:
            return f"see to it that {self.folder} is a folder that takes new ones"
        if number in _NO_PERMISSION:
            return f"allow this user to write in {self.folder}"
        if number in _NO_NAME:
            return "name another path"
        return "free space"


def read_state(folder: Path) -> dict[str, Any]:
    """The state that a checkpoint was saved with. Raises `RecipeError` when it is damaged."""
    with intact(folder / STATE):
        return json.loads((folder / STATE).read_text())


def refuse_damaged(folder: Path) -> None:
    """Raise `RecipeError` when a checkpoint is not what was written."""
    with intact(folder):
        found = fault(folder)
    if found:
        raise _damaged(folder, found)


@contextmanager
def intact(path: Path) -> Generator[None]:
    """Turn what goes wrong while `path` is read back into a `RecipeError` that names it."""
    try:
        yield
    except PermissionError as error:
        raise RecipeError(
            f"checkpoint {path} cannot be read ({error.strerror}: {error.filename}); allow this "
            "user to read it"
        ) from error
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _damaged(path: Path, what: str) -> RecipeError:
    return RecipeError(
        f"checkpoint {path} is damaged ({what}); restore it from a copy, or run that stage in "
        "another --run folder"
    )


def save_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> Contents:
    """Write an optimiser's moments as safetensors named `<parameter>.<moment>`; return them."""
    parameters = (each for group in optimizer.param_groups for each in group["params"])
    moments = {
        f"{number}.{name}": torch.as_tensor(value).contiguous()
        for number, parameter in enumerate(parameters)
        for name, value in optimizer.state.get(parameter, {}).items()
        if name not in MAPS
    }
    save_file(moments, path)
    return {path.name: moments}


def load_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Put saved moments back; the settings stay those that the optimiser was built with."""
    state: dict[int, dict[str, Tensor]] = {}
    with intact(path):
        for key, value in load_file(path).items():
            number, name = key.split(".", 1)
            state.setdefault(int(number), {})[name] = value
    if is_bitsandbytes(optimizer):
        restore(optimizer, state)
        return
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _sync(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _size(folder: Path) -> int:
    files = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return sum(path.lstat().st_size for path in files)


def _told(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"
