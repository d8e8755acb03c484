"""A learner hands the portions of its settings to whoever computes for it."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from forethought.learning.batch import pad
from forethought.learning.forecast import ForecastWork
from forethought.learning.gradient import GradientWork
from forethought.learning.losses.catalogue import objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.settings import ComputeSettings
from forethought.policy.local.crew import Crew
from learning.rows import crew_of, learner_of, random_rows
from tiny import local_model

BATCH = pad(random_rows(4), [1.0, -1.0, 0.5, -0.5])


@dataclass
class KeepingCrew:
    """A crew that keeps what it was given to compute."""

    crew: Crew
    given: list[Any] = field(default_factory=list[Any])

    @property
    def model(self):
        return self.crew.model

    @property
    def size(self):
        return self.crew.size

    async def run(self, job, payloads, emit):
        self.given += payloads
        return await self.crew.run(job, payloads, emit)

    def tell(self, place, message):
        self.crew.tell(place, message)

    def collect_gradients(self):
        self.crew.collect_gradients()

    def close(self):
        self.crew.close()


@pytest.fixture
def crew():
    """A crew of one in this process."""
    crew = KeepingCrew(crew_of(local_model()))
    yield crew
    crew.close()


def test_portions_of_computation_reach_gradients_and_forecasts(crew):
    compute = ComputeSettings(micro_tokens=7, logit_tokens=3)
    learner = learner_of(local_model(), crew, compute=compute)

    async def learn():
        await learner.update(BATCH, objective(LossSettings(name="grpo_t")))
        await learner.forecast(BATCH, range(4))

    asyncio.run(learn())
    gradient, forecast = crew.given
    assert isinstance(gradient, GradientWork)
    assert (gradient.micro_tokens, gradient.logit_tokens) == (7, 3)
    assert isinstance(forecast, ForecastWork)
    assert (forecast.micro_tokens, forecast.scale.logit_tokens) == (7, 3)
