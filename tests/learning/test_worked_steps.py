"""Numbers on the way to a worked result are ours too, where ours has such a step."""

import json
from pathlib import Path

import pytest
from pytest import approx

from forethought.learning.advantage import AdvantageSettings, deviation
from forethought.learning.credit.catalogue import assign
from forethought.learning.credit.selection import SelectionSettings, quota
from forethought.learning.credit.settings import CreditSettings
from forethought.learning.passk import passk_advantages
from learning.credit.made import attempt


def golden(name):
    return json.loads((Path(__file__).parents[1] / f"golden/{name}.json").read_text())


GROUPS, PASSK = golden("01_group_advantages"), golden("16_passk_training")
TURNS, SELECTION = golden("09_turn_level")["mt_grpo_k2"], golden("17_data_curriculum")["roc"]


def test_the_deviation_of_a_batch_is_the_worked_one():
    found = deviation(GROUPS["inputs"]["reward"], ddof=1)
    assert found == approx(GROUPS["expected"]["batch_std_value"], abs=GROUPS["tolerance"])


@pytest.mark.parametrize("case", PASSK["analytic"], ids=lambda case: f"{case['c']} of {case['n']}")
def test_a_right_attempt_is_credited_with_what_draws_lack_over_their_deviation(case):
    if not case["std"]:
        assert passk_advantages(case["n"], case["c"], case["k"], 1e-6) == (0.0, 0.0)
        return
    gain, _ = passk_advantages(case["n"], case["c"], case["k"], 0.0)
    assert gain == approx((1.0 - case["mean"]) / case["std"], abs=PASSK["tolerance"])


def credited(attempts, **settings):
    credit = CreditSettings(type="mt_grpo", **settings)
    return [each.turns for each in assign(attempts, credit, turns_earn=True)]


def test_each_token_of_a_turn_gets_what_its_turn_gets():
    attempts = [
        attempt((earned, 0.0), last=last)
        for earned, last in zip(TURNS["R_I"], TURNS["R_O"], strict=True)
    ]
    exact = AdvantageSettings(epsilon=0.0)
    found = credited(attempts, discount=TURNS["alpha"], advantage=exact)
    for turns, turn_ids, mask, expected in zip(
        found, TURNS["turn_id"], TURNS["response_mask"], TURNS["token_adv_paper"], strict=True
    ):
        by_token = [turns[turn] if turn >= 0 else 0.0 for turn in turn_ids]
        assert by_token == approx(expected, abs=1e-9)
        assert [turn >= 0 for turn in turn_ids] == [bool(each) for each in mask]


def test_an_attempt_without_a_call_gets_the_compared_sum_as_released():
    code = TURNS["code"]
    attempts = [
        attempt((earned, 0.0) if called else (0.0,), last=last)
        for earned, last, called in zip(
            TURNS["R_I"], TURNS["R_O"], code["has_tool_result"], strict=True
        )
    ]
    found = credited(
        attempts,
        form="released",
        turn_weight=code["turn_advantage_coef"],
        advantage=AdvantageSettings(epsilon=code["eps"]),
    )
    silent = [place for place, called in enumerate(code["has_tool_result"]) if not called]
    for place in silent:
        assert list(found[place]) == approx([code["A_combined"][place]], abs=1e-9)
    assert silent != []


def test_what_right_attempts_leave_of_a_selection_is_wrong_ones():
    keep = SELECTION["down_sample_to"]
    right, wrong = len(SELECTION["pos_penalty"]), len(SELECTION["neg"])
    kept = quota(right, wrong, SelectionSettings(keep=keep))
    assert keep - kept == SELECTION["n_neg_rounded"]
