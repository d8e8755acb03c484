"""Settings that a recipe changes and that nothing reads, by what it says of others.

They are told and not refused, since they may come from a base on which a command line chooses
otherwise. What is turned off by name, by an amount of 0, puts the settings that go with it to rest,
and that is not told.

What does not go with a loss, a form of credit or a correction is refused by these. Settings whose
effect depends on problems, models or what attempts come to are not covered.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from forethought.app.recipe import Recipe
from forethought.core.settings import Settings

LONGEST_SHOWN = 60
"""Characters of a value that a sentence repeats."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What another key must say, and how to bring that about. `amount`: whether 0 is off.

    >>> one_of("rl.optimizer.type", "muon").remedy
    'set rl.optimizer.type = "muon"'
    """

    key: str
    holds: Callable[[object], bool]
    remedy: str
    amount: bool = False


@dataclass(frozen=True, slots=True)
class Dependent:
    """Keys that are read where one of the conditions holds, and never where there is none.

    `*` is the place of a phase. `instead` is a better remedy than to meet a condition.

    >>> Dependent(("tool.url",), (one_of("tool.tier", "remote"),)).keys
    ('tool.url',)
    """

    keys: tuple[str, ...]
    conditions: tuple[Condition, ...]
    instead: str = ""


def _shown(value: object) -> str:
    """As it is written, an end of it cut off where it is long."""
    if isinstance(value, float):
        return f"{value:g}"
    plain = dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else value
    text = json.dumps(plain, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def one_of(key: str, *values: str | float) -> Condition:
    """It says one of these."""
    remedy = " or ".join(map(_shown, values))
    return Condition(key, lambda value: value in values, f"set {key} = {remedy}")


def other_than(key: str, *values: str) -> Condition:
    """It says something else."""
    return Condition(key, lambda value: value not in values, f"set {key} to something else")


def above_0(key: str) -> Condition:
    """It is an amount, and more than none."""
    return Condition(key, bool, f"set {key} above 0", amount=True)


def present(key: str) -> Condition:
    """It is there, where it may be left out."""
    return Condition(key, lambda value: value is not None, f"add {key}")


def absent(key: str) -> Condition:
    """It is left out."""
    return Condition(key, lambda value: value is None, f"remove {key}")


_CLIP, _KL, _REWARD = "rl.control.clip", "rl.control.kl", "rl.reward"
_FEEDBACK = one_of(f"{_CLIP}.schedule", "entropy-feedback")
_NO_START = absent(f"{_CLIP}.start")
_BUFFER = above_0(f"{_REWARD}.overlong_buffer")
_LOCAL = other_than("model.type", "openai")
_HERE = other_than("tool.tier", "remote")
_SOFTENS = one_of(f"{_REWARD}.variant", "gated", "paper")
_GATED = f'set {_REWARD}.variant = "gated"'

DEPENDENTS: tuple[Dependent, ...] = (
    *(
        Dependent((f"{optimizer}.{key}",), (one_of(f"{optimizer}.{other}", value),))
        for optimizer in ("sft.phases.*.optimizer", "rl.optimizer")
        for key, other, value in (("muon_rate", "type", "muon"), ("floor", "schedule", "cosine"))
    ),
    Dependent(("model.lora_alpha",), (above_0("model.lora_rank"),)),
    Dependent(("sampling.thinking",), (_LOCAL,), "set model.thinking"),
    Dependent(("sampling.reply_tokens",), (_LOCAL,), "set tool.shown_characters"),
    Dependent(
        ("sampling.temperature", "sampling.top_p"),
        (_LOCAL, present("collect.teacher")),
        "set that of eval",
    ),
    Dependent(("tool.url",), (one_of("tool.tier", "remote"),)),
    Dependent(("tool.python", "tool.preload", "tool.processes", "tool.cpu_seconds"), (_HERE,)),
    Dependent(
        ("tool.max_sessions", "tool.session_idle_seconds"), (one_of("tool.state", "session"),)
    ),
    # Programs that are graded run outside of sessions.
    Dependent(
        ("tool.cpu_seconds",),
        (one_of("tool.state", "stateless"), one_of("problems.type", "code")),
        "set tool.wall_seconds",
    ),
    Dependent(("collect.demonstrators.styles",), (absent("collect.teacher"),)),
    Dependent(("sft.pilot_problems",), (above_0("sft.pilot_every"),)),
    Dependent(("sft.held_out_every",), (above_0("sft.held_out"),)),
    Dependent((f"{_REWARD}.bonus_cap", f"{_REWARD}.wrong_ceiling"), (_SOFTENS,), _GATED),
    Dependent(
        (f"{_REWARD}.tool_bonus",),
        (
            _SOFTENS,
            one_of(f"{_REWARD}.variant", "released"),
            one_of(f"{_REWARD}.tool_bonus", 0.0),
        ),
        _GATED,
    ),
    Dependent(
        tuple(f"{_REWARD}.{key}" for key in ("overlong_limit", "overlong_factor", "length_basis")),
        (_BUFFER,),
    ),
    Dependent(
        (f"{_REWARD}.penalties.thinking_limit",), (above_0(f"{_REWARD}.penalties.thinking"),)
    ),
    Dependent((f"{_REWARD}.judge.endpoint.thinking",), ()),
    Dependent(("rl.control.preset",), (_NO_START, _FEEDBACK)),
    Dependent(("rl.control.preset",), (_NO_START, absent(f"{_CLIP}.ceiling"))),
    Dependent((f"{_CLIP}.fall",), (one_of(f"{_CLIP}.schedule", "linear-floor"),)),
    Dependent((f"{_CLIP}.floor",), (other_than(f"{_CLIP}.schedule", "constant"),)),
    Dependent((f"{_CLIP}.ceiling", f"{_CLIP}.step"), (_FEEDBACK,)),
    Dependent(
        tuple(f"rl.control.band.{key}" for key in ("unit", "low", "high")),
        (_FEEDBACK, one_of(f"{_KL}.rule", "band")),
    ),
    Dependent((f"{_KL}.horizon",), (one_of(f"{_KL}.rule", "adaptive"),)),
)
"""What is read beside something else alone. All rows of a key must be met."""


def unread(recipe: Recipe) -> Iterator[str]:
    """A sentence for each key that `recipe` changes and nothing reads: key, value, why, remedy."""
    told: set[str] = set()
    for row in DEPENDENTS:
        for key, conditions in _placed(row, recipe):
            if key not in told and _is_changed(recipe, key) and not _is_read(recipe, conditions):
                told.add(key)
                yield _sentence(recipe, key, conditions, row.instead)


def _placed(row: Dependent, recipe: Recipe) -> Iterator[tuple[str, list[Condition]]]:
    """Each key with its conditions, once a phase where it is one of phases."""
    for key in row.keys:
        for place in map(str, range(len(recipe.sft.phases) if "*" in key else 1)):
            yield key.replace("*", place), [_at(place, condition) for condition in row.conditions]


def _at(place: str, condition: Condition) -> Condition:
    return Condition(
        condition.key.replace("*", place),
        condition.holds,
        condition.remedy.replace("*", place),
        condition.amount,
    )


def _is_changed(recipe: Recipe, key: str) -> bool:
    holder, name = _holder(recipe, key)
    field = None if holder is None else type(holder).model_fields.get(name)
    return field is not None and getattr(holder, name) != field.get_default(
        call_default_factory=True
    )


def _is_read(recipe: Recipe, conditions: list[Condition]) -> bool:
    return any(
        condition.holds(_value(recipe, condition.key))
        or (condition.amount and _is_named(recipe, condition.key))
        for condition in conditions
    )


def _is_named(recipe: Recipe, key: str) -> bool:
    """Whether the recipe says what `key` is, be it the default."""
    holder, name = _holder(recipe, key)
    return holder is not None and name in holder.model_fields_set


def _sentence(recipe: Recipe, key: str, conditions: list[Condition], instead: str) -> str:
    others = [each for each in conditions if each.key != key]
    why = " and ".join(dict.fromkeys(_state(recipe, each.key) for each in others))
    better = instead or " or ".join(each.remedy for each in others)
    return (
        f"{key} = {_shown(_value(recipe, key))}: nothing reads it{why and ' '}{why}; remove it"
        f"{better and ', or '}{better}"
    )


def _state(recipe: Recipe, key: str) -> str:
    """What there is at `key`, or how much of the way to it is missing."""
    value = _value(recipe, key)
    if isinstance(value, Settings):
        return f"with {key}"
    if value is not None:
        return f"with {key} = {_shown(value)}"
    parts = key.split(".")
    ways = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return f"without {next(way for way in ways if _value(recipe, way) is None)}"


def _holder(recipe: Recipe, key: str) -> tuple[Settings | None, str]:
    """The table that `key` stands in, if it is there, and its name in that."""
    way, _, name = key.rpartition(".")
    holder = _value(recipe, way) if way else recipe
    return holder if isinstance(holder, Settings) else None, name


def _value(recipe: Recipe, key: str) -> object:
    """What is at `key`; None where nothing is."""
    node: Any = recipe
    for part in key.split("."):
        node = node[int(part)] if part.isdecimal() else getattr(node, part, None)
    return node
