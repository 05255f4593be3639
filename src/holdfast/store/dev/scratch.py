"""Databases for tests: created on demand, emptied between tests, and with a clock that can be set.

A process takes the first free number, by an advisory lock that a killed run releases, and creates
`holdfast_kit_test_<number>`. Only a database whose name, as the server reports it, contains "test" is emptied.
"""

from __future__ import annotations

import itertools
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import resources
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.errors import ConfigurationError, DatabaseUnavailable, UsageError
from holdfast.settings import Settings
from holdfast.store.call import Call
from holdfast.store.calls import Calls
from holdfast.store.migrate import migrate
from holdfast.store.wire import connect
from holdfast.store.wire.session import ThreadSession

T = TypeVar("T")
PREFIX = "holdfast_kit_test_"
_HOLDERS = """
    SELECT pid, application_name, state, left(query, 80) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    ORDER BY xact_start"""


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """Create an empty database for this process, yield its DSN, and drop it after the block."""
    with _connected(server) as conn:
        name = _free_name(conn)
        _drop(conn, name)
        _create(conn, name)
        try:
            yield _on(server, name)
        finally:
            with suppress(psycopg.OperationalError):  # the server is gone
                _drop(conn, name)


@contextmanager
def copied_database(server: str, template: str) -> Iterator[str]:
    """Copy a database without open connections, yield the copy's DSN, and drop it after the block."""
    source = str(conninfo_to_dict(template)["dbname"])
    with _connected(server) as conn:
        name = f"{source}_copy"
        _drop(conn, name)
        _create(conn, name, source)
        try:
            yield _on(server, name)
        finally:
            with suppress(psycopg.OperationalError):
                _drop(conn, name)


def same_database(one: str, other: str) -> bool:
    """Return whether two DSNs name the same database, by comparing their text."""
    if one.startswith("embedded:") or other.startswith("embedded:"):
        return one == other
    keys = {"host": "", "hostaddr": "", "port": "5432", "dbname": ""}
    first, second = conninfo_to_dict(one), conninfo_to_dict(other)
    return all((first.get(key) or default) == (second.get(key) or default) for key, default in keys.items())


def database_name(dsn: str) -> str:
    """Return the database name in a DSN; "" for an embedded server."""
    return "" if dsn.startswith("embedded:") else str(conninfo_to_dict(dsn).get("dbname") or "")


