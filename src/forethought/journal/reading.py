"""What can be asked of a journal, while it is being written or afterwards."""

import json
import math
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

from forethought.core.trajectory import Group
from forethought.journal.bodies import unpack_episode, unpack_problem, unpack_reward


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSummary:
    """How far one stage has come; times are seconds since 1970.

    >>> StageSummary(name="rl", steps=3, begun_at=10.0, ended_at=None).finished
    False
    """

    name: str
    steps: int
    begun_at: float
    ended_at: float | None

    @property
    def finished(self) -> bool:
        """Whether the stage has ended."""
        return self.ended_at is not None


def read_stages(connection: sqlite3.Connection) -> list[StageSummary]:
    """Every stage in the order in which they were begun. Raises `ValueError` for odd times."""
    query = """
        select stage, begun_at, ended_at,
               (select count(*) from steps where steps.stage = stages.stage)
        from stages order by place
    """
    return [
        StageSummary(
            name=name,
            steps=steps,
            begun_at=_number(begun_at),
            ended_at=None if ended_at is None else _number(ended_at),
        )
        for name, begun_at, ended_at, steps in connection.execute(query)
    ]


def read_metrics(connection: sqlite3.Connection, stage: str) -> list[str]:
    """The names of a stage's series, sorted."""
    query = "select distinct metric from metrics where stage = ? order by metric"
    return [name for (name,) in connection.execute(query, (stage,))]


def read_series(connection: sqlite3.Connection, stage: str, metric: str) -> list[tuple[int, float]]:
    """One series as (step, value), by step. Raises `ValueError` for a value that is no number."""
    query = "select step, value from metrics where stage = ? and metric = ? order by step"
    return [
        (step, math.nan if value is None else _number(value))
        for step, value in connection.execute(query, (stage, metric))
    ]


def read_documents(connection: sqlite3.Connection, stage: str) -> list[str]:
    """The names of a stage's documents, in the order in which they were first written."""
    query = "select name from documents where stage = ? order by place"
    return [name for (name,) in connection.execute(query, (stage,))]


def read_document(connection: sqlite3.Connection, stage: str, name: str) -> dict[str, Any] | None:
    """One document; None where there is none. Raises `ValueError` for JSON that is no object."""
    query = "select body from documents where stage = ? and name = ?"
    row = connection.execute(query, (stage, name)).fetchone()
    return None if row is None else read_object(row[0])


def read_object(text: str) -> dict[str, Any]:
    """The object that a JSON text holds. Raises `ValueError` where it holds something else.

    >>> read_object('{"seed": 7}')
    {'seed': 7}
    """
    found: object = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("an object in JSON is expected, with its keys in braces")  # noqa: TRY004
    return cast("dict[str, Any]", found)


def read_attempts(connection: sqlite3.Connection) -> dict[str, int]:
    """How many attempts each stage has kept, in the order in which stages were begun.

    A stage without any is left out.
    """
    query = """
        select stages.stage, count(*) from stages
        join episodes on episodes.stage = stages.stage
        group by stages.place order by stages.place
    """
    return dict(connection.execute(query).fetchall())


def read_steps(connection: sqlite3.Connection, stage: str) -> list[int]:
    """The committed steps of a stage."""
    query = "select step from steps where stage = ? order by step"
    return [step for (step,) in connection.execute(query, (stage,))]


def read_groups(connection: sqlite3.Connection, stage: str, step: int) -> Iterator[Group]:
    """The groups of one step, as they were kept."""
    query = """
        select groups.place, groups.group_id, groups.problem, episodes.body
        from groups left join episodes
          on episodes.stage = groups.stage and episodes.step = groups.step
         and episodes.group_place = groups.place
        where groups.stage = ? and groups.step = ?
        order by groups.place, episodes.place
    """
    # Fetched in one go: a reader that dawdles would keep the writer's log from being emptied.
    rows = connection.execute(query, (stage, step)).fetchall()
    for (_, name, packed), members in groupby(rows, key=lambda row: row[:3]):
        problem = unpack_problem(packed)
        bodies = (body for *_, body in members if body is not None)
        episodes = tuple(unpack_episode(body, problem) for body in bodies)
        yield Group(id=name, problem=problem, episodes=episodes)


def read_rewards(
    connection: sqlite3.Connection, stage: str, step: int
) -> dict[str, dict[str, float]]:
    """What attempts of one step earned by component, by the episode's id; NaN is not known.

    None in a journal from before rewards were kept.
    """
    columns = {name for _, name, *_ in connection.execute("pragma table_info(episodes)")}
    if "components" not in columns:
        return {}
    query = """
        select episode_id, components from episodes
        where stage = ? and step = ? and components is not null
        order by group_place, place
    """
    rows = connection.execute(query, (stage, step)).fetchall()
    return {name: unpack_reward(components) for name, components in rows}


def _number(found: object) -> float:
    # SQLite keeps text in a column of numbers, too.
    if isinstance(found, int | float):
        return found
    raise ValueError(f"a number is expected where {found!r} stands")
