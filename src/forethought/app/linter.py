"""What a recipe says that will hardly be meant: allowed, but it pays for the wrong thing or for
nothing.

Covers rewards, what keeps them from being paid or credited, and optimiser steps that are never
taken; settings that nothing reads are in `unread`, and what the model was made with otherwise is in
`brought`. A recipe that cannot be followed is refused elsewhere.
"""

from collections.abc import Callable, Iterator

from forethought.app.brought import other_thinking
from forethought.app.recipe import Recipe
from forethought.app.unread import unread
from forethought.learning.advantage import BY_VERDICT
from forethought.learning.rewards.outcome import bonus_room, outcome_gap
from forethought.learning.rewards.settings import OF_TURNS, ProcessSettings, RewardSettings

ANSWER_ONLY = frozenset({"practice", "gsm8k", "file"})
"""Sources whose grader compares one answer: right or wrong, and nothing between."""

WITHOUT_PARTS = frozenset({"practice", "gsm8k", "code"})
"""Sources whose problems never have named parts."""

USUAL_ROOM = bonus_room(RewardSettings(), right=False)

UNBOUNDED = ("thinking_limit", "divergence")
"""The penalties' keys that are no part of what `process.most` bounds."""

OF_CALLS = ("execution", "retrieval", "well_formed", "malformed", "call_cost")
"""The process parts that need a call."""


def warnings(recipe: Recipe) -> tuple[str, ...]:
    """A sentence for each thing in `recipe` that will hardly be meant: key, value, what happens,
    remedy.

    They are about the whole recipe, whichever of its stages is run.
    """
    return tuple(sentence for rule in RULES for sentence in rule(recipe))


def _pays_for_calls(recipe: Recipe) -> Iterator[str]:
    reward = recipe.rl.reward
    room = bonus_room(reward, right=True)
    if room > 0:
        yield (
            f'rl.reward.variant = "{reward.variant}": a right answer earns up to {room:g} more for '
            "calls, so that where all answers are right the only thing to learn is to call more; "
            'use "gated"'
        )
    process = reward.process
    if process.well_formed and not process.call_cost:
        yield (
            f"rl.reward.process.well_formed = {process.well_formed:g}: every turn with calls earns "
            "it, right answers too, so that calling more often pays; set "
            "rl.reward.process.call_cost, or well_formed to 0"
        )


def _pays_turn_after_turn(recipe: Recipe) -> Iterator[str]:
    """Sums over turns that one more turn can add to, where no turn costs anything."""
    process, judge = recipe.rl.reward.process, recipe.rl.reward.judge
    if process.call_cost:
        return
    if process.retrieval and recipe.agent.max_turns > 1 and recipe.problems.type != "code":
        yield (
            f"rl.reward.process.retrieval = {process.retrieval:g}: every new call that brings the "
            "answer earns it once more, so that finding it again and again pays, beside right "
            "answers too; set rl.reward.process.call_cost, or retrieval to 0"
        )
    if judge is not None and judge.weight and recipe.agent.max_turns > 0:
        yield (
            f"rl.reward.judge.weight = {judge.weight:g}: the scores of turns are added up, so that "
            "one turn more that the judge likes pays, beside right answers too; set "
            "rl.reward.process.call_cost, or the weight to 0"
        )


def _outweighs(recipe: Recipe) -> Iterator[str]:
    reward = recipe.rl.reward
    gap = outcome_gap(reward)
    if gap <= 0:
        yield (
            f"rl.reward: the best wrong answer can earn as much as the worst right one (they are "
            f"{gap:g} apart), so that being right need not pay; {_remedy(reward)}"
        )
    elif reward.process.most >= 0.5 and _process_parts(reward):
        yield (
            f"rl.reward.process.most = {reward.process.most:g}: process parts may move right and "
            "wrong answers past each other, so that being right need not pay; set it below 0.5"
        )


