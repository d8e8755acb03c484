"""Rows side by side: what each has read stays what it was, whoever joins, leaves or shares."""

import random

import pytest
import torch

from forethought.policy.local.prefixes import Prefix
from forethought.policy.local.shelves import arranged
from forethought.policy.local.slots import SMALLEST, Slots

LAYERS, HEADS, SIZE = 3, 2, 4
EMPTY = torch.zeros(LAYERS, 2, HEADS, 0, SIZE)


def states(length, seed):
    return torch.randn(LAYERS, 2, HEADS, length, SIZE, generator=torch.manual_seed(seed))


def prefix(length, seed=0, root=None):
    before = [] if root is None else root.ids
    return Prefix(ids=[*before, *range(length)], states_Y2KLD=states(length, seed), root=root)


def whole(found):
    """All states of a prefix, its root's included."""
    return found.own if found.root is None else torch.cat((found.root.own, found.own), 3)


def write(slots, states_Y2BKD):
    """One more place for every row, as speaking writes it."""
    slots.make_room()
    for layer, new in enumerate(states_Y2BKD[:, :, slots.order.from_B]):
        for window in slots.windows():
            window.write(layer, new.transpose(0, 1))
    slots.lengthen()


@pytest.mark.parametrize("fewest", [1, 2, 4])
def test_what_a_row_has_read_outlives_every_change_around_it(fewest):
    rng = random.Random(1)
    slots = Slots(EMPTY, pays_to_share=lambda held: all(rows >= fewest for _, rows in held))
    roots = [prefix(5, seed=70), prefix(9, seed=71)]
    expected = []
    for step in range(120):
        if rng.random() < 0.5 or not len(slots):
            root = rng.choice([None, *roots])
            length = rng.choice([rng.randrange(6), rng.randrange(SMALLEST - 6, 3 * SMALLEST)])
            each = prefix(length, seed=step, root=root)
            slots.join([(each, root)])
            expected.append(whole(each))
        for _ in range(rng.randrange(3)):
            new = torch.randn(LAYERS, 2, len(slots), HEADS, SIZE)
            write(slots, new)
            expected = [
                torch.cat((held, new[:, :, row, :, None]), 3) for row, held in enumerate(expected)
            ]
        if rng.random() < 0.4:
            leaving = rng.sample(range(len(slots)), rng.randrange(len(slots) + 1))
            read = {slot: range(expected[slot].shape[3]) for slot in leaving}
            prefixes = slots.leave(read)
            for slot, found in zip(leaving, prefixes, strict=True):
                assert torch.equal(whole(found), expected[slot])
            expected = [each for row, each in enumerate(expected) if row not in leaving]
    assert len(slots) == len(expected)
    assert slots.reach == max(held.shape[3] for held in expected)


def test_rows_of_a_root_hold_what_comes_after_it():
    slots, root = Slots(EMPTY), prefix(3 * SMALLEST)
    slots.join([(root, root)] * 4)
    slots.join([(prefix(3, seed=1, root=root), root)])
    assert slots.windows()[0].lengths_R.tolist() == [0, 0, 0, 0, 3]
    assert slots.order.starts_B.tolist() == [3 * SMALLEST] * 5
    assert [window.shelf.places for window in slots.windows()] == [SMALLEST]
    assert slots.order.sharing.roots == ((root, 5),)


def test_sharing_names_rows_by_their_roots():
    slots, first, second = Slots(EMPTY), prefix(3), prefix(4)
    slots.join((prefix(1, root=root), root) for root in (first, None, second, first))
    assert slots.order.sharing.rows_R.tolist() == [0, 3, 2]
    assert slots.order.sharing.roots == ((first, 2), (second, 1))
    slots.leave({0: range(4), 2: range(5), 3: range(4)})
    assert slots.order.sharing is None


LONG = [SMALLEST, 5, 3 * SMALLEST, SMALLEST - 1]


