"""Settings of the training loops: their own defaults, and what they refuse."""

import pytest
from pydantic import ValidationError

from forethought.core.errors import RecipeError
from forethought.learning.rl_settings import RLSettings
from forethought.learning.settings import OptimizerSettings, PhaseSettings, SFTSettings

PHASE = {"name": "first", "steps": 1}


def test_a_partial_table_keeps_the_other_defaults_of_its_stage():
    phase = PhaseSettings.model_validate(PHASE | {"optimizer": {"clip_norm": 2.0}})
    assert phase.optimizer == PhaseSettings.model_validate(PHASE).optimizer.model_copy(
        update={"clip_norm": 2.0}
    )
    learning = RLSettings.model_validate({"steps": 1, "optimizer": {"rate": 2e-4}})
    assert learning.optimizer == RLSettings(steps=1).optimizer.model_copy(update={"rate": 2e-4})


def test_each_stage_has_an_optimiser_of_its_own():
    imitating, learning = PhaseSettings(name="p", steps=1).optimizer, RLSettings(steps=1).optimizer
    assert (imitating.rate, imitating.schedule, imitating.warmup) == (5e-5, "cosine", 10)
    assert (learning.rate, learning.schedule, learning.warmup) == (1e-6, "constant", 0)
    assert (imitating.beta_2, learning.beta_2) == (0.95, 0.999)


@pytest.mark.parametrize("name", ["beta_1", "beta_2"])
def test_a_moment_that_never_decays_is_refused(name):
    with pytest.raises(ValidationError, match=name):
        OptimizerSettings.model_validate({name: 1.0})
    assert getattr(OptimizerSettings.model_validate({name: 0.999}), name) == 0.999


def test_a_target_without_a_pilot_is_refused():
    phases = [PHASE, {"name": "second", "steps": 1, "stop_at": 0.4}]
    with pytest.raises(RecipeError, match=r"sft\.phases\.1\.stop_at = 0\.4.*sft\.pilot_every"):
        SFTSettings.model_validate({"phases": phases})
    held = SFTSettings.model_validate({"phases": phases, "pilot_every": 5})
    assert held.phases[1].stop_at == 0.4
