"""What a recipe says that will hardly be meant is told in a sentence, and nothing else is."""

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from benchmarks.small import RECIPE, write_recipe

from app.small import forethought
from forethought.app.linter import RULES, warnings
from forethought.app.recipe import checked

ROOT = Path(__file__).parents[2]
EMBEDDED = tomllib.loads((files("forethought.app") / "quickstart.toml").read_text())
JUDGE = {"endpoint": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}}


def found(reward=None, agent=None, problems=None, credit=None):
    """The warnings of the embedded recipe with other rewards, limits, problems and credit."""
    tree = EMBEDDED | {
        "rl": EMBEDDED["rl"] | {"reward": reward or {}} | ({"credit": credit} if credit else {})
    }
    tree |= {"agent": EMBEDDED["agent"] | (agent or {})}
    tree |= {"problems": problems} if problems else {}
    return warnings(checked(tree, "a recipe"))


FILE = {"type": "file", "train": "a.jsonl", "held_out": "b.jsonl"}
CODE = FILE | {"type": "code"}

DOUBTFUL = {
    "paying right answers for calls": (
        {"variant": "paper"},
        r'rl\.reward\.variant = "paper": .*0\.4 more.*call more; use "gated"',
    ),
    "paying every turn with calls": (
        {"process": {"well_formed": 0.1}},
        r"process\.well_formed = 0\.1: .*calling more often pays; set rl\.reward\.process\.call_",
    ),
    "paying every new call that brings the answer": (
        {"process": {"retrieval": 0.1}},
        r"process\.retrieval = 0\.1: .*again and again pays.*process\.call_cost, or retrieval to 0",
    ),
    "paying every turn that a judge likes": (
        {"judge": JUDGE},
        r"judge\.weight = 0\.1: .*one turn more .*pays.*process\.call_cost, or the weight to 0",
    ),
    "a wrong answer that earns as much": (
        {"wrong_ceiling": 1.0, "bonus_cap": 40},
        r"best wrong answer can earn as much .*lower rl\.reward wrong_ceiling",
    ),
    "a length that costs more than being wrong": (
        {"overlong_buffer": 24, "overlong_limit": 120, "overlong_factor": 2.0},
        r"\(they are -0\.4 apart\).*lower rl\.reward overlong_factor",
    ),
    "parts that may pass right and wrong by each other": (
        {"process": {"most": 0.5, "execution": 0.1}},
        r"process\.most = 0\.5: .*past each other.*below 0\.5",
    ),
    "parts without a share": (
        {"process": {"most": 0.0, "execution": 0.1}, "penalties": {"format": 0.1}},
        r"process\.most = 0: nothing is left for execution, format, .*raise it",
    ),
    "a share for no parts": (
        {"process": {"most": 0.1}, "penalties": {"divergence": 0.1}},
        r"process\.most = 0\.1: nothing that it bounds is set, .*remove it, or set one",
    ),
    "parts without room": (
        {
            "overlong_buffer": 24,
            "overlong_limit": 120,
            "overlong_factor": 2.0,
            "process": {"execution": 0.1},
        },
        r"process: execution are set, .*no room for them, so that they come to 0; lower",
    ),
    "a judge for nothing": (
        {"judge": JUDGE | {"weight": 0.0}},
        r"judge\.weight = 0: .*come to nothing; raise the weight",
    ),
    "a bonus for no call": (
        {"bonus_cap": 0},
        r"bonus_cap = 0: no call earns anything.*tool_bonus = 0\.1",
    ),
    "a ceiling that leaves nothing": (
        {"wrong_ceiling": -1.0},
        r"wrong_ceiling = -1: .*nothing to earn .*raise it",
    ),
    "a cap of a bonus that is not paid": (
        {"variant": "outcome", "bonus_cap": 2},
        r'bonus_cap = 2: nothing reads it with rl\.reward\.variant = "outcome"; remove it',
    ),
    "a bonus that is not paid": (
        {"variant": "search", "tool_bonus": 0.5},
        r'tool_bonus = 0\.5: nothing reads it with rl\.reward\.variant = "search"; remove it',
    ),
    "a limit without a buffer": (
        {"overlong_limit": 100},
        r"overlong_limit = 100: nothing reads it .*set rl\.reward\.overlong_buffer above 0",
    ),
    "a factor without a buffer": (
        {"overlong_factor": 0.5},
        r"overlong_factor = 0\.5: nothing reads it .*set rl\.reward\.overlong_buffer above 0",
    ),
    "a count of tokens without a buffer": (
        {"length_basis": "all_tokens"},
        r'length_basis = "all_tokens": nothing reads it .*set rl\.reward\.overlong_buffer above 0',
    ),
    "a buffer before a penalty of nothing": (
        {"overlong_buffer": 24, "overlong_limit": 120, "overlong_factor": 0.0},
        r"overlong_factor = 0: nothing is lost by length, .*overlong_buffer = 24 .*raise the fac",
    ),
    "a limit that no attempt reaches": (
        {"overlong_limit": 500, "overlong_buffer": 100},
        r"overlong_limit = 500: .*begin at 400 tokens.*max_tokens = 120.*lower the limit",
    ),
    "a limit that no attempt quite reaches": (
        {"overlong_limit": 150, "overlong_buffer": 100},
        r"overlong_limit = 150: agent\.max_tokens = 120 ends .*before the penalty is full",
    ),
    "thinking that cannot last so long": (
        {"penalties": {"thinking": 0.1, "thinking_limit": 120}},
        r"penalties\.thinking_limit = 120: agent\.max_tokens = 120 .*lower the limit",
    ),
    "a limit of thinking that costs nothing": (
        {"penalties": {"thinking_limit": 100}},
        r"penalties\.thinking_limit = 100: nothing reads it .*reward\.penalties\.thinking above 0",
    ),
    "tests of problems without tests": (
        {"partial": 0.5},
        r'reward\.partial = 0\.5: .*problems\.type = "practice" has none.*remove it',
    ),
    "parts of problems without parts": (
        {"process": {"steps": 0.1, "coverage": 0.1, "verification": 0.1}},
        r'steps, coverage, verification need problems .*problems\.type = "practice" has none',
    ),
}


