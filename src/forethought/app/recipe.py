"""Recipes: what a run does, read from TOML and overridden from the command line.

Every section belongs to the room that acts on it; here they are only put together.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PositiveInt, ValidationError, model_validator
from pydantic_core import ErrorDetails

from forethought.agents.demonstrators import DemonstratorSettings
from forethought.agents.tool_agent import AgentSettings
from forethought.app.overrides import overridden
from forethought.app.problems import CodeProblems, ProblemSettings
from forethought.core.errors import RecipeError
from forethought.core.settings import Settings
from forethought.evaluation.settings import ExamSettings
from forethought.learning.rl_settings import RLSettings
from forethought.learning.settings import ComputeSettings, OptimizerSettings, SFTSettings
from forethought.policy.local.settings import ModelSettings
from forethought.policy.protocol import SamplingSettings
from forethought.policy.remote import RemoteSettings
from forethought.tools import checking
from forethought.tools.settings import PythonSettings

LONGEST_SHOWN = 300
"""Characters of a wrong value that a message repeats."""
LONGEST_FILE = 1_000_000
"""Characters of a file at most; a device or a pipe may have no end."""


class CollectSettings(Settings):
    """Recording trajectories: scripted demonstrators that run the real tool, or a file."""

    problems: PositiveInt = 3000
    """Problems that are shown."""
    trajectories: str = ""
    """File of recorded conversations, all of which are taken instead of showing problems."""
    unusable: Literal["refuse", "leave_out"] = "refuse"
    """What becomes of rows of `trajectories` that cannot be used: a file with such rows is
    refused, or they are left out, which is said with their number."""
    demonstrators: DemonstratorSettings = DemonstratorSettings()
    """Their styles, by weight."""
    teacher: RemoteSettings | None = None
    """A model behind an endpoint that shows the problems instead of the scripts."""

    @model_validator(mode="after")
    def _refuse_two_sources(self) -> Self:
        defaults = CollectSettings.model_construct()
        named = ("problems", "demonstrators", "teacher")
        others = [key for key in named if getattr(self, key) != getattr(defaults, key)]
        if self.trajectories and others:
            raise RecipeError(
                f"collect.trajectories = {self.trajectories!r}: all of the file is taken and "
                f"nobody shows problems; remove collect.{', collect.'.join(others)}, or the file"
            )
        return self


class MeasureSettings(Settings):
    """Measuring how hard problems are for the model as it is after SFT."""

    problems: PositiveInt = 512
    """Problems that are tried."""
    attempts: PositiveInt = 8
    """Attempts at each."""


class EvalSettings(ExamSettings):
    """Held-out exams: which checkpoints sit them, and how they sample."""

    temperature: float = Field(default=1.0, gt=0)
    """Of the sampled attempts; the attempt beside them is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Of the sampled attempts."""


class Recipe(Settings):
    """Everything that decides what a run does."""

    seed: int = 0
    """Every random choice derives from it."""
    problems: ProblemSettings
    """What is asked."""
    model: ModelSettings
    """Who learns."""
    tool: PythonSettings = PythonSettings()
    """The Python tool and its limits."""
    agent: AgentSettings = AgentSettings()
    """How far one attempt may go."""
    sampling: SamplingSettings = SamplingSettings()
    """How the model speaks while it is measured and trained."""
    compute: ComputeSettings = ComputeSettings()
    """Where to compute."""
    collect: CollectSettings = CollectSettings()
    """Stage 1: record trajectories."""
    sft: SFTSettings
    """Stage 2: imitate them."""
    measure: MeasureSettings = MeasureSettings()
    """Stage 3: difficulty."""
    rl: RLSettings
    """Stage 4: reinforcement learning."""
    eval: EvalSettings = EvalSettings()
    """Held-out exams before and after."""

    @model_validator(mode="after")
    def _refuse_too_few_sessions(self) -> Self:
        most, attempts = self.tool.max_sessions, self.compute.at_once
        if self.tool.state == "session" and most < attempts:
            raise RecipeError(
                f'tool.state = "session", tool.max_sessions = {most}: each of compute.at_once = '
                f"{attempts} attempts may hold a session; raise tool.max_sessions (to 200 at most) "
                "or lower compute.at_once"
            )
        return self

    @model_validator(mode="after")
    def _refuse_too_short_a_line(self) -> Self:
        """While servers are built anew every call waits, so that none counts as running."""
        line, attempts, (calls, why) = self.tool.queue, self.compute.at_once, self._most_calls
        if line < attempts * calls:
            raise RecipeError(
                f"tool.queue = {line}: each of compute.at_once = {attempts} attempts may have "
                f"{calls} programs wait in line ({why}), and one too many leaves its attempt not "
                f"measured; raise tool.queue to {attempts * calls} or lower compute.at_once"
            )
        return self

    @property
    def _most_calls(self) -> tuple[int, str]:
        """How many programs one attempt may have run at once, and what says so."""
        most = (self.agent.calls_per_turn, "agent.calls_per_turn")
        if self.tool.state == "session":
            most = (1, "those of a session run one after another")
        if isinstance(self.problems, CodeProblems):
            tests = (checking.AT_ONCE, "the tests of an answer")
            most = max(most, tests, key=lambda each: each[0])
        return most

    @property
    def optimizers(self) -> list[OptimizerSettings]:
        """Those that train the model, one stage after the other."""
        return [*(phase.optimizer for phase in self.sft.phases), self.rl.optimizer]


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in a TOML file, with overrides such as `--rl.steps 20`; the later wins.

    An override means what the same key would mean in the file: defaults come in afterwards.
    Raises `RecipeError` for a file that is not there or not TOML, and for every key that is
    unknown or holds a value of the wrong kind, naming it.
    """
    if path == Path():
        raise RecipeError("recipe: its path is empty; give the path of a TOML file")
    found = read_toml(path, f"recipe {path}", "give the path of a TOML file")
    source = f"{path} with the command line" if overrides else str(path)
    return checked(overridden(found, overrides), source)


