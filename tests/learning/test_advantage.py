import json
import math
from pathlib import Path
from typing import get_args

from hypothesis import assume, given
from hypothesis import strategies as st
from pytest import approx, mark, raises

from forethought.core.errors import RecipeError
from forethought.learning.advantage import (
    AdvantageName,
    AdvantageSettings,
    gdpo,
    group_advantages,
    varies,
)
from forethought.learning.maxrl import maxrl_advantages
from forethought.learning.passk import lead, passk_advantages
from forethought.learning.whitening import whitened


def golden(name):
    return json.loads((Path(__file__).parents[1] / f"golden/{name}.json").read_text())


GOLDEN = golden("01_group_advantages")
PASSK = golden("16_passk_training")
PLUS = golden("08_reinforcepp_rloo")
INPUTS, EXPECTED = GOLDEN["inputs"], GOLDEN["expected"]
LENGTHS = [sum(row) for row in INPUTS["response_mask"]]

CASES = {
    "grpo_ddof1_eps1e6": ("", AdvantageSettings(kind="grpo")),
    "grpo_ddof1_eps1e4_trl": ("", AdvantageSettings(kind="grpo", epsilon=1e-4)),
    "grpo_ddof0_noeps_zero_std_is_zero": ("", AdvantageSettings(kind="grpo", ddof=0, epsilon=0)),
    "mixed_grpo_ddof1_eps1e6": ("_mixed", AdvantageSettings(kind="grpo", singleton="raw")),
    "drgrpo_center_only": ("", AdvantageSettings(kind="dr_grpo")),
    "batch_std_scale": ("", AdvantageSettings(kind="batch_scaled", epsilon=1e-4)),
    "rloo": ("", AdvantageSettings(kind="rloo")),
    "rloo_mixed": ("_mixed", AdvantageSettings(kind="rloo", singleton="raw")),
    "opo": ("", AdvantageSettings(kind="opo")),
}

KINDS = ("grpo", "dr_grpo", "batch_scaled", "rloo", "opo")
BATCHED = ("gdpo", "reinforce_pp", "reinforce_pp_baseline")
CENTRED = ("grpo", "dr_grpo", "batch_scaled", "rloo")
REWARDS = st.lists(st.integers(-20, 20).map(lambda n: n / 10), min_size=2, max_size=16)


def compare(rewards, kind="grpo", groups=None, lengths=None, right=None, **settings):
    groups = groups or ["g"] * len(rewards)
    return group_advantages(
        rewards, groups, AdvantageSettings(kind=kind, **settings), lengths, right
    )


@mark.parametrize("name", CASES)
def test_advantages_meet_the_worked_numbers(name):
    suffix, settings = CASES[name]
    found = group_advantages(
        INPUTS["reward" + suffix], INPUTS["group" + suffix], settings, lengths=LENGTHS
    )
    assert found == approx(EXPECTED[name], abs=GOLDEN["tolerance"], rel=0)


def test_several_rewards_are_compared_alone_and_whitened_over_tokens():
    dimensions = (INPUTS["reward"], INPUTS["format_reward"])
    found = gdpo(dimensions, INPUTS["group"], LENGTHS, AdvantageSettings())
    rows = [
        [advantage * kept for kept in mask]
        for advantage, mask in zip(found, INPUTS["response_mask"], strict=True)
    ]
    for row, expected in zip(rows, EXPECTED["gdpo_token_level"], strict=True):
        assert row == approx(expected, abs=GOLDEN["tolerance"], rel=0)


def test_several_rewards_that_say_nothing_teach_nothing():
    assert gdpo([[1.0, 1.0], [0.5, 0.5]], ["g", "g"], [3, 4], AdvantageSettings()) == [0.0, 0.0]


@mark.parametrize("kind", KINDS)
def test_equal_rewards_teach_nothing_however_their_mean_rounds(kind):
    assert compare([0.2, 0.2, 0.2], kind) == [0.0, 0.0, 0.0]


def test_rewards_vary_only_beyond_rounding():
    assert varies([0.0, 1.0])
    assert not varies([0.3, 0.1 + 0.2])
    assert not varies([math.nan, 1.0])
    assert not varies([])


@mark.parametrize("kind", KINDS)
def test_an_attempt_without_company_gets_nothing_unless_asked_for(kind):
    assert compare([3.0], kind) == [0.0]
    assert compare([3.0], kind, singleton="raw") == approx([3.0], rel=1e-5)


