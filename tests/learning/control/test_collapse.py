"""Signs of collapse: each alone, for as long as asked, and never from what was not measured."""

from math import nan

from hypothesis import given
from hypothesis import strategies as st
from pytest import mark

from forethought.learning.control.collapse import SIGNS, CollapseSettings, signs

HEALTHY = {
    "entropy": 1.0,
    "groups/informative": 0.6,
    "clip_high": 0.01,
    "tool/rate": 0.8,
    "unfinished": 0.05,
    "grad_norm": 1.0,
    "reward/outcome/share": 0.8,
    "reward/execution/share": 0.1,
    "reward/judge/share": 0.1,
}
SICK = {
    "entropy": [{"entropy": 0.09}, {"entropy": 0.04}],
    "groups": [{"groups/informative": 0.29}],
    "clip": [{"clip_high": 0.06}],
    "tool": [{"tool/rate": 0.039}],
    "length": [{"unfinished": 0.21}],
    "gradient": [{"grad_norm": 5.1}],
    "process": [{"reward/outcome/share": 0.4, "reward/judge/share": 0.45}],
}
CASES = [(name, change) for name, changes in SICK.items() for change in changes]


def seen(change, healthy=40, sick=20, **settings):
    history = [HEALTHY] * healthy + [HEALTHY | change] * sick
    return signs(history, CollapseSettings(**settings))


def test_every_sign_has_a_case():
    assert list(SICK) == list(SIGNS)


@mark.parametrize(("name", "change"), CASES)
def test_a_sign_that_lasts_is_told_and_no_other(name, change):
    assert seen(change) == (name,)


@mark.parametrize(("name", "change"), CASES)
def test_a_sign_that_does_not_last_is_not_told(name, change):
    assert seen(change, sick=19) == ()
    assert seen(change, sick=19, window=19) == (name,)


@mark.parametrize(("name", "change"), CASES)
def test_a_step_that_was_not_measured_is_no_sign(name, change):
    lost = [HEALTHY | dict.fromkeys(change, nan), {}]
    for missing in lost:
        history = [HEALTHY] * 40 + [HEALTHY | change] * 10 + [missing] + [HEALTHY | change] * 9
        assert signs(history, CollapseSettings()) == ()


@mark.parametrize(
    ("name", "limit", "change"),
    [
        ("entropy_share", 0.01, {"entropy": 0.09}),
        ("entropy_nats", 0.01, {"entropy": 0.04}),
        ("uninformative", 0.8, {"groups/informative": 0.29}),
        ("clipped", 0.07, {"clip_high": 0.06}),
        ("tool_share", 0.01, {"tool/rate": 0.039}),
        ("unfinished", 0.3, {"unfinished": 0.21}),
        ("gradient", 6.0, {"grad_norm": 5.1}),
        ("process", 0.7, {"reward/outcome/share": 0.4, "reward/judge/share": 0.45}),
    ],
)
def test_each_limit_decides_what_is_a_sign(name, limit, change):
    # Entropy has two limits: the other one is put out of reach.
    others = {"entropy_share": {"entropy_nats": 0.0}, "entropy_nats": {"entropy_share": 0.0}}
    given_too = others.get(name, {})
    assert seen(change, **given_too) != ()
    assert seen(change, **given_too, **{name: limit}) == ()


def test_a_policy_that_never_called_does_not_avoid_its_tool():
    history = [HEALTHY | {"tool/rate": 0.0}] * 40
    assert signs(history, CollapseSettings()) == ()


@given(st.integers(0, 60))
def test_a_healthy_run_shows_nothing_however_long(steps):
    assert signs([HEALTHY] * steps, CollapseSettings()) == ()
