"""Rows become padded tensors in which only the policy's own tokens carry anything."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forethought.core.errors import RecipeError
from forethought.core.trajectory import Tokens
from forethought.learning.batch import pad, turn_numbers
from forethought.policy.local.packing import pack
from learning.rows import random_rows, row

lengths = st.lists(st.integers(2, 40), min_size=1, max_size=12)
quick = settings(deadline=None, max_examples=60)


def sized(lengths):
    return pad([row("." + "s" * (length - 1)) for length in lengths], [0.0] * len(lengths))


def apart(lengths):
    """Rows of which no two begin alike."""
    rows = [
        Tokens(ids=(number,) * length, sampled=(True,) * length, logprobs=(0.0,) * length)
        for number, length in enumerate(lengths)
    ]
    return pad(rows, [0.0] * len(lengths))


def test_a_batch_of_two_rows_by_hand():
    batch = pad([row(".ss", first=5), row("..s.s", first=1)], [2.0, -3.0])
    assert batch.ids_BT.tolist() == [[5, 6, 7, 0, 0], [1, 2, 3, 4, 5]]
    assert batch.mask_BT.int().tolist() == [[0, 1, 1, 0, 0], [0, 0, 1, 0, 1]]
    assert batch.advantages_BT.tolist() == [[0, 2, 2, 0, 0], [0, 0, -3, 0, -3]]
    assert batch.sampled_logprobs_BT.tolist() == [[0, -1, -1, 0, 0], [0, 0, -1, 0, -1]]
    assert batch.lengths_B.tolist() == [3, 5]


def test_each_sampled_token_may_have_an_advantage_and_a_turn_of_its_own():
    rows = [row(".ss.s"), row("..s")]
    batch = pad(rows, [[9.0, 0.5, 0.5, 9.0, -1.0], 2.0], [[-1, 3, 3, -1, 4], [-1, -1, 5]])
    assert batch.advantages_BT.tolist() == [[0, 0.5, 0.5, 0, -1], [0, 0, 2, 0, 0]]
    assert batch.turns_BT.tolist() == [[-1, 3, 3, -1, 4], [-1, -1, 5, -1, -1]]
    assert batch.take((1,)).turns_BT.tolist() == [[-1, -1, 5]]


def test_a_turn_is_a_run_of_sampled_tokens_and_nothing_else_has_one():
    assert pad([row("sss.s"), row("...s")], [1.0, 1.0]).turns_BT.tolist() == [
        [-1, 0, 0, -1, 1],
        [-1, -1, -1, 0, -1],
    ]
    segments = [row(".ss.s"), row("..."), row(".s")]
    assert turn_numbers(segments) == [[-1, 0, 0, -1, 1], [-1, -1, -1], [-1, 2]]
    assert turn_numbers([]) == []


@quick
@given(st.lists(st.text("s.", min_size=2, max_size=12), min_size=1, max_size=5))
def test_one_advantage_a_row_is_the_same_advantage_at_each_of_its_tokens(marks):
    rows = [row("." + each + "s") for each in marks]
    shared = [0.1 * number - 0.2 for number in range(len(rows))]
    spread = [[each] * len(tokens) for each, tokens in zip(shared, rows, strict=True)]
    assert torch.equal(pad(rows, shared).advantages_BT, pad(rows, spread).advantages_BT)


def test_the_whole_batch_divides_by_its_trained_tokens_and_its_rows_that_have_any():
    found = pad([row(".ss"), row("..."), row("...s")], [1.0] * 3).denominators(budget=7.0)
    assert (found.tokens, found.sequences, found.budget) == (3.0, 2.0, 7.0)


def test_a_first_token_is_never_trained_because_nothing_precedes_it():
    batch = pad([row("sss")], [1.0])
    assert batch.mask_BT.tolist() == [[False, True, True]]
    assert batch.sampled_logprobs_BT[0, 0] == batch.advantages_BT[0, 0] == 0


@pytest.mark.parametrize("rows", [[], ["..."], ["...", "."], ["s"], ["s.."]])
def test_a_batch_with_nothing_to_train_is_refused(rows):
    with pytest.raises(RecipeError, match=rf"none of its {len(rows)} rows.*nothing to train"):
        pad([row(marks) for marks in rows], [0.0] * len(rows))


def test_rows_that_are_taken_are_cut_to_the_longest_of_them():
    whole = pad([row(".ss", first=3), row("." + "s" * 9), row(".s", first=8)], [1.0, 2.0, 3.0])
    part = whole.take((2, 0))
    again = pad([row(".s", first=8), row(".ss", first=3)], [3.0, 1.0])
    streams = ("mask_BT", "sampled_logprobs_BT", "advantages_BT", "turns_BT")
    for name in ("ids_BT", *streams, "lengths_B"):
        assert torch.equal(getattr(part, name), getattr(again, name))


def test_no_rows_may_be_taken():
    assert sized([3, 4]).take(()).ids_BT.shape == (0, 0)


def test_what_has_to_be_read_ends_before_the_last_trained_token():
    batch = pad([row(".ss", first=5), row("..s..", first=1), row("...")], [1.0] * 3)
    assert batch.needed() == [[5, 6], [1, 2], []]


@quick
@given(lengths, st.integers(1, 200))
def test_portions_hold_every_row_once_and_fit_or_are_alone(lengths, tokens):
    batch = sized(lengths)
    portions = batch.portions(tokens)
    assert sorted(place for portion in portions for place in portion) == list(range(len(lengths)))
    for portion in portions:
        read = len(pack(batch.take(portion).needed()).ids_N)
        assert read <= tokens or len(portion) == 1


def test_portions_gather_rows_that_begin_alike():
    ids = [(1, 1, 1, 2), (5, 5, 5, 5), (1, 1, 1, 3), (5, 5, 5, 6), (1, 1, 1, 4)]
    rows = [Tokens(ids=each, sampled=(True,) * 4, logprobs=(0.0,) * 4) for each in ids]
    assert pad(rows, [0.0] * 5).portions(3) == [[0, 2, 4], [1, 3]]


@quick
@given(lengths, st.integers(1, 5))
def test_hands_hold_every_row_once_and_about_the_same_work(lengths, hands):
    batch = apart(lengths)
    dealt = batch.deal(hands)
    assert sorted(place for hand in dealt for place in hand) == list(range(len(lengths)))
    work = [sum(lengths[place] - 1 for place in hand) for hand in dealt]
    assert max(work) - min(work) <= 2 * max(lengths)


def test_a_group_is_dealt_to_one_hand_where_that_is_fair():
    ids = [(1, 1, 1, 1, 2), (5, 5, 5, 5, 5), (1, 1, 1, 1, 3), (5, 5, 5, 5, 6)]
    rows = [Tokens(ids=each, sampled=(True,) * 5, logprobs=(0.0,) * 5) for each in ids]
    assert pad(rows, [0.0] * 4).deal(2) == [[0, 2], [1, 3]]


def test_a_row_keeps_its_own_numbers_whatever_it_is_padded_with():
    rows = random_rows(5)
    batch = pad(rows, [1.0] * 5)
    for place, each in enumerate(rows):
        assert isinstance(each, Tokens)
        assert batch.ids_BT[place, : len(each)].tolist() == list(each.ids)
        assert not batch.mask_BT[place, len(each) :].any()
        torch.testing.assert_close(
            batch.sampled_logprobs_BT[place, : len(each)], torch.tensor(each.logprobs)
        )
