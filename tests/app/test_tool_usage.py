"""Each stage keeps what the tool's sandbox did in it, however the stage ends."""

import asyncio
import io
import os
import signal

import pytest
from rich.console import Console

from forethought.app.context import COLLECT, Context
from forethought.app.recipe import read_recipe
from forethought.app.show import Show
from forethought.app.tool import open_tool
from forethought.core.errors import RecipeError
from forethought.journal.run import Run
from forethought.watch.tool import USAGE, usages
from tools.test_supervision import supervisors

STAGES = ("collect", "sft_first", "sft_second", "eval_first", "eval_before", "measure", "rl")


def test_every_stage_of_a_run_keeps_as_many_programs_as_its_attempts_called(staged):
    with Run.read(staged.eval) as run:
        found = {one.stage: one.usage for one in usages(run)}
        assert {*STAGES, "eval_after"} == found.keys()
        for stage in ("collect", "measure", "rl", "eval_after"):
            sides = [
                side
                for group in run.groups(stage)
                for episode in group.episodes
                for side in episode.trajectories
            ]
            replies = [reply for side in sides for reply in side.replies]
            ran = [reply for reply in replies if reply.seconds > 0]
            assert found[stage].programs == len(ran)
        assert found["collect"].ended["ok"] > 0
        assert found["collect"].ended["error"] > 0  # shown on purpose


@pytest.fixture
def context(recipe, tmp_path):
    chosen = read_recipe(recipe)
    with Run.create_or_open(tmp_path / "run", chosen.model_dump(mode="json")) as run:
        yield Context(chosen, run, Show(Console(file=io.StringIO(), width=200)))


def used(context, work):
    """Do some work with the tool, as a stage does."""

    async def run():
        stage = context.run.stage("collect")
        async with open_tool(context, stage) as tool:
            await work(tool.opened.backend)

    asyncio.run(run())
    return context.run.document("collect", USAGE)


async def twice(backend):
    await backend.run("1")
    await backend.run("1 / 0")


def test_a_stage_that_goes_on_adds_to_what_it_kept(context):
    assert used(context, twice)["ended"] == {"ok": 1, "error": 1}
    again = used(context, twice)
    assert again["ended"] == {"ok": 2, "error": 2}
    assert again["queued"] > 0
    assert context.show.console.file.getvalue() == ""


def test_a_server_that_had_to_be_replaced_is_kept_and_said(context):
    async def work(backend):
        (supervisor,) = {*supervisors()} - others
        os.kill(supervisor, signal.SIGKILL)
        while not backend.replaced:
            await backend.run("1")

    others = {*supervisors()}
    found = used(context, work)
    assert found["replaced"]["dead"] == 1
    said = context.show.console.file.getvalue()
    assert "the Python tool: servers were replaced (dead 1" in said


def test_a_stage_that_fails_has_kept_it(context):
    async def work(backend):
        await backend.run("1")
        raise RecipeError("mend something else")

    context.begin("collect", COLLECT)
    with pytest.raises(RecipeError, match="mend something else"):
        used(context, work)
    assert context.run.document("collect", USAGE)["ended"] == {"ok": 1}
