"""The models that are measured, taught by imitation for a moment so that they end and call.

A raw model seldom ends its turn or calls a tool: every attempt would run into the limit, and
nothing about lengths or tools would be measured. Made once, by Forethought's own commands.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.children import environment
from benchmarks.speed.environments import weights_file

from forethought.core.problem import Problem
from forethought.tasks.gsm8k import calculations, gsm8k_problems
from forethought.tasks.practice.problems import practice_problems
from forethought.tasks.settings import PracticeSettings

HARDEST = 2
"""Calculations in a GSM8K problem at most."""
OFFERED = 512
"""Problems that are there to be attempted."""
RECIPE = """
[problems]
{problems}
[model]
{model}
[tool]
shown_characters = 200
[collect]
problems = {shown}
[rl]
steps = 1
[sft]
longest = 800
[[sft.phases]]
name = "taught"
steps = {steps}
batch = {batch}
[sft.phases.optimizer]
rate = {rate}
warmup = 2
schedule = "cosine"
"""
FRESH = """type = "fresh"
architecture = "qwen3"
width = {width}
layers = {layers}
heads = 4
feed = {feed}
vocabulary = 640
context = 1024
format = "compact"
"""
SMOLLM2_GGUF = """type = "gguf"
file = "{file}"
folder = "{folder}"
format = "hermes"
"""
GSM8K = """type = "gsm8k"
train = "{file}"
held_out = "{file}"
most_calculations = 2
"""


CONVERT = """
import pathlib, sys
from forethought.policy.local.gguf import convert_gguf
convert_gguf(sys.argv[1], pathlib.Path(sys.argv[2]))
"""
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}


class TeachingError(Exception):
    """A model that could not be made; the message ends with what the command said last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model to measure. `width` 0 is SmolLM2; others are fresh Qwen3 models of that width."""

    name: str
    title: str
    format: str = "compact"
    width: int = 0
    layers: int = 0
    feed: int = 0


SMOLLM2 = Model(name="smollm2", title="SmolLM2-135M", format="hermes")
QWEN3_3M = Model(name="qwen3-3m", title="Qwen3 of 3M", width=224, layers=5, feed=640)
QWEN3_1M = Model(name="qwen3-1m", title="Qwen3 of 0.9M", width=128, layers=4, feed=352)


def problems(model: Model, file: Path | None) -> list[Problem]:
    """What `model` attempts: problems of a GSM8K file for SmolLM2, otherwise made ones."""
    if not model.width and file is not None:
        found = [one for one in gsm8k_problems(file) if 0 < calculations(one) <= HARDEST]
        return found[-OFFERED:]
    return practice_problems(PracticeSettings(), "held_out", OFFERED, seed=0)


def taught(model: Model, cache: Path, file: Path | None, threads: int) -> Path:
    """The folder of the taught model below `cache`, made unless it is there.

    Raises `TeachingError` when one of Forethought's commands fails.
    """
    text = _recipe(model, cache, file)
    folder = folder_of(model, cache, file)
    if folder.is_dir():
        return folder
    print(f"teaching {model.title}: {folder}", flush=True)
    run, recipe = folder.with_suffix(".run"), folder.with_suffix(".toml")
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text(text)
    if not model.width:
        _convert(cache, threads)
    for command in ("collect", "sft"):
        _python(["-m", "forethought", command, str(recipe), "--run", str(run)], threads)
    last = max((run / "checkpoints" / "sft_taught").glob("[0-9]*"), key=lambda one: int(one.name))
    for optimizer in last.glob("optimizer*"):
        optimizer.unlink()
    _settle(last / "config.json")
    last.rename(folder)
    shutil.rmtree(run)
    return folder


def folder_of(model: Model, cache: Path, file: Path | None) -> Path:
    """Where the model is kept that its recipe makes of the problems as they are now."""
    digest = hashlib.blake2b(_recipe(model, cache, file).encode(), digest_size=4)
    if not model.width and file is not None:
        digest.update(file.read_bytes())
    return cache / "models" / f"{model.name}-{digest.hexdigest()}"


def _converted(cache: Path) -> Path:
    """Where SmolLM2 is kept as an ordinary folder."""
    return cache / "models" / "smollm2-135m-instruct"


def _convert(cache: Path, threads: int) -> None:
    """Turn SmolLM2's GGUF file into an ordinary folder, unless that is done."""
    folder = _converted(cache)
    _python(["-c", CONVERT, str(weights_file(cache)), str(folder)], threads)
    _settle(folder / "config.json")


def _settle(config: Path) -> None:
    """Say nothing of GGUF in a model's configuration: its weights are plain numbers by now.

    Otherwise transformers would not save it, and vLLM not load it.
    """
    found = json.loads(config.read_text())
    found.pop("quantization_config", None)
    found["architectures"] = [ARCHITECTURES[found["model_type"]]]
    config.write_text(json.dumps(found, indent=1))


def _recipe(model: Model, cache: Path, file: Path | None) -> str:
    """What teaches `model`: every weight, a few hundred short trajectories."""
    if model.width:
        fresh = FRESH.format(width=model.width, layers=model.layers, feed=model.feed)
        return RECIPE.format(
            problems='type = "practice"', model=fresh, shown=3000, steps=150, batch=16, rate=2e-3
        )
    given = 'type = "practice"' if file is None else GSM8K.format(file=file.resolve())
    gguf = SMOLLM2_GGUF.format(file=weights_file(cache), folder=_converted(cache))
    return RECIPE.format(problems=given, model=gguf, shown=100, steps=12, batch=4, rate=2e-4)


def _python(words: list[str], threads: int) -> None:
    """Run Python with Forethought to import. Raises `TeachingError` when it fails."""
    done = subprocess.run(
        [sys.executable, *words],
        env=environment(threads),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stdout + done.stderr)[-3000:]
        raise TeachingError(f"python {' '.join(words)}:\n{said}")