@pytest.mark.parametrize("case", DOUBTFUL)
def test_what_will_hardly_be_meant_is_told(case):
    reward, message = DOUBTFUL[case]
    assert [one for one in found(reward) if re.search(message, one)] != []


@pytest.mark.parametrize("case", DOUBTFUL)
def test_a_warning_names_a_key_what_happens_and_what_to_do(case):
    for sentence in found(DOUBTFUL[case][0]):
        assert re.fullmatch(r"(rl\.reward|agent\.)[^:]*: .+; .+", sentence)


def test_without_turns_for_calls_nothing_that_needs_one_is_paid():
    reward = {"process": {"retrieval": 0.1}, "penalties": {"exception": 0.1}}
    (told,) = found(reward, agent={"max_turns": 0})
    assert "agent.max_turns = 0" in told
    assert "process.retrieval, penalties.exception, tool_bonus" in told
    assert found({"variant": "outcome"}, agent={"max_turns": 0}) == ()


def test_without_a_further_turn_nothing_can_be_added_to_what_turns_earn():
    retrieval, judge = {"process": {"retrieval": 0.1}}, {"judge": JUDGE, "variant": "outcome"}
    assert [len(found(each)) for each in (retrieval, judge)] == [1, 1]
    assert found(retrieval, agent={"max_turns": 1}) == ()
    assert len(found(judge, agent={"max_turns": 1})) == 1
    assert found(judge, agent={"max_turns": 0}) == ()


PASSK = {"advantage": {"kind": "passk", "k": 2}}
MAXRL = {"advantage": {"kind": "maxrl"}}
MERGED = {"type": "merged", "turn_weight": 0.0}


@pytest.mark.parametrize(
    ("reward", "credit", "named"),
    [
        ({}, PASSK, "tool_bonus"),
        ({"variant": "released"}, PASSK, "tool_bonus"),
        ({"variant": "outcome", "partial": 0.0, "process": {"execution": 0.1}}, MAXRL, "execution"),
        (
            {
                "overlong_buffer": 24,
                "overlong_limit": 120,
                "overlong_factor": 0.5,
                "process": {"execution": 0.1},
                "penalties": {"format": 0.1, "divergence": 0.1},
            },
            PASSK,
            "tool_bonus, overlong_factor, divergence, execution, format",
        ),
        ({}, MERGED, "tool_bonus"),
        (
            {
                "variant": "outcome",
                "process": {"execution": 0.1, "exploration": 0.1, "call_cost": 0.1},
                "penalties": {"format": 0.1, "exception": 0.1},
                "judge": JUDGE,
            },
            MERGED,
            "execution, call_cost, exception, judge",
        ),
    ],
)
def test_rewards_that_credit_passes_over_are_told(reward, credit, named):
    (told,) = found(reward, credit=credit)
    assert re.fullmatch(rf"rl\.credit[^:]*: .*rl\.reward {named} come to nothing; .+", told)
    assert found(reward) == ()


@pytest.mark.parametrize(
    ("reward", "credit"),
    [
        ({"variant": "outcome"}, PASSK),
        ({"variant": "outcome"}, MAXRL),
        ({"variant": "outcome", "process": {"exploration": 0.1}}, MERGED),
        ({"variant": "released"}, MERGED),
        ({}, MERGED | {"turn_weight": 0.5}),
        ({}, {"advantage": {"kind": "passk_lead"}}),
    ],
)
def test_credit_that_counts_what_is_earned_is_passed_over(reward, credit):
    assert found(reward, credit=credit) == ()


