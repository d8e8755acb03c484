"""Rows of tokens, and a learner of a tiny model with everything around it."""

import random

from forethought.core.trajectory import Tokens
from forethought.learning.learner import LocalLearner
from forethought.learning.settings import ComputeSettings, OptimizerSettings
from forethought.policy.local.crew import ForkedCrew, LocalCrew
from forethought.policy.local.sampler import LocalSampler
from tiny import VOCABULARY


def row(marks, first=1):
    """Tokens counted up from `first`; `s` is sampled with log-probability -1, `.` is given."""
    sampled = tuple(mark == "s" for mark in marks)
    return Tokens(
        ids=tuple((first + n) % VOCABULARY for n in range(len(marks))),
        sampled=sampled,
        logprobs=tuple(-1.0 if each else 0.0 for each in sampled),
    )


def random_rows(count, seed=0, longest=30):
    """Rows of different lengths, each beginning with a given token and ending with a sampled one.

    Their log-probabilities are about those of a model that hardly prefers one token to another.
    """
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        length = draw.randint(3, longest)
        marks = "".join(draw.choice("s.") for _ in range(length - 2))
        ids = tuple(draw.randrange(VOCABULARY) for _ in range(length))
        sampled = tuple(mark == "s" for mark in f".{marks}s")
        logprobs = tuple(-3.4 + draw.uniform(-0.5, 0.5) if each else 0.0 for each in sampled)
        rows.append(Tokens(ids=ids, sampled=sampled, logprobs=logprobs))
    return rows


def crew_of(model, workers=0, reference=None):
    """In this process for 0 workers, otherwise forked."""
    if workers:
        return ForkedCrew(model.network, workers, reference)
    return LocalCrew(model.network, reference)


def learner_of(model, crew, *, steps=10, temperature=1.0, compute=None, critic=None, **chosen):
    """A learner whose optimiser settings are chosen."""
    return LocalLearner(
        model=model,
        crew=crew,
        sampler=LocalSampler(crew=crew),
        optimizer=OptimizerSettings(**{"rate": 1e-2} | chosen),
        compute=compute or ComputeSettings(),
        total_steps=steps,
        temperature=temperature,
        critic=critic,
    )