@mark.parametrize("kind", BATCHED)
def test_an_attempt_alone_in_its_batch_gets_nothing(kind):
    assert compare([3.0], kind) == [0.0]
    assert whitened([3.0], [1]) == [0.0]


@mark.parametrize("kind", KINDS)
def test_an_unknown_reward_leaves_the_statistics_and_gets_nothing(kind):
    known = compare([1.0, 0.0, -1.0], kind, lengths=[3, 1, 2])
    found = compare([1.0, math.nan, 0.0, -1.0], kind, lengths=[3, 9, 1, 2])
    assert found == [known[0], 0.0, known[1], known[2]]


def test_an_infinite_reward_is_refused():
    with raises(ValueError, match="infinite"):
        compare([1.0, math.inf])


def test_a_group_for_every_attempt_is_required():
    with raises(ValueError, match="zip"):
        group_advantages([1.0, 0.0], ["g"], AdvantageSettings())


def test_maxrl_meets_the_worked_numbers():
    right = [reward == 1.0 for reward in INPUTS["reward"]]
    found = compare(INPUTS["reward"], "maxrl", INPUTS["group"], right=right)
    assert found == approx(EXPECTED["maxrl"], abs=GOLDEN["tolerance"], rel=0)


def test_maxrl_goes_by_what_is_right_and_not_by_what_it_earned():
    right = [True, False, False, True]
    for earned in ([0.0, 0.2, -1.0, 1.0], [-1.0] * 4):
        assert compare(earned, "maxrl", right=right) == [1.0, -1.0, -1.0, 1.0]
    unknown = compare([0.0, math.nan, 0.2, -1.0, 1.0], "maxrl", right=[True, *right])
    assert unknown == [1.0, 0.0, -1.0, -1.0, 1.0]
    with raises(ValueError, match=r"maxrl goes by .*give `right`"):
        compare([1.0, -1.0], "maxrl")


def test_maxrl_rewards_rare_success_more_and_nothing_where_none_or_all_are_right():
    for right, expected in ((1, [3.0, -1.0, -1.0, -1.0]), (3, [1 / 3, 1 / 3, 1 / 3, -1.0])):
        verdicts = [place < right for place in range(4)]
        assert compare([0.0] * 4, "maxrl", right=verdicts) == approx(expected)
    for verdict in (True, False):
        assert compare([1.0, -1.0, 0.5], "maxrl", right=[verdict] * 3) == [0.0] * 3


@given(st.integers(2, 8), st.floats(0.05, 0.95))
def test_maxrl_expects_the_gradient_of_the_log_of_success_cut_off(size, p):
    expected = 0.0
    for right in range(size + 1):
        chance = math.comb(size, right) * p**right * (1 - p) ** (size - right)
        gain, loss = maxrl_advantages(size, right)
        # The gradient of an attempt's log-probability in p is 1 / p if right, -1 / (1 - p) if not.
        gradient = (right * gain / p - (size - right) * loss / (1 - p)) / size
        expected += chance * gradient
    assert expected == approx(sum((1 - p) ** (k - 1) for k in range(1, size)))


def test_a_scale_is_refused_where_nothing_is_scaled():
    with raises(RecipeError, match=r"advantage\.ddof = 0: rloo has no use for it"):
        AdvantageSettings(kind="rloo", ddof=0)
    with raises(RecipeError, match=r"advantage\.epsilon = 0\.1: maxrl has no use for it"):
        AdvantageSettings(kind="maxrl", epsilon=0.1)
    with raises(RecipeError, match=r"advantage\.epsilon = 0\.1: reinforce_pp has no use for it"):
        AdvantageSettings(kind="reinforce_pp", epsilon=0.1)
    with raises(RecipeError, match=r"advantage\.k = 8: grpo has no use for it.*passk"):
        AdvantageSettings(k=8)
    with raises(RecipeError, match=r"singleton.*reinforce_pp compares with the batch"):
        AdvantageSettings(kind="reinforce_pp", singleton="raw")


@mark.parametrize("case", PASSK["analytic"], ids=lambda case: f"{case['c']} of {case['n']}")
def test_pass_at_k_is_credited_as_in_the_worked_numbers(case):
    size, right = case["n"], case["c"]
    gain, loss = passk_advantages(size, right, case["k"], 1e-6)
    for found, expected in ((gain, case["adv_pos"]), (loss, case["adv_neg"])):
        if expected is not None:
            assert found == approx(expected, abs=PASSK["tolerance"])
    verdicts = [True] * right + [False] * (size - right)
    found = compare([-1.0] * size, "passk", right=verdicts, k=case["k"])
    assert found == [gain] * right + [loss] * (size - right)