def read_toml(path: Path, what: str, remedy: str) -> dict[str, Any]:
    """The plain values in a TOML file.

    Raises `RecipeError`, which names `what` it was to be, with `remedy` where it cannot be read.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(LONGEST_FILE + 1)
        if len(text) > LONGEST_FILE:
            raise RecipeError(f"{what}: longer than {LONGEST_FILE:,} characters; {remedy}")
        return tomllib.loads(text)
    except OSError as error:
        raise RecipeError(f"{what}: {error.strerror}; {remedy}") from error
    except (ValueError, RecursionError) as error:  # of bytes, TOML, long numbers, deep nesting
        raise RecipeError(f"{what} is not TOML: {error}; mend that place") from error


def checked(found: Mapping[str, Any], source: str) -> Recipe:
    """The recipe in a tree of plain values. Raises `RecipeError` listing all that is wrong."""
    try:
        return Recipe.model_validate(found)
    except ValidationError as error:
        faults = "\n  ".join(_explain(each, found) for each in error.errors(include_url=False))
        raise RecipeError(f"{source}: the recipe cannot be used:\n  {faults}") from error


def _explain(fault: ErrorDetails, found: Mapping[str, Any]) -> str:
    """One fault as key, value and remedy."""
    key = ".".join(_key(fault, found)) or "the recipe"
    if fault["type"] == "extra_forbidden":
        return f"{key}: there is no such key; {_hint(fault['loc'])}"
    context = fault.get("ctx", {})
    if fault["type"] == "missing":
        return f"{key}: this key is missing; add it"
    if fault["type"] == "union_tag_not_found":
        return f"{key}.type: this key is missing; add it"
    if fault["type"] == "union_tag_invalid":
        return f"{key}.type = {context['tag']!r}: known are {context['expected_tags']}"
    return f"{key} = {shown(fault['input'])}: {fault['msg']}"


def shown(value: object) -> str:
    """A wrong value as a message repeats it: its beginning where it is long.

    >>> shown("three")
    "'three'"
    """
    try:
        text = repr(value)
    except RecursionError:
        return "a table in tables without end"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _key(fault: ErrorDetails, found: Any) -> Iterator[str]:
    """The key as it is written: without what names a variant, which stands in no recipe."""
    if not fault["loc"]:
        return
    *way, last = fault["loc"]
    for part in way:
        if _holds(found, part):
            found = found[part]
            yield str(part)
    if fault["type"] == "missing" or _holds(found, last):
        yield str(last)


def _holds(node: object, part: str | int) -> bool:
    if isinstance(part, int):
        return isinstance(node, list | tuple)
    return isinstance(node, Mapping) and part in node


def _hint(location: Sequence[str | int]) -> str:
    """The nearest key that could stand where the unknown one does, or in a table beside it."""
    schema: dict[str, Any] = Recipe.model_json_schema()
    table: dict[str, Any] = schema
    for part in location[:-1]:
        table = _resolve(_descend(table, part), schema)
    beside = table.get("properties", {})
    deeper = {
        name: f"{key}.{name}"
        for key, part in beside.items()
        for name in _resolve(part, schema).get("properties", {})
    }
    for known in ({key: key for key in beside}, deeper):
        if close := get_close_matches(str(location[-1]), known, n=1):
            return f"did you mean {known[close[0]]!r}?"
    return f"known keys: {', '.join(sorted(beside))}"


def _descend(node: Mapping[str, Any], part: str | int) -> dict[str, Any]:
    if isinstance(part, int):
        return node.get("items", {})
    variants = node.get("discriminator", {}).get("mapping", {})
    if part in variants:
        return {"$ref": variants[part]}
    return node.get("properties", {}).get(part, {})


def _resolve(node: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    for one in (node, *node.get("anyOf", ())):
        if name := one.get("$ref", "").rpartition("/")[2]:
            return schema["$defs"][name]
    return node
