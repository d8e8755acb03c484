"""A recipe that is small enough to be run whole: a model of 20,000 parameters, and coins to call.

Every problem is answered by 3 or by 5, which nothing in the question tells: a model that has
learnt only how to answer is right half of the time, so that there is something to compare.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECIPE = """
seed = 3

[problems]
type = "file"
train = "{folder}/train.jsonl"
held_out = "{folder}/held_out.jsonl"

[model]
type = "fresh"
width = 32
layers = 1
heads = 2
feed = 64
vocabulary = 320
context = 400

[tool]
servers = 1
shown_characters = 100

[agent]
max_turns = 2
max_tokens = 48

[sampling]
max_tokens = 32

[compute]
workers = 0
threads = 1

[collect]
problems = 64
[collect.demonstrators.styles]
direct = 0.4
recovering = 0.2
tool_free = 0.4

[sft]
longest = 300
pilot_every = 20
pilot_problems = 4
save_every = 10

[[sft.phases]]
name = "first"
steps = 40
batch = 8
tool_free = 0.5
[sft.phases.optimizer]
type = "muon"
rate = 1e-2
muon_rate = 0.05
warmup = 0
schedule = "constant"

[[sft.phases]]
name = "second"
steps = 20
batch = 8
tool_free = 0.5
[sft.phases.optimizer]
rate = 3e-3
warmup = 0
schedule = "constant"

[measure]
problems = 8
attempts = 4

[rl]
steps = 4
problems = 2
group_size = 4
[rl.checkpoints]
save_every = 2
[rl.optimizer]
updates = 2
rate = 1e-3

[eval]
problems = 4
attempts = 2
"""


def coins(count: int, kind: str) -> Iterator[dict[str, Any]]:
    """Problems that only luck answers, with what a demonstrator needs to show them."""
    rng = random.Random(kind)
    for number in range(count):
        side = rng.choice((3, 5))
        yield {
            "id": f"{kind}-{number}",
            "prompt": f"which of 3 and 5 is case {number}?",
            "answer": side,
            "domain": "coins",
            "plan": "compute.",
            "program": f"print({side})",
        }


def write_problems(path: Path, count: int) -> None:
    """So many coins as a file of problems, its name their kind."""
    path.write_text("".join(json.dumps(coin) + "\n" for coin in coins(count, path.stem)))


def write_recipe(folder: Path, problems: int = 400) -> Path:
    """The small recipe and its problems, in a folder; the recipe's path."""
    write_problems(folder / "train.jsonl", problems)
    write_problems(folder / "held_out.jsonl", 6)
    recipe = folder / "small.toml"
    recipe.write_text(RECIPE.format(folder=folder))
    return recipe