def test_pass_at_k_goes_by_what_is_right_and_not_by_what_it_earned():
    right = [True, False, False, True]
    found = compare([0.0, 0.2, -1.0, 1.0], "passk", right=right, k=2)
    assert found == compare([1.0, -1.0, -1.0, 1.0], "passk", right=right, k=2)
    assert found[0] == found[3] > 0 > found[1] == found[2]
    unknown = compare([0.0, math.nan, 0.2, -1.0, 1.0], "passk", right=[True, *right], k=2)
    assert unknown[1] == 0.0
    with raises(ValueError, match="give `right`"):
        compare([1.0, -1.0], "passk")


@given(st.integers(2, 12), st.data())
def test_pass_at_1_is_grpo_with_the_population_deviation(size, data):
    right = data.draw(st.integers(0, size))
    rewards = [1.0] * right + [0.0] * (size - right)
    plain = compare(rewards, "grpo", ddof=0)
    verdicts = [True] * right + [False] * (size - right)
    assert compare(rewards, "passk", right=verdicts, k=1) == approx(plain, rel=1e-5)


@given(st.integers(1, 10), st.integers(1, 12), st.data())
def test_pass_at_k_advantages_cancel_and_reward_the_right(size, k, data):
    right = data.draw(st.integers(0, size))
    gain, loss = passk_advantages(size, right, k, 0.0)
    assert right * gain + (size - right) * loss == approx(0.0, abs=1e-9)
    assert gain >= 0 >= loss or gain == loss == 0


def test_only_the_best_attempt_is_credited_with_its_lead():
    case = PASSK["order_stat"]
    assert lead(case["reward"]) == approx(case["adv_center_only"])
    found = compare(case["reward"], "passk_lead")
    assert found == approx(case["adv_std"], abs=PASSK["tolerance"])
    assert compare([1.0, 1.0, 0.0], "passk_lead") == [0.0, 0.0, 0.0]


def test_a_baseline_and_whitening_over_tokens_meet_the_worked_numbers():
    inputs = PLUS["inputs"]
    lengths = [sum(row) for row in inputs["response_mask"]]
    found = compare(inputs["reward"], "reinforce_pp_baseline", inputs["group"], lengths)
    for advantage, mask, expected in zip(
        found, inputs["response_mask"], PLUS["expected"]["rpp_baseline_adv"], strict=True
    ):
        assert [advantage * kept for kept in mask] == approx(expected, abs=PLUS["tolerance"])
    assert compare(inputs["reward"], "rloo", inputs["group"]) == approx(
        PLUS["expected"]["rloo_adv"]
    )


@mark.parametrize("kind", BATCHED)
@mark.parametrize("ddof", [0, 1])
def test_whitened_advantages_have_mean_0_and_deviation_1_over_tokens(kind, ddof):
    rewards, groups, lengths = [1.0, 0.0, 1.0, -1.0], ["a", "a", "b", "b"], [3, 1, 4, 2]
    found = compare(rewards, kind, groups, lengths, ddof=ddof)
    tokens = [a for a, n in zip(found, lengths, strict=True) for _ in range(n)]
    freedom = len(tokens) - ddof
    assert sum(tokens) == approx(0.0, abs=1e-9)
    assert sum(a * a for a in tokens) / freedom == approx(1.0, rel=1e-6)


@mark.parametrize("kind", BATCHED)
def test_a_batch_in_which_all_is_equal_or_unknown_teaches_nothing(kind):
    assert compare([0.2, 0.2, 0.2], kind) == [0.0, 0.0, 0.0]
    assert compare([math.nan], kind) == [0.0]
    known = compare([1.0, 0.0], kind)
    assert compare([1.0, math.nan, 0.0], kind) == [known[0], 0.0, known[1]]


@mark.parametrize("value", [-1.4, 0.7, -0.8])
def test_what_is_at_the_mean_of_a_batch_is_whitened_to_nothing(value):
    assert whitened([value] * 7, [3, 2, 2, 1, 1, 4, 5]) == [0.0] * 7
    assert whitened([value, value - 1.0, value + 1.0], [3, 7, 7])[0] == 0.0
    alone = compare([value] * 7, "reinforce_pp_baseline", [*range(7)], singleton="raw")
    assert alone == [0.0] * 7


def test_plain_whitening_compares_with_the_whole_batch():
    found = compare([1.0, 1.0, 0.0, 0.0], "reinforce_pp", groups=["a", "a", "b", "b"])
    assert found == approx([math.sqrt(3) / 2, math.sqrt(3) / 2, *[-math.sqrt(3) / 2] * 2])


