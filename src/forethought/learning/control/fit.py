"""Whether what is to be steered is there to be steered: control and loss of one recipe."""

from forethought.core.errors import RecipeError
from forethought.learning.control.settings import ClipSettings, ControlSettings
from forethought.learning.losses.settings import CLIPPED, NARROW, LossSettings

WIDEST = 0.05
"""An upper clip above this holds no ratio of a sequence or of a turn."""


def refuse_what_does_not_fit(control: ControlSettings, loss: LossSettings) -> None:
    """Raise `RecipeError` where a loss lacks what is steered, or where both say what it is."""
    _refuse_two_voices(control, loss)
    if control.clip is not None:
        _refuse_clip(control, control.clip, loss)
    if loss.kl_estimator != "k3" and not loss.kl_coefficient and control.kl is None:
        raise RecipeError(
            f"rl.loss.kl_estimator = {loss.kl_estimator}: there is no KL penalty to estimate; "
            "set rl.loss.kl_coefficient above 0 or remove it"
        )


def _refuse_two_voices(control: ControlSettings, loss: LossSettings) -> None:
    for name, key, said in (
        ("clip", "clip_high", loss.clip_high is not None),
        ("entropy", "entropy_coefficient", loss.entropy_coefficient > 0),
        ("kl", "kl_coefficient", loss.kl_coefficient > 0),
    ):
        if said and getattr(control, name) is not None:
            raise RecipeError(
                f"rl.loss.{key} = {getattr(loss, key)}: rl.control.{name} decides it from round to "
                f"round; remove it (rl.control.{name}.start is where it begins), or remove "
                f"rl.control.{name}"
            )


def _refuse_clip(control: ControlSettings, clip: ClipSettings, loss: LossSettings) -> None:
    if loss.name not in CLIPPED:
        raise RecipeError(
            f'rl.control.clip: rl.loss.name = "{loss.name}" has no upper clip to steer; remove it '
            "or use a loss that has one, such as grpo_tcr"
        )
    if loss.cispo_cap_abs is not None:
        raise RecipeError(
            f"rl.control.clip: rl.loss.cispo_cap_abs = {loss.cispo_cap_abs} is the cap, so that "
            "there is no upper clip to steer; remove one of the two"
        )
    start = clip.bounds(control.preset).start
    if loss.name in NARROW and start > WIDEST:
        raise RecipeError(
            f'rl.control.clip.start = {start}: ratios of rl.loss.name = "{loss.name}" never go so '
            "far, so that it would clip nothing; set start to about 4e-4 and floor below it, or "
            "use a loss of token ratios, such as grpo_tcr"
        )
