from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forethought.evaluation.estimators import majority_at
from forethought.tasks.answers import boxed_answer, canonical_answer, same_value

WORDS = st.text("ab\\1 $,", max_size=6)
BALANCED = st.recursive(
    WORDS, lambda inner: st.lists(inner, max_size=3).map(lambda parts: "{" + "".join(parts) + "}")
).filter(lambda text: not text.endswith("\\") and "\\{" not in text and "\\}" not in text)
NUMERIC_TEXT = st.text("0123456789.,/-+eE$%\\^{}° cirfa", max_size=12)
SMALL = st.integers(-9999, 9999)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{42}", "42"),
        (r"\boxed{1} and then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed { 7 }.", "7"),
        (r"\boxed{3} but \boxed{4", "3"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"{ \boxed{6} ", "6"),
        (r"} \boxed{8} }", "8"),
        (r"\boxed{}", ""),
        (r"\boxed 9", None),
        (r"boxed{9}", None),
        ("", None),
    ],
)
def test_the_answer_is_in_the_last_box_that_closes(text, answer):
    assert boxed_answer(text) == answer


@settings(deadline=None)
@given(BALANCED, WORDS, WORDS)
def test_a_box_gives_its_content_back_however_its_braces_nest(content, before, after):
    boxed = f"{before} \\boxed{{{content}}} {after}"
    assert boxed_answer(boxed) == content.strip()


def test_a_text_of_a_hundred_thousand_open_boxes_is_read_at_once():
    assert boxed_answer("\\boxed{" * 100_000 + "1}") == "1"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("023", "23"),
        ("27.0", "27"),
        ("2,125", "2125"),
        ("1,234,567.50", "1234567.5"),
        ("3/4", "0.75"),
        (r"\frac{3}{4}", "3/4"),
        (r"-\dfrac{6}{8}", "-.75"),
        ("1e3", "1000"),
        ("2.5E-2", "0.025"),
        ("+7", "7."),
        ("\u22125", "-5"),
        (r"336^\circ", "336"),
        (r"336^{\circ}", "336°"),
        ("$5", "5"),
        (r"\$5.00", "$5"),
        ("-$5", "-5"),
        ("$42$", "42"),
        (r"50\%", "50"),
        ("50%", r"50 \%"),
        ("0", "-0.0"),
        ("  so  much ", "so much"),
        ("2003-06-06", "2003-06-06"),
        ("1/0", "1/0"),
    ],
)
def test_answers_of_one_value_are_the_same(first, second):
    assert same_value(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("23", "24"),
        ("0.333", "1/3"),
        ("1,2", "12"),
        ("1,2345", "12345"),
        ("50%", "0.5"),
        ("$5", "5%"),
        (r"1\frac{1}{2}", "11/2"),
        ("2+3", "5"),
        ("3x", "3"),
        (r"2\pi", "2"),
        ("10_2", "10"),
        ("Mon", "mon"),
        ("1/0", "0"),
        ("", "0"),
        ("$", "0"),
        ("\u0663", "3"),
        ("1e999999999", "1e999999998"),
        ("9" * 5000, "8" * 5000),
    ],
)
def test_answers_of_different_values_are_not_the_same(first, second):
    assert not same_value(first, second)


@settings(deadline=None)
@given(NUMERIC_TEXT, NUMERIC_TEXT)
def test_sameness_does_not_depend_on_the_order(first, second):
    assert same_value(first, second) == same_value(second, first)


@settings(deadline=None)
@given(st.text(max_size=20))
def test_every_text_is_the_same_as_itself(text):
    assert same_value(text, text)


@settings(deadline=None)
@given(SMALL, st.integers(1, 99), SMALL, st.integers(1, 99))
def test_fractions_are_the_same_exactly_when_their_values_are(a, b, c, d):
    sign = "-" if a < 0 else ""
    equal = Fraction(a, b) == Fraction(c, d)
    assert same_value(f"{a}/{b}", f"{c}/{d}") == equal
    assert same_value(f"{sign}\\frac{{{abs(a)}}}{{{b}}}", f"{c}/{d}") == equal


@settings(deadline=None)
@given(st.integers(-(10**12), 10**12), st.integers(0, 3))
def test_a_whole_number_may_be_written_with_commas_zeros_and_a_point(number, zeros):
    grouped = f"{number:,}" + ("." + "0" * zeros if zeros else "")
    assert same_value(grouped, str(number))
    assert not same_value(grouped, str(number + 1))


def test_answers_are_votes_for_one_value_however_they_are_spelt():
    said = ["2125", "2125", "2,125", "2,125", "7", "7", "7", "8"]
    right = [same_value(answer, "2125") for answer in said]
    assert majority_at(8, [canonical_answer(answer) for answer in said], right) == 1.0


@pytest.mark.parametrize(
    ("answer", "canonical"),
    [
        ("02,125.0", "2125"),
        (r"-\dfrac{6}{8}", "-3/4"),
        ("-.75", "-3/4"),
        (r"336^\circ", "336°"),
        (r"50\%", "50%"),
        (r"-\$5.50", "-$11/2"),
        ("$42$", "42"),
        (" So   much ", "So much"),
    ],
)
def test_the_canonical_form_is_value_and_unit_or_squeezed_text(answer, canonical):
    assert canonical_answer(answer) == canonical


@settings(deadline=None)
@given(st.one_of(NUMERIC_TEXT, st.text(max_size=12)))
def test_a_canonical_form_is_the_same_answer_and_its_own_canonical_form(text):
    canonical = canonical_answer(text)
    assert same_value(canonical, text)
    assert canonical_answer(canonical) == canonical


@settings(deadline=None)
@given(SMALL, st.integers(1, 99), SMALL, st.integers(1, 99), st.sampled_from(("", "%", "°")))
def test_canonical_forms_are_equal_exactly_when_answers_of_one_unit_are_the_same(a, b, c, d, unit):
    one, other = f"{a}/{b}{unit}", f"{c}/{d}{unit}"
    assert (canonical_answer(one) == canonical_answer(other)) == same_value(one, other)
