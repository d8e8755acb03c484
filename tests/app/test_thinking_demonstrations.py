"""What a recipe says of earlier thinking holds for demonstrations as for what is sampled."""

from dataclasses import replace

import pytest

from app.small import copied, forethought, outcome
from app.test_other_models import FEW
from forethought.journal.run import Run


def thoughtful(trajectory, thinking):
    """A trajectory whose first turn began with this thinking."""
    first, *others = trajectory.turns
    thought = replace(first, message=replace(first.message, thinking=thinking))
    return replace(trajectory, turns=(thought, *others))


def thinking_in(episode, thinking):
    told = tuple(thoughtful(one, thinking) for one in episode.trajectories)
    return replace(episode, trajectories=told)


@pytest.mark.parametrize("thinking", ["so many coins", ""])
def test_imitation_strips_earlier_thinking_where_sampling_does(recipe, staged, tmp_path, thinking):
    collected = copied(staged.collect, tmp_path / "collected")
    with Run.create_or_open(collected, {}) as run:
        stage = run.stage("collect")
        for step in run.steps("collect"):
            for group in run.groups("collect", step):
                episodes = tuple(thinking_in(one, thinking) for one in group.episodes)
                stage.keep(step, [replace(group, episodes=episodes)])
            stage.commit(step)
    ends = {}
    for kept in ("keep", "strip"):
        folder = copied(collected, tmp_path / kept)
        assert forethought("sft", recipe, "--run", folder, *FEW, f"--sampling.thinking={kept}") == 0
        ends[kept] = outcome(folder).weights
    for stage in ("sft_first", "sft_second"):
        assert (ends["keep"][stage] != ends["strip"][stage]) is bool(thinking)