class Scratch:
    """One such database, with Holdfast's schema. With `whole`, reset() empties the application's tables too."""

    def __init__(self, settings: Settings, *, whole: bool) -> None:
        self.settings = settings
        self._whole = whole
        self._calls = Calls(settings.schema)
        self._schema = settings.schema
        self._session = ThreadSession(settings, "testing")
        self._lock = threading.Lock()
        self._ready = False

    def run(self, call: Call[T]) -> T:
        """Run one call; safe from any thread."""
        with self._lock:
            return self._session.run(call)

    def prepare(self) -> None:
        """Migrate the schema and add the functions for tests."""
        migrate(self.settings)
        with psycopg.connect(connect.conninfo(self.settings, "testing")) as conn:
            conn.execute(f"SET LOCAL search_path TO {self._schema}, pg_temp".encode())
            conn.execute((resources.files("holdfast") / "sql" / "testing.sql").read_bytes())

    def reset(self) -> None:
        """Empty the tables and reset the clock."""
        if not self._ready:
            self._make_ready()
            self._ready = True
        try:
            self._one(f"SELECT {self._schema}.test_reset(%s)", self._whole)
        except DatabaseUnavailable as error:
            if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise self._lock_error() from error
            raise

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        self._session.close()

    def now(self) -> datetime:
        """Return the clock's time."""
        return self._time("SELECT {schema}.clock()")

    def travel(self, seconds: float) -> datetime:
        """Move the clock by some seconds; a stopped clock stays stopped."""
        step = "make_interval(secs => %s)"
        return self._set(f"moved = moved + {step}, stopped_at = stopped_at + {step}", seconds, seconds)

    def set(self, at: datetime) -> datetime:
        """Move the clock to a time; a stopped clock stays stopped."""
        stopped_at = "CASE WHEN stopped_at IS NULL THEN NULL ELSE %s::timestamptz END"
        return self._set(f"moved = %s::timestamptz - now(), stopped_at = {stopped_at}", at, at)

    def freeze(self, at: datetime | None) -> datetime:
        """Stop the clock, at a given time or where it is."""
        return self._set("stopped_at = coalesce(%s::timestamptz, stopped_at, now() + moved)", at)

    def resume(self) -> datetime:
        """Restart a stopped clock from where it stands."""
        return self._set("moved = coalesce(stopped_at - now(), moved), stopped_at = NULL")

    def set_right(self) -> datetime:
        """Set the clock to the real time."""
        return self._set("moved = '0', stopped_at = NULL")

    def promote(self) -> None:
        """Do a leader's upkeep: promote due jobs, reclaim expired leases. The lead ends at once, because a test may
        have workers of its own."""
        while (done := self.run(self._calls.workers.upkeep("holdfast-testing", 0))).promoted or done.expired:
            pass

    def due_queues(self) -> list[str]:
        """Return the queues that have due jobs."""
        return self._all(f"SELECT DISTINCT queue::text FROM {self._schema}.live WHERE token IS NULL ORDER BY 1")

    def next_due(self, queue: str | None, *, retries_only: bool) -> datetime | None:
        """Return when the next delayed job comes due, or None."""
        found: datetime | None = self._one(
            f"SELECT min(run_at) FROM {self._schema}.later WHERE (%s::text IS NULL OR queue = %s) "
            "AND (waits_for IS NULL AND (attempt > 0 OR last_error IS NOT NULL) OR NOT %s)",
            queue,
            queue,
            retries_only,
        )
        return found

    def next_waking(self, queue: str | None) -> datetime | None:
        """Return when the next sleep of a job is over, or None."""
        found: datetime | None = self._one(
            f"SELECT min(run_at) FROM {self._schema}.later WHERE (%s::text IS NULL OR queue = %s) "
            "AND starts_with(waits_for, 'sleep ')",
            queue,
            queue,
        )
        return found

    def awaited_signals(self) -> list[list[str]]:
        """Return the signals that parked jobs wait for, each with its tenant ('' for none)."""
        return self._all(
            f"SELECT DISTINCT ARRAY[s.name, s.tenant] FROM {self._schema}.steps s JOIN {self._schema}.later l "
            "ON l.id = s.job AND l.waits_for = 'signal ' || s.name WHERE s.kind = 'signal' AND s.finished_at IS NULL "
            "ORDER BY 1"
        )

    def next_slot(self) -> datetime | None:
        """Return when the next slot of a schedule comes, or None."""
        found: datetime | None = self._one(
            f"SELECT min(next_at) FROM {self._schema}.schedules "
            f"WHERE NOT paused AND problem IS NULL AND next_at > {self._schema}.clock()"
        )
        return found

    def make_due(self, job_id: str) -> None:
        """Make a delayed job due now."""
        later = f"{self._schema}.later"
        self._all(f"UPDATE {later} SET run_at = {self._schema}.clock() WHERE id = %s::uuid RETURNING 1", job_id)

    def due_in(self, job_id: str) -> str | None:
        """Return the queue of a due job, or None if it is not due."""
        found = self._all(f"SELECT queue::text FROM {self._schema}.live WHERE id = %s::uuid AND token IS NULL", job_id)
        return found[0] if found else None

    @contextmanager
    def others_held(self, job_id: str) -> Iterator[None]:
        """Lock all other waiting jobs, so that a claim skips them."""
        with psycopg.connect(connect.conninfo(self.settings, "testing")) as conn:
            conn.execute(
                f"SELECT FROM {self._schema}.live WHERE id <> %s::uuid AND token IS NULL FOR UPDATE".encode(), [job_id]
            )
            yield
            conn.rollback()

    def open_transactions(self) -> int:
        """Return how many other connections have uncommitted writes."""
        return int(
            self._one(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL"
            )
        )

    def _make_ready(self) -> None:
        name = self._one("SELECT current_database()::text")
        if "test" not in name.lower():
            raise ConfigurationError(
                f"tests would empty the database {name!r}; give them one whose name contains 'test', or leave it to "
                "the fixture holdfast_database to make one"
            )
        copied = self._one("SELECT to_regclass(%s) IS NOT NULL", f"{self._schema}.test_kept") and self._whole
        if not copied:
            self.prepare()

    def _lock_error(self) -> UsageError:
        rows: list[tuple[Any, ...]] = self.run(Call(_HOLDERS, (), list))
        holders = "; ".join(f"pid {pid} {name!r} is {state}: {query}" for pid, name, state, query in rows)
        return UsageError(
            "the database cannot be emptied for the next test: a connection still has a transaction open. Commit, roll "
            f"back or close it where the test ends. Open now: {holders or 'none any more'}"
        )

    def _set(self, what: str, *params: Any) -> datetime:
        return self._time(
            f"UPDATE {{schema}}.test_clock SET {what} RETURNING coalesce(stopped_at, now() + moved)", *params
        )

    def _time(self, sql: str, *params: Any) -> datetime:
        time: datetime = self._one(sql.format(schema=self._schema), *params)
        return time

    def _one(self, sql: str, *params: Any) -> Any:
        return self._all(sql, *params)[0]

    def _all(self, sql: str, *params: Sequence[Any] | Any) -> list[Any]:
        return self.run(Call(sql, params, lambda rows: [row[0] for row in rows]))


@contextmanager
def _connected(server: str) -> Iterator[psycopg.Connection[Any]]:
    try:
        conn = psycopg.connect(server, autocommit=True, application_name="holdfast testing")
    except psycopg.Error as error:
        where = connect.hide_password(server)
        raise DatabaseUnavailable(f"the server for tests at {where} cannot be reached: {error}") from error
    with conn:
        yield conn


def _free_name(conn: psycopg.Connection[Any]) -> str:
    for number in itertools.count():
        name = f"{PREFIX}{number}"
        if conn.execute("SELECT pg_try_advisory_lock(%s)", [zlib.crc32(name.encode())]).fetchone() == (True,):
            return name
    raise AssertionError("unreachable")


def _create(conn: psycopg.Connection[Any], name: str, template: str = "template1") -> None:
    try:
        conn.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        conn.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")  # its data need not survive a crash
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"the user of HOLDFAST_TEST_DSN may not create databases ({error}); ALTER ROLE ... CREATEDB, or unset it: "
            "the tests then start a server of their own"
        ) from error
    except psycopg.errors.ObjectInUse as error:
        raise UsageError(
            f"{template} cannot be copied while it has connections; close the connections with which your fixture "
            "set it up"
        ) from error


def _drop(conn: psycopg.Connection[Any], name: str) -> None:
    conn.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _on(server: str, name: str) -> str:
    """Return the DSN of another database on the server; a URL stays one, because other libraries require it."""
    parts = urlsplit(server)
    if not parts.netloc:
        return make_conninfo(server, dbname=name)
    return urlunsplit(parts._replace(path=f"/{name}"))