def _never_paid(recipe: Recipe) -> Iterator[str]:
    reward = recipe.rl.reward
    parts = _process_parts(reward)
    if parts and reward.process.most == 0:
        yield (
            f"rl.reward.process.most = 0: nothing is left for {', '.join(parts)}, which are set; "
            "raise it (0.25 is the default), or remove them"
        )
    elif parts and outcome_gap(reward) <= 0:
        yield (
            f"rl.reward.process: {', '.join(parts)} are set, but between right and wrong answers "
            f"there is no room for them, so that they come to 0; {_remedy(reward)}"
        )
    elif not parts and reward.process.most != ProcessSettings().most:
        yield (
            f"rl.reward.process.most = {reward.process.most:g}: nothing that it bounds is set, "
            "neither a process part nor a penalty nor a judge; remove it, or set one"
        )
    if reward.judge is not None and reward.judge.weight == 0:
        yield (
            "rl.reward.judge.weight = 0: the judge is asked about every attempt, and its scores "
            "come to nothing; raise the weight, or remove rl.reward.judge"
        )


def _bonus_cannot_pay(recipe: Recipe) -> Iterator[str]:
    reward = recipe.rl.reward
    if reward.variant in ("gated", "paper") and reward.tool_bonus:
        if reward.bonus_cap == 0:
            yield (
                f"rl.reward.bonus_cap = 0: no call earns anything, and rl.reward.tool_bonus = "
                f'{reward.tool_bonus:g} has no effect; raise the cap, or use variant = "outcome"'
            )
        elif bonus_room(reward, right=False) == 0:
            yield (
                f"rl.reward.wrong_ceiling = {reward.wrong_ceiling:g}: it leaves a wrong answer "
                "nothing to earn for its calls; raise it (-0.6 is the default)"
            )


def _length_cannot_cost(recipe: Recipe) -> Iterator[str]:
    reward, most = recipe.rl.reward, recipe.agent.max_tokens
    if reward.overlong_buffer and not reward.overlong_factor:
        yield (
            "rl.reward.overlong_factor = 0: nothing is lost by length, though "
            f"rl.reward.overlong_buffer = {reward.overlong_buffer} asks for it; raise the factor "
            "(1 is the default), or set the buffer to 0"
        )
        return
    if not reward.overlong_buffer or reward.length_basis == "all_tokens":
        return
    if reward.overlong_limit - reward.overlong_buffer >= most:
        yield (
            f"rl.reward.overlong_limit = {reward.overlong_limit}: the penalty would begin at "
            f"{reward.overlong_limit - reward.overlong_buffer} tokens, and agent.max_tokens = "
            f"{most} ends an attempt before that, so that nothing is lost; lower the limit"
        )
    elif reward.overlong_limit > most:
        yield (
            f"rl.reward.overlong_limit = {reward.overlong_limit}: agent.max_tokens = {most} ends "
            "an attempt before the penalty is full; lower the limit to max_tokens"
        )


def _thinking_cannot_cost(recipe: Recipe) -> Iterator[str]:
    penalties, most = recipe.rl.reward.penalties, recipe.agent.max_tokens
    if penalties.thinking and penalties.thinking_limit >= most:
        yield (
            f"rl.reward.penalties.thinking_limit = {penalties.thinking_limit}: agent.max_tokens = "
            f"{most} ends an attempt before that, so that nothing is lost; lower the limit"
        )


def _no_call_runs(recipe: Recipe) -> Iterator[str]:
    if recipe.agent.max_turns:
        return
    reward = recipe.rl.reward
    named = [f"process.{name}" for name in OF_CALLS if getattr(reward.process, name)]
    named += ["penalties.exception"] if reward.penalties.exception else []
    named += ["tool_bonus"] if bonus_room(reward, right=False) > 0 else []
    if named:
        yield (
            f"agent.max_turns = 0: no call is ever run, so that rl.reward {', '.join(named)} can "
            "never be paid; raise max_turns, or turn them off"
        )


def _problems_cannot_show(recipe: Recipe) -> Iterator[str]:
    reward, source = recipe.rl.reward, recipe.problems.type
    if reward.partial and source in ANSWER_ONLY:
        yield (
            f"rl.reward.partial = {reward.partial:g}: it pays for tests that a program passes, and "
            f'problems.type = "{source}" has none, so that it comes to 0; remove it'
        )
    if reward.process.retrieval and source == "code":
        yield (
            f"rl.reward.process.retrieval = {reward.process.retrieval:g}: it pays a call whose "
            'reply brings the answer, and with problems.type = "code" the answer is a program, '
            "which hardly any reply holds; remove it, or pay process.execution"
        )
    parts = [
        name for name in ("steps", "coverage", "verification") if getattr(reward.process, name)
    ]
    if parts and source in WITHOUT_PARTS:
        yield (
            f"rl.reward.process: {', '.join(parts)} need problems whose answer has named parts, "
            f'and problems.type = "{source}" has none, so that they come to 0; remove them, or '
            "give problems of your own with `parts`"
        )


