"""Rows lie end to end, and what they begin with alike lies once where that pays."""

from itertools import chain, combinations, pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forethought.policy.local.packing import Alike, Stretch, pack
from forethought.policy.local.prefixes import alike

few = st.integers(0, 2)
rows_alike = st.lists(st.lists(few, min_size=1, max_size=12), min_size=1, max_size=10)
quick = settings(deadline=None, max_examples=150)


def read_by(packing):
    """For each place, the places that it may attend to."""
    seen = {place: set() for place in range(len(packing.ids_N))}
    for each in packing.stretches:
        for place in range(each.start, each.stop):
            seen[place] |= set(range(each.start, place + 1))
        for place in range(each.stop, each.reach):
            seen[place] |= set(range(each.start, each.stop))
    return seen


@quick
@given(rows_alike)
def test_every_token_of_every_row_has_a_place_with_its_id_and_position(rows):
    packing = pack(rows)
    for row, place_T in zip(rows, packing.place_BT.tolist(), strict=True):
        places = place_T[: len(row)]
        assert packing.ids_N[places].tolist() == row
        assert packing.positions_N[places].tolist() == list(range(len(row)))


@quick
@given(rows_alike)
def test_a_token_attends_to_those_of_its_row_up_to_itself_and_to_no_other(rows):
    packing = pack(rows)
    seen = read_by(packing)
    for row, places in zip(rows, packing.place_BT.tolist(), strict=True):
        for number, place in enumerate(places[: len(row)]):
            assert seen[place] == set(places[: number + 1])


@quick
@given(rows_alike)
def test_each_place_has_an_owner_that_has_it(rows):
    packing = pack(rows)
    owned = packing.place_BT.flatten()[packing.owner_N]
    assert torch.equal(owned, torch.arange(len(packing.ids_N)))


@quick
@given(rows_alike)
def test_tokens_are_counted_without_being_laid(rows):
    alike = Alike.sort(rows)
    assert alike.laid(0, len(rows)) == len(pack(rows).ids_N)
    assert len(pack(rows).ids_N) <= sum(map(len, rows))


def test_a_prompt_of_a_group_is_laid_once_and_so_is_what_all_groups_begin_with():
    first, second = [1] * 10 + [2] * 5, [1] * 10 + [3] * 5
    rows = [[*first, 4, 4], [*second, 4], [*first, 5], [*second, 6, 6]]
    packing = pack(rows)
    assert len(packing.ids_N) == 10 + 5 + 5 + 2 + 1 + 1 + 2
    assert packing.shared == [
        Stretch(start=0, stop=10, reach=26),
        Stretch(start=10, stop=15, reach=18),
        Stretch(start=18, stop=23, reach=26),
    ]


def test_a_short_beginning_of_long_rows_is_not_shared():
    rows = [[1, *[2] * 40], [1, *[3] * 40]]
    assert len(pack(rows).ids_N) == 82
    assert pack(rows).shared == []


def test_equal_rows_and_rows_that_others_begin_with_need_no_place_of_their_own():
    packing = pack([[1, 2, 3], [1, 2, 3], [1, 2]])
    assert packing.ids_N.tolist() == [1, 2, 3]
    assert packing.place_BT.tolist() == [[0, 1, 2], [0, 1, 2], [0, 1, 0]]


def test_nothing_can_be_laid():
    assert pack([]).stretches == pack([[]]).stretches == ()
    assert pack([]).place_BT.shape == (0, 0)


def test_rows_have_in_common_what_comes_before_their_first_difference():
    assert alike([1, 2, 3], [1, 2, 4]) == 2
    assert alike([1, 2], [1, 2, 4]) == 2
    assert alike([3], [4]) == alike([], [4]) == 0


def all_cuts(rows, tokens):
    """Every way to cut so many sorted rows into portions that fit, or hold one row alone."""
    count = len(rows.order)
    for inner in chain.from_iterable(combinations(range(1, count), n) for n in range(count)):
        cuts = [0, *inner, count]
        if all(b - a == 1 or rows.laid(a, b) <= tokens for a, b in pairwise(cuts)):
            yield cuts


def lost(rows, cuts):
    return sum(rows.alike[cut - 1] for cut in cuts[1:-1])


@quick
@given(st.lists(st.lists(few, min_size=1, max_size=12), min_size=1, max_size=7), st.integers(1, 40))
def test_portions_fit_and_no_others_lay_less_twice(rows, tokens):
    rows = Alike.sort(rows)
    cuts = rows.cuts(tokens)
    possible = [*all_cuts(rows, tokens)]
    assert cuts in possible
    assert lost(rows, cuts) == min(lost(rows, each) for each in possible)


def test_no_rows_are_cut_into_no_portions():
    assert Alike.sort([]).cuts(8) == [0]


def test_rows_that_begin_alike_are_not_parted_where_others_can_be():
    one, other = list(range(10)), list(range(50, 60))
    group = [[*one, 100], [*one, 101]]
    rows = Alike.sort([*group, [*other, 100], [*other, 101], [*other, 102]])
    assert rows.cuts(24) == [0, 2, 5]
    assert rows.laid(0, 4) <= 24  # cutting as late as may be would part the second