@pytest.mark.parametrize(
    "reward",
    [
        {},
        {"variant": "outcome"},
        {"variant": "search"},
        {"variant": "released", "tool_bonus": 0.2},
        {"variant": "outcome", "tool_bonus": 0.0},
        {"overlong_buffer": 24, "overlong_limit": 120},
        {"overlong_buffer": 24, "overlong_limit": 300, "length_basis": "all_tokens"},
        {"process": {"execution": 0.1, "well_formed": 0.1, "call_cost": 0.05}},
        {"penalties": {"thinking": 0.1, "thinking_limit": 60, "format": 0.1}},
        {"judge": JUDGE, "process": {"call_cost": 0.05}},
        {"process": {"retrieval": 0.1, "call_cost": 0.05}},
    ],
)
def test_what_pays_for_what_it_names_is_passed_over(reward):
    assert found(reward) == ()


def test_what_is_not_bounded_has_no_part_in_the_bound():
    costly = {"penalties": {"divergence": 0.1}}
    for most in (0.0, 0.5):
        (told,) = found(costly | {"process": {"most": most}})
        assert "nothing that it bounds is set" in told
    (told,) = found({"penalties": {"divergence": 0.1, "format": 0.1}, "process": {"most": 0.0}})
    assert "nothing is left for format, which are set" in told


def test_problems_of_ones_own_may_have_parts():
    assert found({"process": {"verification": 0.1}}, problems=FILE) == ()


def test_tests_passed_are_paid_where_a_program_is_the_answer():
    assert found({"partial": 0.5}, problems=CODE) == ()
    (told,) = found({"partial": 0.5}, problems=FILE)
    assert told.startswith("rl.reward.partial = 0.5")


def test_an_answer_that_is_a_program_is_hardly_ever_brought_by_a_call():
    paid = {"process": {"retrieval": 0.1}}
    (told,) = found(paid, problems=CODE)
    assert re.search(r"process\.retrieval = 0\.1: .*the answer is a program, .*remove it", told)
    (told,) = found(paid, problems=FILE)
    assert "again and again pays" in told


def test_programs_have_no_parts():
    (told,) = found({"process": {"coverage": 0.1}}, problems=CODE)
    assert 'problems.type = "code" has none' in told


def learning(**optimizer):
    """The warnings of the embedded recipe with another optimiser in RL, of which a round has 8."""
    rl = EMBEDDED["rl"] | {"problems": 8, "steps": 5}
    rl |= {"optimizer": rl["optimizer"] | optimizer}
    return warnings(checked(EMBEDDED | {"rl": rl}, "a recipe"))


def test_updates_that_a_round_cannot_have_are_told():
    told, late = learning(updates=9, warmup=41)
    assert re.search(r"rl\.optimizer\.updates = 9: .*rl\.problems = 8 .*lower it", told)
    assert "there are 40 optimiser steps" in late  # and not 45
    assert learning(updates=8, warmup=40) == ()


def test_a_warm_up_that_is_longer_than_its_stage_is_told():
    (told,) = learning(updates=8, warmup=41)
    assert re.search(r"^rl\.optimizer\.warmup = 41: there are 40 optimiser steps.*lower it", told)
    phases = [each | {"steps": 6} for each in EMBEDDED["sft"]["phases"]]
    few = EMBEDDED | {"sft": EMBEDDED["sft"] | {"phases": phases}}
    told = warnings(checked(few, "a recipe"))
    places = [sentence.partition(" ")[0] for sentence in told]
    assert places == [f"sft.phases.{n}.optimizer.warmup" for n in range(len(phases))]


def test_every_rule_has_a_case_that_it_tells():
    telling = {
        rule
        for reward, _ in DOUBTFUL.values()
        for rule in RULES
        if any(rule(checked(EMBEDDED | {"rl": EMBEDDED["rl"] | {"reward": reward}}, "a recipe")))
    }
    assert {rule.__name__ for rule in RULES} - {rule.__name__ for rule in telling} == {
        "_no_call_runs",
        "_credit_passes_over",
        "_steps_never_taken",
        "other_thinking",
    }


@pytest.mark.parametrize(
    "text",
    [
        RECIPE.format(folder="."),
        *(
            path.read_text()
            for path in [*ROOT.glob("recipes/*/*.toml"), *ROOT.glob("recipes/*.toml")]
        ),
    ],
)
def test_the_recipes_of_this_project_have_no_warning(text):
    assert warnings(checked(tomllib.loads(text), "a recipe")) == ()


def test_the_embedded_recipe_has_no_warning():
    assert warnings(checked(EMBEDDED, "embedded")) == ()


def test_warnings_are_printed_when_a_run_begins(tmp_path, capsys):
    recipe = write_recipe(tmp_path, problems=8)
    # Bad input ends the command, after the warnings and before anything is computed.
    words = "rl", recipe, "--run", tmp_path / "run", "--rl.reward.variant=paper"
    assert forethought(*words) == 2
    assert 'warning: rl.reward.variant = "paper": ' in capsys.readouterr().out
    plain = "rl", recipe, "--run", tmp_path / "other"
    assert forethought(*plain) == 2
    assert "warning: " not in capsys.readouterr().out