def _credit_passes_over(recipe: Recipe) -> Iterator[str]:
    reward, credit = recipe.rl.reward, recipe.rl.credit
    named = _earned_beside(reward)
    kind = credit.advantage.kind
    if kind in BY_VERDICT and named:
        yield (
            f'rl.credit.advantage.kind = "{kind}": it goes by who is right alone, so that '
            f"rl.reward {', '.join(named)} come to nothing; turn them off (variant = "
            '"outcome" pays no calls), or use another kind'
        )
    # What is released takes off for calls, it takes off whole attempts.
    bonus = () if reward.variant == "released" else ("tool_bonus",)
    by_turn = [name for name in named if name in (*OF_TURNS, "judge", *bonus)]
    if credit.type == "merged" and credit.turn_weight == 0 and by_turn:
        yield (
            "rl.credit.turn_weight = 0: what turns earn is left out of what attempts are compared "
            f"by, so that rl.reward {', '.join(by_turn)} come to nothing; raise it (1 counts them "
            "as they are), or turn them off"
        )


def _steps_never_taken(recipe: Recipe) -> Iterator[str]:
    rl, phases = recipe.rl, recipe.sft.phases
    if rl.optimizer.updates > rl.problems:
        yield (
            f"rl.optimizer.updates = {rl.optimizer.updates}: a round of rl.problems = "
            f"{rl.problems} has that many groups and each is used once, so that it has no more "
            "updates than groups; lower it"
        )
    stages = [(f"sft.phases.{n}", each.optimizer, each.steps) for n, each in enumerate(phases)]
    for place, optimizer, steps in (
        *stages,
        ("rl", rl.optimizer, rl.optimizer_steps(rl.problems)),
    ):
        if optimizer.warmup > steps:
            yield (
                f"{place}.optimizer.warmup = {optimizer.warmup}: there are {steps} optimiser "
                "steps, so that the rate ends before it gets to the one that is set; lower it"
            )


def _earned_beside(reward: RewardSettings) -> list[str]:
    """What moves a reward beside the answer's being right."""
    pays = any(bonus_room(reward, right=right) > 0 for right in (True, False))
    moves = {
        "tool_bonus": pays or (reward.variant == "released" and reward.tool_bonus > 0),
        "overlong_factor": reward.overlong_buffer > 0 and reward.overlong_factor > 0,
        "partial": reward.partial > 0,
        "divergence": reward.penalties.divergence > 0,
    }
    return [*(name for name, does in moves.items() if does), *_process_parts(reward)]


def _process_parts(reward: RewardSettings) -> list[str]:
    """The bounded parts that are set."""
    process, penalties = reward.process.model_dump(), reward.penalties.model_dump()
    named = [name for name, weight in process.items() if name != "most" and weight]
    named += [name for name, weight in penalties.items() if name not in UNBOUNDED and weight]
    return [*named, *(["judge"] if reward.judge is not None else [])]


def _remedy(reward: RewardSettings) -> str:
    """What to lower, of what brings wrong answers up to right ones."""
    raised = {
        "overlong_factor": bool(reward.overlong_buffer),
        "partial": bool(reward.partial),
        "wrong_ceiling": bonus_room(reward, right=False) > USUAL_ROOM,
    }
    return f"lower rl.reward {' or '.join(name for name, high in raised.items() if high)}"


RULES: tuple[Callable[[Recipe], Iterator[str]], ...] = (
    _pays_for_calls,
    _pays_turn_after_turn,
    _outweighs,
    _never_paid,
    _bonus_cannot_pay,
    _length_cannot_cost,
    _thinking_cannot_cost,
    _no_call_runs,
    _problems_cannot_show,
    _credit_passes_over,
    _steps_never_taken,
    unread,
    other_thinking,
)
"""What is looked for, in the order in which it is told."""
