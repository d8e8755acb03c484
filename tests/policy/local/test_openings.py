"""Who lends what: whoever of those that have been read begins most alike."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forethought.policy.local.openings import BORROWED_FROM, Openings
from forethought.policy.local.prefixes import alike

NOTHING = torch.zeros(1, 2, 1, 0, 4)
ids = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple)


def openings(kept=1000, *, shared=True):
    return Openings(NOTHING, lambda beginnings: shared, kept)


def read(all_of_them, context, length=None):
    """Open and begin to read: so many tokens of it (None: all)."""
    reading = all_of_them.open(context if isinstance(context, tuple) else tuple(context))
    if not reading.prefix.length:
        all_of_them.begin(reading, None, 0)
    reading.prefix.reserve(len(context))
    reading.prefix.ids[:] = context[:length]
    return reading


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(ids, st.integers(1, 8)), max_size=8), ids)
def test_the_lender_is_whoever_has_read_most_of_what_is_asked(held, asked):
    found = openings()
    readings = [read(found, context, length) for context, length in held]
    prefix, length = found.lender(asked)
    assert length == max((alike(each.prefix.ids, asked) for each in readings), default=0)
    assert length == (0 if prefix is None else alike(prefix.ids, asked))


def test_to_find_a_lender_few_openings_are_looked_at():
    looked = set()

    class Watched(tuple):
        def __getitem__(self, place):
            looked.add(self)
            return super().__getitem__(place)

    found = openings(kept=10**6)
    announced = tuple(range(100, 160))
    for number in range(500):
        read(found, Watched((*announced, number, 1, 2)))
    looked.clear()
    _, length = found.lender((*announced, 250, 1, 3))
    assert length == len(announced) + 2
    assert 0 < len(looked) < 10


def test_what_nobody_waits_for_is_forgotten_the_oldest_first():
    found = openings(kept=6)
    for context in ((1, 2, 3), (4, 5, 6), (7, 8, 9)):
        read(found, context)
    found.forget_old()
    assert [found.lender(each)[1] for each in ((1, 2, 3), (4, 5, 6), (7, 8, 9))] == [0, 3, 3]
    assert found.open((1, 2, 3)).missing == 3


def test_one_that_is_forgotten_before_it_was_begun_leaves_the_others():
    found = openings(kept=3)
    found.open((1, 2, 2))
    read(found, (1, 2, 3))
    found.forget_old()
    assert found.lender((1, 2, 2))[1] == 2
    assert found.open((1, 2, 3)).missing == 0


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_lent_is_stood_on_where_that_pays_and_copied_elsewhere(shared):
    found = openings(shared=shared)
    lender = read(found, range(60)).prefix
    borrower = found.open((*range(50), 99, 98))
    found.begin(borrower, *found.lender(borrower.ids))
    assert borrower.prefix.ids == lender.ids[:50]
    assert (borrower.prefix.root is None) is not shared
    assert borrower.missing == 2


def test_a_few_tokens_are_not_worth_borrowing():
    found = openings()
    read(found, range(60))
    borrower = found.open((*range(BORROWED_FROM - 1), 99, 98))
    found.begin(borrower, *found.lender(borrower.ids))
    assert borrower.prefix.length == 0
