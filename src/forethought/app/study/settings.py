"""A study as its file says it: one base recipe, and variants of its RL stage as overrides.

What comes before RL is the same for all variants, so that it is done once a seed; a variant may
therefore change nothing outside `rl`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import Field, PositiveInt, ValidationError, field_validator, model_validator

from forethought.app.overrides import overridden
from forethought.app.recipe import Recipe, checked, read_toml, shown
from forethought.core.errors import RecipeError
from forethought.core.settings import Settings

FILE = "study.toml"
"""In a study's folder."""
EMBEDDED = "quickstart"
"""The base that needs no file."""

VariantName = Annotated[str, Field(pattern=r"^\w[\w.-]*$", max_length=64)]


class StudySettings(Settings):
    """What is compared. The first variant is the one that the others are compared with."""

    title: str
    """What is asked, in one line."""
    base: str = EMBEDDED
    """The recipe that all share: `quickstart`, or a file, seen from the study's folder."""
    reach: float = Field(default=0.6, gt=0, le=1)
    """The accuracy of which is told how many rounds it took."""
    smooth: PositiveInt = 5
    """Rounds whose mean counts for that, since single rounds scatter."""
    shared: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Overrides of the base for all variants; any key but `seed`."""
    variants: dict[VariantName, dict[str, Any]] = Field(min_length=2)
    """Each variant's own overrides: keys of `rl`."""

    @field_validator("shared", mode="before")
    @classmethod
    def _flatten(cls, found: object) -> object:
        return flat(found, "shared.")

    @field_validator("variants", mode="before")
    @classmethod
    def _flatten_each(cls, found: object) -> object:
        if not isinstance(found, dict):
            return found
        named = cast("dict[str, object]", found)
        return {name: flat(table, f"variants.{name}.") for name, table in named.items()}

    @model_validator(mode="after")
    def _shares_what_comes_before_rl(self) -> Self:
        if "seed" in self.shared:
            raise RecipeError("shared.seed: a study goes through seeds 0, 1, …; remove it")
        for name, changes in self.variants.items():
            for key in changes:
                if key.partition(".")[0] != "rl":
                    raise RecipeError(
                        f"variants.{name}.{key}: variants share all that comes before RL, so they "
                        "change keys of rl only; move this one to [shared], or make a second study"
                    )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study with every recipe checked."""

    name: str
    settings: StudySettings
    recipes: Mapping[str, Recipe]
    """Each variant's recipe, in the order of the file."""
    words: tuple[str, ...] = ()
    """What was typed for all variants."""

    def recipe(self, variant: str, seed: int) -> Recipe:
        """The recipe of one run."""
        return self.recipes[variant].model_copy(update={"seed": seed})


def read_study(folder: Path, words: Sequence[str] = ()) -> Study:
    """The study in a folder; `words` are overrides for all variants, such as `--rl.steps 20`.

    What a variant sets holds over `words`, and these over `shared`. Raises `RecipeError` for a
    folder without a study, for unknown keys, and for a variant whose recipe cannot be used or is
    that of another.
    """
    if folder.name == FILE:
        folder = folder.parent
    settings = _settings(folder / FILE)
    if any(word.partition("=")[0] == "--seed" for word in words):
        raise RecipeError("--seed: a study goes through seeds 0, 1, …; use --seeds, how many")
    shared = overridden(_base(settings, folder), [*as_words(settings.shared), *words])
    recipes: dict[str, Recipe] = {}
    for name, changes in settings.variants.items():
        recipe = _variant(f"{folder / FILE}, variant {name}", shared, changes)
        if same := [other for other, one in recipes.items() if one == recipe]:
            raise RecipeError(
                f"{folder / FILE}, variant {name}: its recipe is that of {same[0]}; remove one"
            )
        recipes[name] = recipe
    _refuse_short(settings, recipes, folder / FILE)
    name = folder.resolve().name
    return Study(name=name, settings=settings, recipes=recipes, words=tuple(words))


def as_words(changes: Mapping[str, Any]) -> list[str]:
    """Overrides as they could be typed.

    >>> as_words({"rl.loss.name": "grpo_t", "rl.steps": 20})
    ['--rl.loss.name="grpo_t"', '--rl.steps=20']
    """
    return [f"--{key}={dumps(value, ensure_ascii=False)}" for key, value in changes.items()]


def flat(found: object, place: str = "") -> object:
    """Nested tables as one table of dotted keys; what is no table stays as it is.

    Raises `RecipeError`, with `place` before the key, for a value that cannot be typed.

    >>> flat({"rl": {"loss": {"name": "grpo_t"}, "steps": 20}})
    {'rl.loss.name': 'grpo_t', 'rl.steps': 20}
    """
    if not isinstance(found, dict):
        return found
    leaves = dict(_leaves(cast("dict[str, object]", found)))
    for key, value in leaves.items():
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        if not all(isinstance(item, bool | int | float | str) for item in items):
            raise RecipeError(
                f"{place}{key} = {value}: an override is a text, a number, true or false, or a "
                "list of these; name keys further in, such as sft.phases.0.steps"
            )
    return leaves


def _leaves(table: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(cast("dict[str, object]", value), f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _settings(path: Path) -> StudySettings:
    remedy = f"give a folder that holds {FILE}, such as recipes/study/losses"
    found = read_toml(path, f"study {path}", remedy)
    try:
        return StudySettings.model_validate(found)
    except ValidationError as error:
        known = ", ".join(StudySettings.model_fields)
        faults = "\n  ".join(
            f"{'.'.join(map(str, each['loc']))} = {shown(each['input'])}: {each['msg']}"
            for each in error.errors(include_url=False)
        )
        raise RecipeError(
            f"study {path} cannot be used:\n  {faults}\nKnown keys: {known}"
        ) from error
    except RecipeError as error:
        raise RecipeError(f"study {path}: {error}") from error
    except RecursionError as error:
        raise RecipeError(f"study {path}: tables in tables without end; flatten them") from error


def _base(settings: StudySettings, folder: Path) -> dict[str, Any]:
    if settings.base != EMBEDDED:
        return _tree(folder / settings.base)
    with as_file(files("forethought.app") / "quickstart.toml") as path:
        return _tree(path)


def _tree(path: Path) -> dict[str, Any]:
    """The plain values of a recipe that can be used as it stands."""
    found = read_toml(path, f"recipe {path}", "give base the path of a TOML file")
    checked(found, str(path))
    return found


def _variant(source: str, shared: Mapping[str, Any], changes: Mapping[str, Any]) -> Recipe:
    try:
        return checked(overridden(shared, as_words(changes)), source)
    except RecipeError as error:
        # Sections that refuse a combination of values do not know whose it is.
        text = str(error)
        raise RecipeError(text if text.startswith(source) else f"{source}: {text}") from error


def _refuse_short(settings: StudySettings, recipes: Mapping[str, Recipe], path: Path) -> None:
    shortest = min(recipe.rl.steps for recipe in recipes.values())
    if settings.smooth > shortest:
        raise RecipeError(
            f"{path}: smooth = {settings.smooth}: RL has only {shortest} rounds (rl.steps); "
            "lower smooth or raise the rounds"
        )
