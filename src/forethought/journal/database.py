"""The SQLite file of a run: its tables, how it is opened, and transactions.

A writer opens it in WAL mode with `synchronous = FULL`: a committed step survives a power cut,
and readers see the last whole step while the next one is being written.
"""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from forethought.core.errors import RecipeError
from forethought.journal.files import explained

_APPLICATION = 0x464F5245
_FORMAT = 2
_UPGRADES = {
    1: (
        "alter table episodes add column reward real",
        "alter table episodes add column components text",
    )
}
"""What makes of a journal of an earlier format one of the next."""

_HINDRANCES = (
    "SQLITE_READONLY",
    "SQLITE_CANTOPEN",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_BUSY",
)
"""Beginnings of the names of errors that say nothing of what a file holds."""

_TABLES = """
create table stages (
    place integer primary key,
    stage text not null unique,
    begun_at real not null,
    ended_at real
);
create table documents (
    place integer primary key,
    stage text not null,
    name text not null,
    body text not null,
    unique (stage, name)
);
create table steps (
    stage text not null,
    step integer not null,
    at real not null,
    primary key (stage, step)
) without rowid;
create table metrics (
    stage text not null,
    metric text not null,
    step integer not null,
    value real,
    primary key (stage, metric, step)
) without rowid;
create index metrics_of_step on metrics (stage, step);
create table groups (
    stage text not null,
    step integer not null,
    place integer not null,
    group_id text not null,
    problem blob not null,
    primary key (stage, step, place)
);
create table episodes (
    stage text not null,
    step integer not null,
    group_place integer not null,
    place integer not null,
    episode_id text not null,
    group_id text not null,
    problem_id text not null,
    domain text not null,
    outcome text not null,
    stop text,
    turns integer not null,
    calls integer not null,
    sampled_tokens integer not null,
    body blob not null,
    reward real,
    components text,
    primary key (stage, step, group_place, place)
);
create index episodes_of_group on episodes (group_id);
create index episodes_of_problem on episodes (problem_id, stage);
create index episodes_of_domain on episodes (domain, stage, outcome);
"""


def open_writer(path: Path) -> sqlite3.Connection:
    """Open or create the journal at `path` for writing; the caller holds the writer lock."""
    connection = _connect(path, "rwc")
    try:
        with explained(path):
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = full")
            if _is_blank(connection):
                with transaction(connection, path):
                    _create(connection)
            _check(connection, path)
            _upgrade(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open the journal at `path` for reading, beside whoever writes it."""
    connection = _connect(path, "ro")
    try:
        with explained(path):
            try:
                _check(connection, path)
            except sqlite3.OperationalError as error:
                if not _is_archived(path, error):
                    raise
                connection.close()
                connection = _connect(path, "ro&immutable=1")
                _check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def contents(path: Path) -> Literal["journal", "blank", "other"]:
    """What is at `path`: a journal, a file without tables, with which one begins, or neither."""
    if not path.is_file():
        return "other"
    with closing(_connect(path, "ro")) as connection:
        try:
            blank = _is_blank(connection)
            (application,) = connection.execute("pragma application_id").fetchone()
        except sqlite3.OperationalError as error:
            # A killed writer leaves a log that only a writer may replay, a full disk has no room to
            # read, another program may hold the file: let the writer open it, and say what it is.
            return "journal" if error.sqlite_errorname.startswith(_HINDRANCES) else "other"
        except sqlite3.DatabaseError:
            return "other"
    if blank:
        return "blank"
    return "journal" if application == _APPLICATION else "other"


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Generator[None]:
    """All of the block's writes at once, or none of them."""
    with explained(path):
        connection.execute("begin immediate")
        try:
            yield
            connection.execute("commit")
        except BaseException:
            # SQLite has rolled back already where the disk was full.
            if connection.in_transaction:
                connection.execute("rollback")
            raise


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    address = f"file:{quote(str(path.resolve()))}?mode={mode}"
    with explained(path):
        return sqlite3.connect(address, uri=True, timeout=30.0, isolation_level=None)


def _create(connection: sqlite3.Connection) -> None:
    for statement in _TABLES.split(";"):
        connection.execute(statement)
    connection.execute(f"pragma application_id = {_APPLICATION}")
    connection.execute(f"pragma user_version = {_FORMAT}")


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Make a journal of an earlier format one of this format: each step whole, or not at all."""
    (version,) = connection.execute("pragma user_version").fetchone()
    for earlier in range(version, _FORMAT):
        with transaction(connection, path):
            for statement in _UPGRADES[earlier]:
                connection.execute(statement)
            connection.execute(f"pragma user_version = {earlier + 1}")


def _is_blank(connection: sqlite3.Connection) -> bool:
    (objects,) = connection.execute("select count(*) from sqlite_master").fetchone()
    (application,) = connection.execute("pragma application_id").fetchone()
    return objects == 0 and application == 0


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("pragma application_id").fetchone()
    if application != _APPLICATION:
        raise RecipeError(f"{path} is not a journal of this program: name another folder")
    (version,) = connection.execute("pragma user_version").fetchone()
    if version not in (*_UPGRADES, _FORMAT):
        raise RecipeError(
            f"{path} has journal format {version}, this version reads {_FORMAT}: read it with "
            "the version that wrote it, or name another folder"
        )


def _is_archived(path: Path, error: sqlite3.OperationalError) -> bool:
    # A closed run on a read-only medium: SQLite cannot make its shared-memory file there, and
    # needs none, because nobody can write.
    refused = error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))
    return refused and not path.with_name(f"{path.name}-wal").exists()
