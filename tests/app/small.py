"""Commands in this process, and what a run of the small recipe (`benchmarks.small`) came to."""

import contextlib
import hashlib
import multiprocessing
import shutil
from dataclasses import dataclass, fields
from pathlib import Path

import psutil

from forethought.app.cli import main
from forethought.journal.run import Run
from forethought.watch.tool import USAGE

STAGES = ("collect", "sft_first", "sft_second", "eval_first", "eval_before", "measure", "rl")
TRAINED = ("sft_first", "sft_second", "rl")


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
    """All that a run came to, apart from how long it took and from what its host did."""

    metrics: dict
    documents: dict
    said: dict
    weights: dict

    def of(self, stages):
        """The same of some of its stages."""
        kept = {field.name: getattr(self, field.name) for field in fields(self)}
        return Outcome(
            **{name: {one: found[one] for one in stages} for name, found in kept.items()}
        )


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


def finished(folder):
    """The names of the stages that a run has finished."""
    with Run.read(folder) as run:
        return [one.name for one in run.stages() if one.finished]


def _metrics(run, stage):
    return {
        metric: run.series(stage, metric)
        for metric in run.metrics(stage)
        if not metric.startswith("seconds/")
    }


def _documents(run, stage):
    names = (name for name in run.documents(stage) if name not in {"fingerprint", USAGE})
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


def logged(*words, log):
    """The exit code of a command in this process that says what it says to a file."""
    with Path(log).open("w") as file, contextlib.redirect_stdout(file):
        return forethought(*words)


def _command(words, log):
    raise SystemExit(logged(*words, log=log))


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
