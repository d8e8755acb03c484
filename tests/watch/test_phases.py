"""What a report says of a phase is what its recipe and its pilots say."""

import pytest

from forethought.watch.exams import SatExam
from forethought.watch.phases import Phase, ending, handicap, read_phases
from watch.synthetic_run import RECIPE, exam


def phase(name="first", steps=100, tool_free=0.0, stop_at=None):
    return Phase(name=name, steps=steps, tool_free=tool_free, stop_at=stop_at)


def sat(*names):
    return [SatExam(key=name, stage="eval", result=exam(name)) for name in names]


MIXED = phase("mixed", tool_free=0.25)


@pytest.mark.parametrize(
    ("steps", "pilot", "said"),
    [
        (40, 0.5, "phase first ended early, after 40 of 100 steps: pilot accuracy 50.0 %"),
        (100, 0.48, "phase first reached its target with the last of its 100 steps"),
        (40, 0.3, "phase first ended after 40 of 100 steps without reaching its target"),
        (100, 0.3, "phase first ended after 100 of 100 steps without reaching its target"),
    ],
)
def test_a_phase_with_a_target_says_how_it_ended(steps, pilot, said):
    told = ending(phase(stop_at=0.48), steps, [(9, 0.9), (steps - 1, pilot)])
    assert told.startswith(said)
    assert told.endswith(f"pilot accuracy {100 * pilot:.1f} %, target 48.0 % (stop_at)")


def test_a_phase_without_a_target_or_a_pilot_says_nothing():
    assert ending(phase(), 100, [(99, 0.5)]) == ""
    assert ending(phase(stop_at=0.5), 100, []) == ""


def test_phases_are_read_from_a_recipe_and_a_recipe_may_have_none():
    assert [each.stage for each in read_phases(RECIPE)] == ["sft_tool_only", "sft_mixed"]
    assert read_phases({"seed": 1}) == []


def test_a_start_that_was_held_back_is_said_to_be():
    told = handicap([phase("tool_only"), MIXED], sat("tool_only", "before", "after")).text
    assert "“before” on purpose: 25.0 % of the demonstrations of its last phase, mixed" in told
    assert "“tool only” stands beside it" in told
    assert "demonstrations none solve" in told


def test_a_control_that_saw_some_answers_without_the_tool_is_not_said_to_have_seen_none():
    control = phase("tool_only", tool_free=0.125)
    told = handicap([control, MIXED], sat("tool_only", "before", "after")).text
    assert "demonstrations 12.5 % solve" in told


@pytest.mark.parametrize(
    ("phases", "exams"),
    [
        ([MIXED], ("before", "after")),
        ([phase("tool_only"), MIXED], ("before", "after")),
        ([phase("tool_only", tool_free=0.9), MIXED], ("tool_only", "before", "after")),
    ],
)
def test_without_a_control_a_start_that_was_held_back_has_none_beside_it(phases, exams):
    told = handicap(phases, sat(*exams)).text
    assert "No exam from before that phase" in told
    assert "stands beside it: an earlier" not in told


@pytest.mark.parametrize(
    ("phases", "exams"),
    [
        ([phase("tool_only"), phase("more")], ("tool_only", "before", "after")),
        ([phase("tool_only"), MIXED], ("tool_only",)),
        ([], ("before", "after")),
    ],
)
def test_a_start_that_was_not_held_back_is_not_said_to_be(phases, exams):
    assert handicap(phases, sat(*exams)) is None


@pytest.mark.parametrize(
    "recipe",
    [
        {"sft": 5},
        {"sft": {"phases": 5}},
        {"sft": {"phases": [{"name": "first"}]}},
        {"sft": {"phases": [RECIPE["sft"]["phases"][0] | {"steps": "many"}]}},
    ],
)
def test_phases_that_are_none_are_an_error_in_words(recipe):
    with pytest.raises(ValueError, match=r"^sft.* is no (table|list of phases)$"):
        read_phases(recipe)
