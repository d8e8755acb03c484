"""What a recipe steers must be there in its loss, and be said once."""

from pytest import mark, raises

from forethought.core.errors import RecipeError
from forethought.learning.losses.settings import CLIPPED
from forethought.learning.rl_settings import RLSettings

CLIP = {"start": 0.3}
SMALL = {"start": 4e-4}
ENTROPY = {"target": 0.5}
KL = {"start": 0.1, "most": 0.2, "target": 0.01}


def learning(loss, **control):
    return RLSettings.model_validate({"steps": 1, "loss": loss, "control": control})


@mark.parametrize(
    ("loss", "control", "message"),
    [
        (
            {"name": "sapo"},
            {"clip": CLIP},
            r'rl\.control\.clip: rl\.loss\.name = "sapo" has no upper clip.*such as grpo_tcr',
        ),
        ({"name": "reinforce"}, {"clip": CLIP}, r'"reinforce" has no upper clip to steer; remove'),
        (
            {"name": "cispo", "cispo_cap_abs": 5.0},
            {"clip": CLIP},
            r"rl\.loss\.cispo_cap_abs = 5\.0 is the cap.*remove one of the two",
        ),
        (
            {"name": "grpo_scr"},
            {"clip": CLIP},
            r'rl\.control\.clip\.start = 0\.3: ratios of rl\.loss\.name = "grpo_scr".*4e-4',
        ),
        (
            {"name": "grpo_turn"},
            {"clip": {}, "preset": "4b"},
            r'rl\.control\.clip\.start = 0\.28: ratios of rl\.loss\.name = "grpo_turn"',
        ),
        (
            {"clip_high": 0.28},
            {"clip": CLIP},
            r"rl\.loss\.clip_high = 0\.28: rl\.control\.clip decides it.*remove it",
        ),
        (
            {"entropy_coefficient": 0.01},
            {"entropy": ENTROPY},
            r"rl\.loss\.entropy_coefficient = 0\.01: rl\.control\.entropy decides it.*remove it",
        ),
        (
            {"kl_coefficient": 0.02},
            {"kl": KL},
            r"rl\.loss\.kl_coefficient = 0\.02: rl\.control\.kl decides it.*remove it",
        ),
        ({"kl_estimator": "k2"}, {}, r"kl_estimator = k2: there is no KL penalty to estimate; set"),
        ({"kl_estimator": "k2"}, {"clip": CLIP}, r"there is no KL penalty to estimate"),
    ],
)
def test_what_is_not_there_or_said_twice_is_refused(loss, control, message):
    with raises(RecipeError, match=message):
        learning(loss, **control)


@mark.parametrize("name", CLIPPED)
def test_every_loss_with_an_upper_clip_can_have_it_steered(name):
    start = SMALL if name in ("grpo_scr", "grpo_turn") else CLIP
    assert learning({"name": name}, clip=start).control.clip is not None


def test_an_estimator_is_used_where_the_penalty_is_steered_or_set():
    assert learning({"kl_estimator": "k2"}, kl=KL).loss.kl_estimator == "k2"
    assert learning({"kl_estimator": "k2", "kl_coefficient": 0.1}).loss.kl_estimator == "k2"


def test_what_is_not_steered_may_be_set_beside_what_is():
    found = learning({"kl_coefficient": 0.1, "clip_low": 0.1}, clip=CLIP, entropy=ENTROPY)
    assert found.needs_reference