def test_rows_in_any_order_are_compared_with_those_of_their_own_group():
    rewards, groups = [0, 1, 0, 1, 0, 0, 0, 1], ["b", "a", "a", "b", "b", "a", "b", "a"]
    found = compare(rewards, "dr_grpo", groups=groups)
    assert found == [-0.25, 0.5, -0.5, 0.75, -0.25, -0.5, -0.25, 0.5]
    assert compare([1.0, 0.0], "dr_grpo", groups=["x", "y"]) == [0.0, 0.0]


@mark.parametrize(
    ("kind", "expected"), [("dr_grpo", [4 / 3, -2 / 3, -2 / 3, 0.0]), ("rloo", [2, -1, -1, 0])]
)
def test_a_row_that_is_not_known_moves_neither_mean_nor_spread(kind, expected):
    assert compare([2.0, 0.0, 0.0, math.nan], kind) == approx(expected)
    assert compare([2.0, math.nan, math.nan], kind) == [0.0, 0.0, 0.0]


def test_noise_of_floats_is_no_difference_and_a_lone_loser_is_one():
    assert compare([0.1 + 0.2, 0.3, 0.3, 0.3]) == [0.0] * 4
    assert compare([0.4] * 4) == [0.0] * 4
    assert compare([0.0, *[0.95] * 7], "dr_grpo") == approx([-0.83125, *[0.11875] * 7])
    assert varies([0.1, 0.7, 0.4, 0.4])


def test_two_draws_of_one_problem_are_two_groups():
    apart = compare([1.0, 0.0, 1.0, 1.0], groups=["1/p", "1/p", "2/p", "2/p"])
    together = compare([1.0, 0.0, 1.0, 1.0], groups=["p", "p", "p", "p"])
    assert apart[2:] == [0.0, 0.0]
    assert together[2] > 0.0


@given(st.sampled_from(CENTRED), REWARDS)
def test_advantages_cancel_within_a_group(kind, rewards):
    assert sum(compare(rewards, kind)) == approx(0.0, abs=1e-9)


@given(REWARDS, st.data())
def test_length_weighted_advantages_cancel_over_tokens(rewards, data):
    count = len(rewards)
    lengths = data.draw(st.lists(st.integers(1, 50), min_size=count, max_size=count))
    found = compare(rewards, "opo", lengths=lengths)
    assert sum(a * n for a, n in zip(found, lengths, strict=True)) == approx(0.0, abs=1e-9)


@given(st.sampled_from(get_args(AdvantageName)), REWARDS, st.data())
def test_permuting_attempts_permutes_their_advantages(kind, rewards, data):
    places = range(len(rewards))
    order = data.draw(st.permutations(places))
    groups = ["a" if place % 3 else "b" for place in places]
    lengths = [place + 1 for place in places]
    right = [place % 2 == 0 for place in places]
    found = compare(
        [rewards[place] for place in order],
        kind,
        groups=[groups[place] for place in order],
        lengths=[lengths[place] for place in order],
        right=[right[place] for place in order],
    )
    straight = compare(rewards, kind, groups=groups, lengths=lengths, right=right)
    assert found == approx([straight[place] for place in order], abs=1e-12)


@given(st.sampled_from((*KINDS, *BATCHED, "passk_lead")), REWARDS, st.floats(-5, 5))
def test_adding_a_constant_to_a_group_changes_nothing(kind, rewards, shift):
    moved = compare([reward + shift for reward in rewards], kind)
    assert moved == approx(compare(rewards, kind), abs=1e-9)


@given(st.sampled_from(("grpo", "batch_scaled")), REWARDS, st.floats(0.5, 50))
def test_scaling_rewards_changes_scaled_advantages_by_no_more_than_epsilon(kind, rewards, scale):
    assume(varies(rewards))
    scaled = compare([reward * scale for reward in rewards], kind)
    assert scaled == approx(compare(rewards, kind), rel=1e-4)


@given(st.sampled_from(("dr_grpo", "rloo", "opo")), REWARDS, st.floats(0.5, 50))
def test_scaling_rewards_scales_unscaled_advantages(kind, rewards, scale):
    scaled = compare([reward * scale for reward in rewards], kind)
    assert scaled == approx([scale * found for found in compare(rewards, kind)], abs=1e-9)


@given(REWARDS, REWARDS)
def test_groups_do_not_influence_each_other(first, second):
    groups = ["a"] * len(first) + ["b"] * len(second)
    assert compare(first + second, groups=groups) == compare(first) + compare(second)
