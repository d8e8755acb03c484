from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.curation.pool import Pool
from scripted import graded


def problems(count):
    return tuple(Problem(id=f"p{n}", prompt="?", answer="42") for n in range(count))


def pool(count, batch, seed=0):
    return Pool(problems=problems(count), batch=batch, seed=seed)


def drawn(one, steps):
    return [problem.id for step in range(steps) for problem in one.draw(step)]


@given(st.integers(1, 12), st.data())
def test_every_problem_comes_once_an_epoch_and_no_end_is_dropped(count, data):
    batch = data.draw(st.integers(1, count))
    names = drawn(pool(count, batch), 3 * count)
    epochs = [names[start : start + count] for start in range(0, len(names), count)]
    assert all(Counter(epoch) == Counter(epochs[0]) for epoch in epochs)
    assert len(names) == 3 * count * batch


def test_every_batch_is_full():
    one = pool(9, 4)
    assert [len(one.draw(step)) for step in range(20)] == [4] * 20


def test_a_draw_depends_on_the_seed_and_the_step_alone():
    one, again = pool(9, 4), pool(9, 4)
    again.draw(7)
    again.learn([graded("p0", "++")])
    assert one.draw(3) == again.draw(3)
    assert drawn(one, 3) != drawn(pool(9, 4, seed=1), 3)


def test_a_draw_does_not_depend_on_the_order_of_the_problems():
    shuffled = list(problems(9))
    Random(0).shuffle(shuffled)
    assert pool(9, 4).draw(5) == Pool(problems=tuple(shuffled), batch=4, seed=0).draw(5)


def test_every_epoch_has_an_order_of_its_own():
    one = pool(20, 20)
    assert one.draw(0) != one.draw(1)


def test_the_first_place_goes_to_every_problem_about_equally_often():
    first = Counter(pool(4, 4, seed=seed).draw(0)[0].id for seed in range(2000))
    assert all(400 < times < 600 for times in first.values())
    assert len(first) == 4


def test_a_batch_larger_than_the_pool_is_refused_with_both_sizes():
    with pytest.raises(RecipeError, match="a batch of 8 problems cannot be drawn from 5"):
        pool(5, 8)


@pytest.mark.parametrize(("count", "batch"), [(5, 0), (0, 1)])
def test_an_empty_batch_or_pool_is_refused(count, batch):
    with pytest.raises(RecipeError, match="cannot be drawn"):
        pool(count, batch)


def test_a_problem_that_is_there_twice_is_refused():
    with pytest.raises(RecipeError, match="holds problem p0 twice"):
        Pool(problems=problems(2) + problems(1), batch=1, seed=0)


def test_a_checkpoint_needs_nothing_and_another_curriculums_state_is_refused():
    one = pool(5, 2)
    one.restore(one.state)
    with pytest.raises(RecipeError, match="priorities"):
        one.restore({"priorities": [1.0]})
