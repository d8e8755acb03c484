"""Muon: torch's steps, whatever number type a device is fast in, and however matrices are dealt."""

import pytest
import torch

from forethought.learning.muon import Muon, fast_dtype, orthogonal, portions

COEFFICIENTS = (3.4445, -4.775, 2.0315)
SHAPES = [(8, 24), (24, 8), (8, 24), (8, 8)]


def matrices(seed=0):
    generator = torch.manual_seed(seed)
    return [torch.randn(*shape, generator=generator).requires_grad_() for shape in SHAPES]


def steps(kind, count, **settings):
    moved = matrices()
    optimizer = kind(moved, lr=0.1, weight_decay=0.2, **settings)
    for seed in range(1, count + 1):
        for each, gradient in zip(moved, matrices(seed), strict=True):
            each.grad = gradient.detach()
        optimizer.step()
    return moved, optimizer


def test_steps_are_those_of_torch():
    (mine, _), (theirs, _) = steps(Muon, 4), steps(torch.optim.Muon, 4)
    for one, other in zip(mine, theirs, strict=True):
        # torch rounds to bfloat16: 3 decimal digits of updates of up to 0.1 * sqrt(3) * 4.
        torch.testing.assert_close(one, other, atol=0.02, rtol=0)
        assert not torch.equal(one, matrices()[0][: len(one), : one.shape[1]])


def test_its_state_is_that_of_torch():
    (_, mine), (_, theirs) = steps(Muon, 3), steps(torch.optim.Muon, 3)
    torch.testing.assert_close(mine.state_dict(), theirs.state_dict())
    mine.load_state_dict(theirs.state_dict())


def test_the_iteration_is_a_polynomial_of_each_singular_value():
    (given,) = (each.detach().double()[None] for each in matrices()[:1])
    left, values, right = torch.linalg.svd(given[0], full_matrices=False)
    values = values / values.norm()
    a, b, c = COEFFICIENTS
    for _ in range(5):
        values = a * values + b * values**3 + c * values**5
    assert values.min() > 0.5
    found = orthogonal(given, COEFFICIENTS, 5, 1e-7)[0]
    torch.testing.assert_close(found, left @ values.diag() @ right)


def test_tall_matrices_are_those_that_are_wide_turned():
    wide = torch.randn(2, 6, 10, generator=torch.manual_seed(3))
    turned = orthogonal(wide.mT, COEFFICIENTS, 5, 1e-7)
    torch.testing.assert_close(turned, orthogonal(wide, COEFFICIENTS, 5, 1e-7).mT)


@pytest.mark.parametrize(
    ("together", "counts"), [(1, [1] * 4), (2 * 8 * 24, [1, 2, 1]), (2 * 8 * 24 - 1, [1] * 4)]
)
def test_matrices_of_one_shape_are_taken_together(together, counts):
    given = matrices()
    found = list(portions(given, together))
    assert [len(each) for each in found] == counts
    assert all(len({each.shape for each in portion}) == 1 for portion in found)
    assert sorted(id(each) for portion in found for each in portion) == sorted(map(id, given))


def test_beside_others_a_matrix_moves_as_it_does_alone():
    together, _ = steps(Muon, 2)
    for place, moved in enumerate(together):
        alone = matrices()[place]
        optimizer = Muon([alone], lr=0.1, weight_decay=0.2)
        for seed in (1, 2):
            alone.grad = matrices(seed)[place].detach()
            optimizer.step()
        torch.testing.assert_close(moved, alone)


def test_matrices_without_a_gradient_stay():
    moved = matrices()
    optimizer = Muon(moved, lr=0.1)
    moved[0].grad = torch.ones_like(moved[0])
    optimizer.step()
    assert not torch.equal(moved[0], matrices()[0])
    assert all(map(torch.equal, moved[1:], matrices()[1:]))


def test_a_device_multiplies_what_it_has_instructions_for():
    native = any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16"))
    assert fast_dtype(torch.device("cpu")) is (torch.bfloat16 if native else torch.float32)
