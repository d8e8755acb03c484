"""Rows side by side: what each has read stays what it was, whoever joins, leaves or shares."""

import random

import pytest
import torch

from forethought.policy.local.prefixes import Prefix
from forethought.policy.local.slots import Slots, arranged

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
    slots.reserve(len(slots), slots.longest + 1)
    rows = torch.arange(len(slots))
    for layer, new in zip(slots.layers, states_Y2BKD, strict=True):
        layer[:, rows, :, slots.lengths] = new.transpose(0, 1)
    slots.lengthen()


def joined(slots, each, root=None):
    slots.reserve(len(slots) + 1, each.after(root) + 1)
    slots.join(each, root)


def test_what_a_row_has_read_outlives_every_change_around_it():
    rng, slots = random.Random(1), Slots(EMPTY)
    roots = [prefix(5, seed=70), prefix(9, seed=71)]
    expected = []
    for step in range(120):
        if rng.random() < 0.5 or not len(slots):
            root = rng.choice([None, *roots])
            each = prefix(rng.randrange(6), seed=step, root=root)
            joined(slots, each, root)
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
            prefixes, staying = slots.leave(read)
            for slot, found in zip(leaving, prefixes, strict=True):
                assert torch.equal(whole(found), expected[slot])
            assert sorted([*staying, *leaving]) == list(range(len(expected)))
            expected = [expected[old] for old in staying]
    assert len(slots) == len(expected)
    assert slots.reach == max(held.shape[3] for held in expected)


def test_rows_of_a_root_hold_what_comes_after_it():
    slots, root = Slots(EMPTY), prefix(300)
    for _ in range(4):
        joined(slots, root, root)
    joined(slots, prefix(3, seed=1, root=root), root)
    assert slots.lengths.tolist() == [0, 0, 0, 0, 3]
    assert slots.starts.tolist() == [300] * 5
    assert slots.layers[0].shape[3] < 300
    assert slots.sharing.roots == ((root, 5),)


def test_sharing_names_rows_by_their_roots():
    slots, first, second = Slots(EMPTY), prefix(3), prefix(4)
    for root in (first, None, second, first):
        joined(slots, prefix(1, root=root), root)
    assert slots.sharing.rows_R.tolist() == [0, 3, 2]
    assert slots.sharing.roots == ((first, 2), (second, 1))
    slots.leave({0: range(4), 2: range(5), 3: range(4)})
    assert slots.sharing is None


def test_room_is_given_back_when_most_rows_have_left():
    slots = Slots(EMPTY)
    for seed in range(40):
        joined(slots, prefix(30, seed=seed))
    full = sum(each.nbytes for each in slots.layers)
    slots.leave({slot: range(30) for slot in range(38)})
    assert sum(each.nbytes for each in slots.layers) < full / 4
    slots.leave({slot: range(30) for slot in range(2)})
    assert len(slots) == 0


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
