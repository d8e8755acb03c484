"""A run that is small enough to be whole: a model of 20,000 parameters, and coins to call.

Every problem is answered by 3 or by 5, which nothing in the question tells: a model that has
learnt only how to answer is right half of the time, so that there is something to compare.
"""

import contextlib
import hashlib
import json
import multiprocessing
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from forethought.app.cli import main
from forethought.journal.run import Run

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
updates = 2
save_every = 2
[rl.optimizer]
rate = 1e-3

[eval]
problems = 4
attempts = 2
"""

STAGES = ("collect", "sft_first", "sft_second", "eval_first", "eval_before", "measure", "rl")
TRAINED = ("sft_first", "sft_second", "rl")


def coins(count, kind):
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


def write_problems(path, count):
    path.write_text("".join(json.dumps(coin) + "\n" for coin in coins(count, path.stem)))


def write_recipe(folder, problems=400):
    """The small recipe and its problems, in a folder; the recipe's path."""
    write_problems(folder / "train.jsonl", problems)
    write_problems(folder / "held_out.jsonl", 6)
    recipe = folder / "small.toml"
    recipe.write_text(RECIPE.format(folder=folder))
    return recipe


def forethought(*words):
    """The exit code of a command that is run in this process."""
    return main([str(word) for word in words])


def refused(capsys, *words):
    """The one message with which a command is refused."""
    capsys.readouterr()
    assert forethought(*words) == 2
    message = capsys.readouterr().err
    assert message.startswith("forethought: ")
    assert message.count("forethought: ") == 1
    assert "Traceback" not in message
    return message


@dataclass(frozen=True)
class Outcome:
    """All that a run came to, apart from how long it took."""

    metrics: dict
    documents: dict
    said: dict
    weights: dict


def outcome(folder, stages=None):
    """What the stages (all of them by default) of a run came to."""
    with Run.read(folder) as run:
        names = [one.name for one in run.stages() if stages is None or one.name in stages]
        return Outcome(
            metrics={name: _metrics(run, name) for name in names},
            documents={name: _documents(run, name) for name in names},
            said={name: _said(run, name) for name in names},
            weights={name: _weights(run.checkpoints / name) for name in names},
        )


def _metrics(run, stage):
    return {
        metric: run.series(stage, metric)
        for metric in run.metrics(stage)
        if not metric.startswith("seconds/")
    }


def _documents(run, stage):
    names = (name for name in run.documents(stage) if name != "fingerprint")
    return {name: run.document(stage, name) for name in names}


def _said(run, stage):
    return [
        (
            episode.id,
            episode.verdict,
            trajectory.segments,
            [(each.role, each.text) for each in trajectory.messages],
        )
        for group in run.groups(stage)
        for episode in group.episodes
        for trajectory in episode.trajectories
    ]


def _weights(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*/*.safetensors"))
    }


def copied(folder, place):
    """The same run in another folder."""
    shutil.copytree(folder, place)
    return place


def _command(words, log):
    with Path(log).open("w") as file, contextlib.redirect_stdout(file):
        raise SystemExit(forethought(*words))


def start(*words, log):
    """The same command in a process of its own, whose imports are done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["forethought.app.cli"])
    process = context.Process(target=_command, args=(words, log))
    process.start()
    return process


def family(pid):
    """A process and all that it started, as far as they are there."""
    try:
        one = psutil.Process(pid)
        return [one, *one.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
