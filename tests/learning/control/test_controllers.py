"""What steers a setting: published traces, bounds, and states that go through JSON."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx, mark, raises

from forethought.core.errors import RecipeError
from forethought.learning.control.clip import cosine, entropy_kl, linear_floor
from forethought.learning.control.controllers import build_controllers
from forethought.learning.control.entropy import Band, EntropyTarget
from forethought.learning.control.kl import adapted
from forethought.learning.control.protocol import held
from forethought.learning.control.settings import BandSettings, ControlSettings

GOLDEN = Path(__file__).parents[2] / "golden"
ENTROPY = json.loads((GOLDEN / "13_entropy_control.json").read_text())
KL = json.loads((GOLDEN / "12_kl_estimators.json").read_text())

FEEDBACK = {"schedule": "entropy-feedback", "start": 0.28, "floor": 0.25, "ceiling": 0.3}
ALL = {
    "clip": FEEDBACK,
    "entropy": {"target": 0.5, "delta": 0.01, "most": 0.025},
    "kl": {"start": 0.2, "most": 0.5, "target": 6.0},
}


def controllers(steps=10, samples=256, **sections):
    return build_controllers(ControlSettings.model_validate(sections), steps=steps, samples=samples)


def clip_by_entropy(*entropies, **section):
    """The upper clip after each step."""
    steered = controllers(clip=FEEDBACK | section)
    return [steered.observe({"entropy": entropy})["clip_high"] for entropy in entropies]


def test_the_entropy_coefficient_meets_the_worked_trace():
    steered = held(EntropyTarget(target=0.2, delta=1e-4, most=5e-3))
    for row in ENTROPY["skywork_controller"]:
        settings = steered.observe({"entropy": row["entropy"]})
        assert steered.now.held == approx(row["coef"], abs=ENTROPY["tolerance"], rel=0)
        applied = approx(row["applied"], abs=ENTROPY["tolerance"], rel=0)
        assert settings["entropy_coefficient"] == applied


def test_the_entropy_coefficient_stays_within_its_bounds():
    steered = controllers(entropy=ALL["entropy"])
    rising = [steered.observe({"entropy": 0.1})["entropy_coefficient"] for _ in range(4)]
    assert rising == approx([0.01, 0.02, 0.025, 0.025])
    falling = [steered.observe({"entropy": 0.9}) for _ in range(9)]
    assert {one["entropy_coefficient"] for one in falling} == {0.0}
    assert steered.state["entropy"]["held"] == 0.0


def test_the_linear_schedule_meets_the_worked_numbers():
    for row in ENTROPY["clip_schedule_writeup"]:
        found = linear_floor(row["step"], 1000, start=0.35, fall=0.15, floor=0.25)
        assert found == approx(row["eps_high"], abs=ENTROPY["tolerance"], rel=0)


def test_the_kl_rule_of_the_band_meets_the_worked_trace():
    worked = ENTROPY["beta_rule_writeup"]
    band = BandSettings(unit="nats", low=worked["low"], high=worked["high"])
    steered = held(entropy_kl(start=worked["init"], most=1.0, band=Band(band)))
    found = [
        steered.observe({"entropy": entropy})["kl_coefficient"] for entropy in worked["entropies"]
    ]
    assert found == approx(worked["beta"], abs=ENTROPY["tolerance"], rel=0)


def test_the_adaptive_kl_controller_meets_the_worked_trace():
    worked = KL["adaptive_controller"]
    section = {"start": worked["init"], "most": 9.0, "target": worked["target"]}
    steered = controllers(samples=worked["n_steps"], kl=section | {"horizon": worked["horizon"]})
    found = [steered.observe({"reference_kl": kl})["kl_coefficient"] for kl in worked["current_kl"]]
    assert found == approx(worked["beta"], abs=KL["tolerance"], rel=0)


@given(st.floats(0, 1e6), st.floats(1e-3, 1e3))
def test_one_step_of_the_adaptive_rule_moves_by_a_bounded_factor(kl, target):
    factor = adapted(1.0, kl, target=target, samples=100, horizon=1000)
    assert 0.98 <= factor <= 1.02
    assert (factor > 1) is (kl / target - 1 > 0) or factor == approx(1)


@mark.parametrize("rule", [{"rule": "adaptive", "target": 6.0}, {"rule": "band"}])
def test_the_kl_coefficient_goes_no_higher_than_its_most(rule):
    steered = controllers(kl={"start": 0.49, "most": 0.5, "horizon": 100} | rule)
    loud = {"reference_kl": 1e9, "entropy": 1.0}
    steered.observe(loud)
    for _ in range(3):
        steered.observe(loud | {"entropy": 9.0})
    assert steered.settings == {"kl_coefficient": 0.5}


def test_a_schedule_moves_by_steps_and_not_by_what_they_came_to():
    steered = controllers(
        steps=4, clip={"schedule": "linear-floor", "start": 0.35, "fall": 0.2, "floor": 0.2}
    )
    before = steered.settings["clip_high"]
    after = [steered.observe({})["clip_high"] for _ in range(5)]
    assert [before, *after] == approx([0.35, 0.3, 0.25, 0.2, 0.2, 0.2])


def test_the_cosine_schedule_ends_at_its_floor_and_stays():
    steered = controllers(steps=2, clip={"schedule": "cosine", "start": 0.3, "floor": 0.2})
    found = [steered.settings["clip_high"], *(steered.observe({})["clip_high"] for _ in range(4))]
    assert found == approx([0.3, 0.25, 0.2, 0.2, 0.2])


@given(st.integers(0, 100), st.integers(0, 100))
def test_the_cosine_schedule_never_rises(first, second):
    early, late = sorted((first, second))
    falling = cosine(late, 100, start=0.4, floor=0.1), cosine(early, 100, start=0.4, floor=0.1)
    assert falling[0] <= falling[1]


def test_a_constant_clip_stays_where_it_is_or_where_its_preset_says():
    def constant(**sections):
        steered = controllers(**sections)
        steered.observe({"entropy": 0.01})
        return steered.settings["clip_high"]

    assert constant(clip={"start": 0.31}) == 0.31
    assert constant(preset="4b", clip={}) == 0.28
    assert constant(preset="7b", clip={}) == 0.315
    assert constant(preset="7b", clip={"start": 0.3}) == 0.3


def test_low_entropy_widens_the_clip_and_high_entropy_narrows_it():
    found = clip_by_entropy(1.0, 0.4, 0.4, 1.0, 1.6, step=0.005)
    assert found == approx([0.28, 0.285, 0.29, 0.29, 0.285])


def test_the_steered_clip_stays_between_floor_and_ceiling():
    assert clip_by_entropy(1.0, *[0.1] * 9, step=0.01)[-1] == 0.3
    assert clip_by_entropy(1.0, *[9.0] * 9, step=0.01)[-1] == 0.25
    four = controllers(preset="4b", clip={"schedule": "entropy-feedback", "step": 0.1})
    four.observe({"entropy": 1.0})
    assert four.observe({"entropy": 0.1}) == {"clip_high": 0.315}


@mark.parametrize("entropy", [None, float("nan")])
def test_a_step_that_was_not_measured_moves_nothing_that_hears_metrics(entropy):
    steered = controllers(**ALL)
    steered.observe({"entropy": 0.4, "reference_kl": 9.0})
    before = steered.state
    steered.observe({} if entropy is None else {"entropy": entropy, "reference_kl": entropy})
    assert steered.state == before


STEPS = [
    {"entropy": entropy, "reference_kl": kl}
    for entropy, kl in [(1.0, 7.0), (0.4, 9.0), (0.2, 3.0), (1.7, 6.0), (0.3, 99.0), (0.1, 0.0)]
]


@given(st.integers(0, len(STEPS)))
def test_what_is_restored_from_json_goes_on_as_if_it_had_not_stopped(done):
    whole, begun = controllers(**ALL), controllers(**ALL)
    expected = [whole.observe(step) for step in STEPS]
    for step in STEPS[:done]:
        begun.observe(step)
    resumed = controllers(**ALL)
    resumed.restore(json.loads(json.dumps(begun.state)))
    assert resumed.settings == begun.settings
    assert [resumed.observe(step) for step in STEPS[done:]] == expected[done:]


def test_a_schedule_is_restored_to_its_step():
    section = {"schedule": "cosine", "start": 0.3, "floor": 0.2}
    begun = controllers(steps=4, clip=section)
    begun.observe({})
    resumed = controllers(steps=4, clip=section)
    resumed.restore(json.loads(json.dumps(begun.state)))
    assert resumed.settings == begun.settings != controllers(steps=4, clip=section).settings


def test_controllers_are_told_as_metrics_by_the_setting_that_each_steers():
    steered = controllers(**ALL)
    steered.observe({"entropy": 0.4, "reference_kl": 6.0})
    assert steered.figures == approx(
        {
            "control/clip_high": 0.28,
            "control/entropy_coefficient": 0.01,
            "control/kl_coefficient": 0.2,
        }
    )


def test_nothing_is_steered_unless_it_is_asked_for():
    silent = controllers()
    assert silent.observe({"entropy": 0.0}) == {}
    assert silent.state == {}


def test_a_state_of_other_controllers_is_refused():
    with raises(RecipeError, match="steered by clip, the recipe asks for entropy"):
        controllers(entropy=ALL["entropy"]).restore(controllers(clip=FEEDBACK).state)
    with raises(RecipeError, match="holds step where first, value is needed"):
        controllers(clip=FEEDBACK).restore(controllers(clip={"start": 0.3}).state)


@mark.parametrize(
    ("sections", "message"),
    [
        ({"preset": "4b"}, r'control\.preset = "4b": .*there is none; add control\.clip'),
        ({"clip": {}}, r"control\.clip\.start is missing: .*preset"),
        (
            {"clip": {"schedule": "cosine", "start": 0.2}},
            r"control\.clip\.start = 0\.2: .*control\.clip\.floor = 0\.25",
        ),
        (
            {"kl": {"start": 0.3, "most": 0.2, "target": 0.1}},
            r"control\.kl\.start = 0\.3: .*most = 0\.2",
        ),
        (
            {"kl": {"start": 0.1, "most": 0.2}},
            r"control\.kl\.target is missing: .*nats a token; set it",
        ),
        (
            {"kl": {"rule": "band", "start": 0.1, "most": 0.2, "target": 6.0}},
            r'control\.kl\.target = 6\.0: control\.kl\.rule = "band" .*remove it',
        ),
        ({"band": {"low": 2.0}}, r"low = 2\.0 is not below high = 1\.5"),
    ],
)
def test_settings_that_cannot_be_followed_are_refused(sections, message):
    with raises(RecipeError, match=message):
        ControlSettings.model_validate(sections)


def test_a_kl_coefficient_that_no_rule_could_move_is_refused():
    with raises(ValueError, match=r"kl\.start"):
        ControlSettings.model_validate({"kl": {"start": 0.0, "most": 1.0, "target": 0.1}})


LINE = {"clip": {"schedule": "linear-floor", "start": 0.35, "fall": 0.2, "floor": 0.2}}
STEERED = {"clip": FEEDBACK}
BANDED = {"kl": {"rule": "band", "start": 0.2, "most": 0.5}}
HELD = {"entropy": {"target": 0.5, "delta": 0.01, "most": 0.025}}
ADAPTED = {"kl": {"start": 0.2, "most": 0.5, "target": 6.0, "horizon": 1000}}
PRESET = {"preset": "7b", "clip": {"schedule": "constant"}}
METRICS = [
    {"entropy": entropy, "reference_kl": kl}
    for entropy, kl in ((1.0, 9.0), (0.6, 9.0), (0.4, 2.0), (0.3, 9.0), (1.2, 9.0), (1.8, 9.0))
]


@mark.parametrize(
    ("base", "section", "change"),
    [
        (PRESET, None, {"preset": "4b"}),
        (LINE, "clip", {"schedule": "cosine"}),
        (LINE, "clip", {"start": 0.3}),
        (LINE, "clip", {"fall": 0.1}),
        (LINE, "clip", {"floor": 0.3}),
        (STEERED, "clip", {"ceiling": 0.285}),
        (STEERED, "clip", {"step": 0.001}),
        (STEERED, "band", {"low": 0.1}),
        (STEERED, "band", {"high": 1.1}),
        (STEERED, "band", {"unit": "nats", "low": 0.35}),
        (HELD, "entropy", {"target": 0.35}),
        (HELD, "entropy", {"delta": 0.005}),
        (HELD, "entropy", {"most": 0.015}),
        (HELD, "entropy", {"start": 0.024}),
        (ADAPTED, "kl", {"rule": "band", "target": None}),
        (ADAPTED, "kl", {"start": 0.1}),
        (ADAPTED, "kl", {"most": 0.21}),
        (ADAPTED, "kl", {"target": 1.0}),
        (ADAPTED, "kl", {"horizon": 10}),
    ],
)
def test_each_setting_of_control_decides_what_is_steered(base, section, change):
    changed = base | (change if section is None else {section: base.get(section, {}) | change})

    def course(sections):
        steered = controllers(**sections)
        return [steered.settings, *(steered.observe(each) for each in METRICS)]

    assert course(changed) != course(base)