def test_rows_lie_on_shelves_by_their_length():
    slots = Slots(EMPTY)
    slots.join((prefix(length, seed=length), None) for length in LONG)
    assert [len(window.shelf.rows) for window in slots.windows()] == [2, 1, 1]
    assert [window.seen(0).shape[3] for window in slots.windows()] == [
        SMALLEST,
        SMALLEST + 1,
        3 * SMALLEST + 1,
    ]
    assert slots.order.from_B.tolist() == [1, 3, 0, 2]
    assert slots.order.from_B[slots.order.back_B].tolist() == [0, 1, 2, 3]
    slots.lengthen()
    slots.make_room()
    assert [len(window.shelf.rows) for window in slots.windows()] == [1, 2, 1]


def test_rows_that_are_not_to_lie_apart_lie_on_the_shelf_of_the_longest():
    slots = Slots(EMPTY, apart=False)
    slots.join((prefix(length, seed=length), None) for length in (5, 6))
    assert [window.shelf.places for window in slots.windows()] == [SMALLEST]
    slots.join([(prefix(SMALLEST, seed=1), None)])
    assert [window.shelf.places for window in slots.windows()] == [2 * SMALLEST]
    assert torch.equal(slots.leave({1: range(6)})[0].own, prefix(6, seed=6).own)
    slots.leave({1: range(SMALLEST)})
    slots.join([(prefix(7, seed=7), None)])
    assert [window.shelf.places for window in slots.windows()] == [2 * SMALLEST]


def room(slots):
    return sum(layer.nbytes for each in slots.windows() for layer in each.shelf.layers)


def test_room_is_given_back_when_most_rows_have_left():
    slots = Slots(EMPTY)
    slots.join((prefix(30, seed=seed), None) for seed in range(40))
    full = room(slots)
    slots.leave({slot: range(30) for slot in range(38)})
    assert room(slots) < full / 4
    slots.leave({slot: range(30) for slot in range(2)})
    assert len(slots) == len(slots.windows()) == 0


@pytest.mark.parametrize("length", [0, 3, 5, 7])
def test_a_prefix_may_be_cut_anywhere(length):
    root = prefix(5, seed=1)
    held = Prefix(ids=[0, 1, 2, 3, 4, 0, 1, 2], states_Y2KLD=states(3, 2), root=root)
    expected = whole(held)[:, :, :, :length]
    assert torch.equal(held.first(length).own, expected)
    held.keep_common([*held.ids[:length], -1])
    assert torch.equal(whole(held), expected)
    held.reserve(30)
    assert torch.equal(whole(held), expected)
    held.settle()
    assert held.root is None
    assert torch.equal(held.own, expected)


def test_slots_that_are_free_are_filled_by_the_last():
    assert arranged(6, {0, 5}) == [4, 1, 2, 3]
    assert arranged(3, set()) == [0, 1, 2]
    assert arranged(3, {0, 1, 2}) == []


def test_where_too_few_rows_share_all_hold_all_themselves():
    root = prefix(5)
    slots = Slots(EMPTY, pays_to_share=lambda held: held[0][0] * held[0][1] >= 15)
    given = [prefix(number, seed=number, root=root) for number in range(4)]
    for each in given:  # few, until all have come
        slots.join([(each, root)])
    slots.make_room()
    assert slots.order.sharing.roots == ((root, 4),)
    slots.leave({0: range(5)})
    slots.make_room()
    assert slots.order.sharing.roots == ((root, 3),)
    slots.leave({1: range(7)})
    slots.make_room()
    assert slots.order.sharing is None
    assert slots.order.starts_B.tolist() == [0, 0]
    assert slots.windows()[0].lengths_R.tolist() == [6, 8]
    left = slots.leave({0: range(6), 1: range(8)})
    assert [each.root for each in left] == [root, root]
    for number, each in zip((1, 3), left, strict=True):
        assert torch.equal(whole(each), whole(given[number]))
