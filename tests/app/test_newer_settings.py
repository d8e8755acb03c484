"""A release that adds settings goes on with runs that were begun without them."""

import copy
import io

import pytest
from rich.console import Console

from forethought.app.context import RL, Context
from forethought.app.recipe import read_recipe
from forethought.app.show import Show
from forethought.core.errors import RecipeError
from forethought.core.settings import Settings
from forethought.journal.run import Run

KL = "--rl.control.kl={start=0.1, most=1.0, target=0.01}"
STEERING = (KL, "--rl.control.clip={start=0.3}")
ABSENT = object()


def recorded(recipe):
    """What a stage of reinforcement learning records of its settings."""
    found = recipe.model_dump(mode="json")
    found["rl"]["credit"]["type"] = "outcome"  # what `auto` stands for without rewards by turn
    apart = {"pilot": recipe.sft.pilot_problems, "measure": recipe.measure.problems}
    return {section: found[section] for section in RL} | {"set_apart": apart}


def put(document, way, value):
    """Set or take away what lies at the end of the way."""
    *first, last = way
    for part in first:
        document = document[part]
    if value is ABSENT:
        del document[last]
    else:
        document[last] = value


def left_at_default(settings, way=()):
    """The ways to all keys and tables that are as they are when a recipe leaves them out."""
    for key, field in type(settings).model_fields.items():
        value = getattr(settings, key)
        if value == field.get_default(call_default_factory=True):
            yield (*way, key)
        for place, table in enumerate(value) if isinstance(value, tuple) else ():
            if isinstance(table, Settings):
                yield from left_at_default(table, (*way, key, place))
        if isinstance(value, Settings):
            yield from left_at_default(value, (*way, key))


@pytest.fixture
def begun(tmp_path):
    """Goes on, with a recipe, with a stage that recorded some settings in its first step."""

    def go_on(document, recipe):
        with Run.create_or_open(tmp_path / "run", {}) as run:
            stage = run.stage("rl")
            stage.put("fingerprint", document)
            stage.commit(0)
            said = io.StringIO()
            Context(recipe, run, Show(Console(file=said))).begin("rl", RL)
            return stage.get("fingerprint"), said.getvalue()

    return go_on


@pytest.mark.parametrize("overrides", [(), STEERING])
def test_a_setting_that_a_run_did_not_record_counts_as_its_default(recipe, begun, overrides):
    now = read_recipe(recipe, overrides)
    whole = recorded(now)
    ways = [way for way in left_at_default(now) if way[0] in RL]
    assert {("rl", "limits"), ("rl", "limits", "not_measured"), ("tool", "queue")} <= {*ways}
    assert ("sft", "phases", 1, "optimizer", "beta_1") in ways
    assert (("rl", "control", "kl", "horizon") in ways) is bool(overrides)
    for way in ways:
        older = copy.deepcopy(whole)
        put(older, way, ABSENT)
        assert begun(older, now) == (whole, ""), way


STEERED = 'rule = "adaptive", start = 0.1, most = 1.0, target = 0.01, horizon = 10000'


@pytest.mark.parametrize(
    ("before", "way", "value", "overrides", "words"),
    [
        (
            (),
            ("rl", "limits"),
            ABSENT,
            ("--rl.limits.not_measured=0.2",),
            "rl.limits.not_measured was 0.1, is now 0.2",
        ),
        ((), ("rl", "control"), ABSENT, (KL,), f"rl.control.kl was not set, is now {STEERED}"),
        ((), ("rl", "steps"), 4, (KL,), f"rl.control.kl was not set, is now {STEERED}"),
        ((KL,), ("rl", "steps"), 4, (), f"rl.control.kl was {STEERED}, is now not set"),
        (
            (),
            ("collect", "demonstrators", "styles", "tool_free"),
            ABSENT,
            (),
            "collect.demonstrators.styles.tool_free was absent, is now 0.4",
        ),
        ((), ("problems", "held_out"), ABSENT, (), "problems.held_out was absent, is now "),
        ((), ("rl", "given_up"), 3, (), "rl.given_up was 3, is now absent"),
        ((), ("sft", "phases", 1), ABSENT, (), 'sft.phases.1 was absent, is now name = "second"'),
    ],
)
def test_what_differs_is_refused_by_name(recipe, begun, before, way, value, overrides, words):
    older = recorded(read_recipe(recipe, before))
    put(older, way, value)
    with pytest.raises(RecipeError) as refused:
        begun(older, read_recipe(recipe, overrides))
    told = str(refused.value).partition("settings: ")[2].partition(". Restore")[0]
    assert told.startswith(words)
    assert "; " not in told


BY_TURN = ("--rl.reward.process.retrieval=0.1",)


@pytest.mark.parametrize(
    ("type", "overrides"),
    [("outcome", ()), ("turn_rloo", BY_TURN), ("outcome", (*BY_TURN, "--rl.credit.type=outcome"))],
)
def test_what_a_default_stands_for_is_recorded_and_may_be_named(recipe, begun, type, overrides):
    document = recorded(read_recipe(recipe, overrides))
    document["rl"]["credit"]["type"] = type
    kept, said = begun(document, read_recipe(recipe, overrides))
    assert (kept, said) == (document, "")
    named = read_recipe(recipe, [*overrides, f"--rl.credit.type={type}"])
    assert begun(document, named) == (document, "")


def test_a_run_from_before_turns_were_credited_by_default_is_not_gone_on_with(recipe, begun):
    now = read_recipe(recipe, BY_TURN)
    document = recorded(now)
    del document["rl"]["credit"]["type"]
    with pytest.raises(RecipeError, match=r'credit\.type was "outcome", is now "turn_rloo"'):
        begun(document, now)
