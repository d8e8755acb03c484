"""One stage of a run, as its loop writes it. Reading many stages is in `reading`."""

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from forethought.core.errors import RecipeError
from forethought.core.trajectory import Episode, Group
from forethought.journal.bodies import pack_episode, pack_problem, pack_reward
from forethought.journal.database import transaction
from forethought.journal.files import intact
from forethought.journal.reading import read_document, read_series

FINGERPRINT = "fingerprint"
"""The name of the document that holds what a stage depends on."""

_ABSENT = object()
_STEP_TABLES = ("metrics", "episodes", "groups", "steps")


class Stage:
    """The record of one stage: `StageJournal` over the run's database.

    What is noted of a step waits in memory until `commit` writes all of it, or none. Notes that
    were never committed are lost with the process, and their step is done again.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        name: str,
        accepted: Callable[[], None],
        committed: Callable[[str, int], None],
    ) -> None:
        self.name = name
        self._connection = connection
        self._path = path
        self._accepted = accepted
        self._committed = committed
        self._metrics: dict[int, dict[str, float]] = {}
        self._groups: dict[int, list[Group]] = {}
        self._rewards: dict[int, dict[str, Mapping[str, float]]] = {}

    def begin(
        self,
        fingerprint: Mapping[str, Any],
        free: Collection[str] = (),
        earlier: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """State the settings that the stage depends on, before its first step.

        Raises `RecipeError` when a step was committed with different ones: half a stage made
        with one recipe and half with another would be neither. A stage without a step takes the
        new ones, so that a recipe that failed at once can be mended in place. Keys that match one
        of the patterns in `free` may differ; those with which an unfinished stage goes on are
        returned, in words. They are its settings from then on. `earlier` takes the place of what
        the stage recorded where more is known of the settings it was begun with.
        """
        now = _as_json(fingerprint)
        recorded = self.get(FINGERPRINT)
        earlier = earlier or recorded
        found = dict(_differences(earlier, now)) if earlier and self.next_step else {}
        bound = [words for key, words in found.items() if not _matches(key, free)]
        if bound:
            raise RecipeError(
                f"stage {self.name} of the run in {self._path.parent} was begun with other "
                f"settings: {'; '.join(bound)}. Restore them, or name another folder "
                "with --run"
            )
        if self.finished:  # it did its work with an earlier recipe, and accepts no later one
            if recorded is None:
                self.put(FINGERPRINT, now)
            return []
        if recorded != now:
            self.put(FINGERPRINT, now)
        self._accepted()
        return list(found.values())

    @property
    def next_step(self) -> int:
        """The first step that is not committed yet."""
        query = "select coalesce(max(step) + 1, 0) from steps where stage = ?"
        with intact(self._path):
            return self._connection.execute(query, (self.name,)).fetchone()[0]

    @property
    def finished(self) -> bool:
        """Whether the stage has ended."""
        query = "select ended_at from stages where stage = ?"
        with intact(self._path):
            row = self._connection.execute(query, (self.name,)).fetchone()
        return row is not None and row[0] is not None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Note numbers of one step; a number noted twice keeps its last value."""
        noted = self._metrics.setdefault(step, {})
        noted.update((name, float(value)) for name, value in metrics.items())

    def keep(self, step: int, groups: Sequence[Group]) -> None:
        """Note the episodes of one step, after those noted before."""
        self._groups.setdefault(step, []).extend(groups)

    def keep_rewards(self, step: int, rewards: Mapping[str, Mapping[str, float]]) -> None:
        """Note the components of what attempts of one step earned, by the episode's id.

        NaN stands for what is not known.
        """
        self._rewards.setdefault(step, {}).update(rewards)

    @contextmanager
    def timed(self, step: int, what: str) -> Generator[None]:
        """Log the seconds that the block took as `seconds/<what>`; several blocks add up."""
        begun = time.perf_counter()
        yield
        metric = f"seconds/{what}"
        earlier = self._metrics.get(step, {}).get(metric, 0.0)
        self.log(step, {metric: earlier + time.perf_counter() - begun})

    def commit(self, step: int) -> None:
        """Write all that was noted of `step` in one transaction, in place of what was there."""
        metrics = self._metrics.get(step, {})
        with transaction(self._connection, self._path):
            self._enter()
            for table in _STEP_TABLES:
                self._connection.execute(
                    f"delete from {table} where stage = ? and step = ?", (self.name, step)
                )
            self._connection.execute(
                "insert into steps values (?, ?, ?)", (self.name, step, time.time())
            )
            # SQLite has no NaN: a null stands for it.
            self._connection.executemany(
                "insert into metrics values (?, ?, ?, ?)",
                ((self.name, metric, step, value) for metric, value in metrics.items()),
            )
            self._insert(step, self._groups.get(step, []), self._rewards.get(step, {}))
        for noted in (self._metrics, self._groups, self._rewards):
            noted.pop(step, None)
        self._committed(self.name, step)

    def series(self, metric: str) -> list[tuple[int, float]]:
        """The committed values of one number as (step, value), by step."""
        with intact(self._path):
            return read_series(self._connection, self.name, metric)

    def rewind(self, step: int) -> None:
        """Forget every step from `step` on, noted or committed; documents stay.

        A stage that loses a step in this way is no longer finished.
        """
        with transaction(self._connection, self._path):
            for table in _STEP_TABLES:
                lost = self._connection.execute(
                    f"delete from {table} where stage = ? and step >= ?", (self.name, step)
                ).rowcount
                if table == "steps" and lost:
                    self._connection.execute(
                        "update stages set ended_at = null where stage = ?", (self.name,)
                    )
        self._metrics = {at: noted for at, noted in self._metrics.items() if at < step}
        self._groups = {at: noted for at, noted in self._groups.items() if at < step}
        self._rewards = {at: noted for at, noted in self._rewards.items() if at < step}

    def put(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a named JSON document at once, in place of an earlier one of that name."""
        body = json.dumps(document)
        with transaction(self._connection, self._path):
            self._enter()
            self._connection.execute(
                "insert into documents (stage, name, body) values (?, ?, ?) "
                "on conflict (stage, name) do update set body = excluded.body",
                (self.name, name, body),
            )

    def get(self, name: str) -> Mapping[str, Any] | None:
        """Read a document back; None where there is none."""
        with intact(self._path):
            return read_document(self._connection, self.name, name)

    def finish(self) -> None:
        """Mark the stage as ended."""
        with transaction(self._connection, self._path):
            self._enter()
            self._connection.execute(
                "update stages set ended_at = ? where stage = ?", (time.time(), self.name)
            )

    def _enter(self) -> None:
        self._connection.execute(
            "insert into stages (stage, begun_at) values (?, ?) on conflict (stage) do nothing",
            (self.name, time.time()),
        )

    def _insert(
        self, step: int, groups: Sequence[Group], rewards: Mapping[str, Mapping[str, float]]
    ) -> None:
        self._connection.executemany(
            "insert into groups values (?, ?, ?, ?, ?)",
            (
                (self.name, step, place, group.id, pack_problem(group.problem))
                for place, group in enumerate(groups)
            ),
        )
        self._connection.executemany(
            "insert into episodes values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    *(self.name, step, place, number),
                    *_columns(group, episode),
                    *pack_reward(rewards.get(episode.id)),
                )
                for place, group in enumerate(groups)
                for number, episode in enumerate(group.episodes)
            ),
        )


def _columns(group: Group, episode: Episode) -> tuple[str | int | bytes | None, ...]:
    told = episode.trajectories
    turns = [turn for trajectory in told for turn in trajectory.turns]
    return (
        episode.id,
        group.id,
        episode.problem.id,
        episode.problem.domain,
        episode.verdict.outcome,
        told[-1].stop if told else None,
        len(turns),
        sum(len(turn.message.calls) for turn in turns),
        sum(turn.tokens for turn in turns),
        pack_episode(episode, group.problem),
    )


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(settings))


def _matches(key: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _differences(
    earlier: Mapping[str, Any], now: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Each key whose value differs, and how; a table that is there only once is one value."""
    for key in [*earlier, *(key for key in now if key not in earlier)]:
        before, after = earlier.get(key, _ABSENT), now.get(key, _ABSENT)
        table, other = _parts(before), _parts(after)
        if table is not None and other is not None:
            yield from _differences(table, other, f"{prefix}{key}.")
        elif (was := _words(before)) != (is_now := _words(after)):
            yield f"{prefix}{key}", f"{prefix}{key} was {was}, is now {is_now}"


def _words(value: object) -> str:
    """A value as a message shows it, a table with those of its keys that are set."""
    if value is _ABSENT or value is None:
        return "absent" if value is _ABSENT else "not set"
    return ", ".join(_leaves(value)) or json.dumps(value)


def _leaves(value: object, prefix: str = "") -> Iterator[str]:
    for key, part in (_parts(value) or {}).items():
        if inner := _parts(part):
            yield from _leaves(inner, f"{prefix}{key}.")
        elif part is not None:
            yield f"{prefix}{key} = {json.dumps(part)}"


def _parts(value: object) -> dict[str, Any] | None:
    """What a table holds by key, and a list of tables by place; None for another value."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    tables = all(isinstance(item, dict) for item in items)
    return {str(place): item for place, item in enumerate(items)} if tables else None
