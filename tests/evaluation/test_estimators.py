import gzip
import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.evaluation.estimators import average, cover, majority_at, pass_at

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "14_passk_majk_stats.json").read_text())
TOLERANCE = GOLDEN["tolerance"]
REAL = Path(__file__).parents[2] / "../shared/data/multisample_math/math_cot_100x8.jsonl.gz"

ANSWERS = st.sampled_from(["4", "5", "6", None])


def majority_by_counting(k, answers, right):
    """maj@k from its definition: every draw of k, every winner of it."""
    return fmean(
        _share_of_winners([(answers[i], right[i]) for i in draw], answers, right)
        for draw in combinations(range(len(answers)), k)
    )


def _share_of_winners(draw, answers, right):
    votes = Counter(answer for answer, _ in draw if answer is not None)
    winners = [answer for answer, count in votes.items() if count == max(votes.values())]
    if not winners:
        return 0.0
    grade = dict(zip(answers, right, strict=True))
    return fmean(grade[winner] for winner in winners)


@pytest.mark.parametrize("row", GOLDEN["passk_table"], ids=str)
def test_pass_at_k_is_the_golden_value(row):
    assert pass_at(row["k"], row["n"], row["c"]) == pytest.approx(row["pass_at_k"], abs=TOLERANCE)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_equals_counting_every_draw(right, data):
    k = data.draw(st.integers(1, len(right)))
    counted = fmean(map(any, combinations(right, k)))
    assert pass_at(k, len(right), sum(right)) == pytest.approx(counted, abs=TOLERANCE)


def test_pass_at_k_is_unbiased():
    given_ = GOLDEN["unbiasedness"]
    n, p = given_["n"], given_["p"]
    weights = [
        len(list(combinations(range(n), c))) * p**c * (1 - p) ** (n - c) for c in range(n + 1)
    ]
    expected = sum(w * pass_at(given_["k"], n, c) for c, w in enumerate(weights))
    assert expected == pytest.approx(given_["true"], abs=TOLERANCE)


@given(st.integers(1, 40), st.data())
def test_pass_at_k_never_falls_as_k_grows(n, data):
    c = data.draw(st.integers(0, n))
    curve = [pass_at(k, n, c) for k in range(1, n + 1)]
    assert curve == sorted(curve)
    assert curve[0] == average(n, c)


@pytest.mark.parametrize(("k", "n", "c"), [(8, 3, 0), (0, 3, 1), (1, 0, 0), (1, 3, 4), (1, 3, -1)])
def test_pass_at_k_refuses_what_its_attempts_cannot_say(k, n, c):
    with pytest.raises(ValueError, match="pass@k needs"):
        pass_at(k, n, c)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("rule", ["fraction", "first"])
def test_majority_is_the_golden_value_of_rules_that_agree_in_expectation(k, rule):
    answers = GOLDEN["maj"]["answers"]
    right = [answer == GOLDEN["maj"]["correct"] for answer in answers]
    expected = GOLDEN["maj"]["expected"][f"without_replacement_k{k}"][rule]
    assert majority_at(k, answers, right) == pytest.approx(expected, abs=TOLERANCE)


@given(st.lists(ANSWERS, min_size=1, max_size=8), st.sets(st.sampled_from("456")), st.data())
def test_majority_equals_counting_every_draw(answers, right_answers, data):
    k = data.draw(st.integers(1, len(answers)))
    right = [answer in right_answers for answer in answers]
    counted = majority_by_counting(k, answers, right)
    assert majority_at(k, answers, right) == pytest.approx(counted, abs=TOLERANCE)


@given(st.lists(ANSWERS, min_size=1, max_size=8), st.randoms())
def test_majority_does_not_depend_on_the_order_of_attempts(answers, random):
    shuffled = random.sample(answers, len(answers))
    k = (len(answers) + 1) // 2
    one, other = (majority_at(k, a, [x == "4" for x in a]) for a in (answers, shuffled))
    assert one == other


def test_tied_answers_share_the_credit():
    assert majority_at(2, ["4", "5"], [True, False]) == 0.5


def test_attempts_without_an_answer_never_win():
    assert majority_at(4, ["4", None, None, None], [True, False, False, False]) == 1.0
    assert majority_at(2, [None, None], [False, False]) == 0.0


def test_an_answer_graded_both_ways_earns_the_share_graded_right():
    assert majority_at(3, ["4", "4", "4"], [True, True, False]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("k", [0, 3])
def test_majority_refuses_a_k_outside_its_attempts(k):
    with pytest.raises(ValueError, match="maj@k needs"):
        majority_at(k, ["4", "5"], [True, False])


def test_majority_stays_exact_for_many_attempts():
    answers = [str(n % 40) for n in range(128)]
    right = [answer == "0" for answer in answers]
    rotated = [str((n + 1) % 40) for n in range(128)]
    # Answers 0 to 7 have four votes each, so by symmetry 1 must fare exactly as 0 does.
    assert majority_at(64, answers, right) == majority_at(64, rotated, [a == "1" for a in rotated])


@pytest.mark.parametrize("row", GOLDEN["cover_at_tau"]["cover"], ids=str)
def test_cover_is_the_golden_value(row):
    rates = GOLDEN["cover_at_tau"]["pass_rate"]
    assert cover(rates, row["tau"]) == pytest.approx(row["cover"], abs=TOLERANCE)


def test_cover_weighted_over_thresholds_gives_the_chance_of_a_right_one_in_k():
    rates, identity = GOLDEN["cover_at_tau"]["pass_rate"], GOLDEN["cover_at_tau"]["identity"]
    k, steps = identity["k"], 2000
    middles = [(step + 0.5) / steps for step in range(steps)]
    integral = fmean(k * (1 - t) ** (k - 1) * cover(rates, t) for t in middles)
    assert integral == pytest.approx(identity["mean_1_minus_1mp_pow_k"], abs=1e-6)


def test_real_graded_samples_give_ordered_figures():
    if not REAL.exists():
        pytest.skip("the real graded samples are not here")
    for line in gzip.decompress(REAL.read_bytes()).splitlines():
        row = json.loads(line)
        right, answers = row["score"], [pred or None for pred in row["pred"]]
        n, c = len(right), sum(right)
        assert pass_at(3, n, c) == pytest.approx(fmean(map(any, combinations(right, 3))))
        assert average(n, c) <= pass_at(8, n, c)
        assert (majority_at(8, answers, right) > 0) <= (c > 0)
        assert majority_at(3, answers, right) == pytest.approx(
            majority_by_share(3, answers, right), abs=TOLERANCE
        )


def majority_by_share(k, answers, right):
    """As counting every draw, where one answer may have been graded both ways."""
    share = {a: fmean(r for b, r in zip(answers, right, strict=True) if a == b) for a in answers}
    return majority_by_counting(k, answers, [share[a] for a in answers])
