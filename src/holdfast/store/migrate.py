"""Bring a database's schema to this release, while processes of other releases work: decision 034.

A new schema is made in one transaction. An existing one is changed step by step, each in a transaction of its own that
holds locks for moments, or outside of one (concurrent indexes): first what is added, then functions and views
(replace.py), at last what contract migrations remove. After each step the older releases work, and a run that was
interrupted is continued by the next one. One process migrates at a time; the others wait. SQL files contain no schema
name: search_path sets it, and functions keep it (`set search_path from current`).

A statement that waits for a lock blocks all later ones. So migrate waits only LOCK_WAIT, then releases its locks and
tries again later, until PATIENCE is over. A statement that runs for longer than HOLD is canceled.
"""

from __future__ import annotations

import itertools
import logging
import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from holdfast.errors import ConfigurationError, DatabaseUnavailable
from holdfast.settings import Settings
from holdfast.store.migrations import MigrationStep, in_one_transaction
from holdfast.store.plan import HOLD, Plan, make_plan
from holdfast.store.replace import replace_changed
from holdfast.store.wire import connect
from holdfast.store.wire.opener import READ_COMMITTED

Connection = psycopg.Connection[Any]
log = logging.getLogger("holdfast.migrate")
LOCK_WAIT = 0.5  # seconds that other transactions may wait behind migrate
PATIENCE = 60.0  # seconds after which a lock held elsewhere is an error
_PAUSE = (1.0, 3.0)  # seconds between tries, for other transactions to proceed
_SHORT_PAUSE = (0.01, 0.05)  # the same after a try that made none wait, as often as _SHORT_TRIES
_SHORT_TRIES = 50
# Transactions that hold locks which migrate may need, oldest first.
_HOLDERS = """
SELECT a.pid, a.application_name, a.state, extract(epoch FROM clock_timestamp() - a.xact_start)::float8,
       min(c.relname::text)
FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND c.relnamespace = to_regnamespace(%s) AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
GROUP BY a.pid, a.application_name, a.state, a.xact_start ORDER BY a.xact_start LIMIT 1
"""
_RELIED_ON = ("standard_conforming_strings = on", "datestyle = 'ISO'", "check_function_bodies = off")
_TURN = ("statement_timeout = 0", "lock_timeout = 0", "idle_in_transaction_session_timeout = 0")
# works_with: the oldest schema number whose processes work with this version; null: only its own. steps: how many are
# done. applied_at: null until all are.
_INFO = (
    "CREATE TABLE IF NOT EXISTS schema_info (version integer PRIMARY KEY, applied_at timestamptz, works_with integer, "
    "steps integer NOT NULL DEFAULT 0)"
)
_FILES = "CREATE TABLE IF NOT EXISTS schema_files (name text PRIMARY KEY, checksum text NOT NULL)"
_RECORD = """
INSERT INTO schema_info (version, works_with, steps, applied_at) VALUES (%s, %s, %s, CASE WHEN %s THEN now() END)
ON CONFLICT (version)
DO UPDATE SET works_with = excluded.works_with, steps = excluded.steps, applied_at = excluded.applied_at
"""
_INVALID = "SELECT 1 FROM pg_index WHERE NOT indisvalid AND indexrelid = to_regclass(%s)"  # a crash has left it


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a run of migrate did."""

    version: int
    migrations: list[str]
    functions: list[str]


def migrate(settings: Settings, to: int | None = None) -> Migrated:
    """Apply what is missing, up to a version; do nothing if the schema is up to date."""
    try:
        with (
            psycopg.connect(connect.conninfo(settings, "migrate"), autocommit=True) as conn,
            _turn(settings, conn.info.server_version),
        ):
            conn.isolation_level = READ_COMMITTED
            plan = make_plan(lambda sql: conn.execute(sql.encode()).fetchall(), settings.schema, to)
            return _Run(conn, settings, plan).run()
    except psycopg.Error as error:
        raise _explain(error, settings) from error


@contextmanager
def _turn(settings: Settings, server_version: int) -> Iterator[None]:
    """Wait until no other process migrates. The lock is held by a transaction of its own, which works through poolers;
    it has no snapshot, so concurrent indexes do not wait for it."""
    connect.check_server(server_version)
    with psycopg.connect(connect.conninfo(settings, "migrate turn")) as conn:
        _set(conn, _TURN)
        # A simple query: one with parameters would keep its snapshot, for which a concurrent index waits.
        conn.execute(f"SELECT pg_advisory_xact_lock({zlib.crc32(f'holdfast {settings.schema}'.encode())})".encode())
        yield


class _Run:
    """One run of migrate, in its turn."""

    def __init__(self, conn: Connection, settings: Settings, plan: Plan) -> None:
        self._conn = conn
        self._settings = settings
        self._schema = settings.schema
        self._plan = plan
        self._logged_pid: int | None = None

    def run(self) -> Migrated:
        """Make the schema, or bring it up to date."""
        plan = self._plan
        if plan.found.version is None:
            self._in_transaction(self._install, hold=0)
        else:
            connect.check_schema(plan.found, self._schema, oldest=0)
            self._upgrade()
        return Migrated(plan.to, plan.migrations, plan.functions)

    def _install(self) -> None:
        """Make a new schema in one transaction."""
        _make_schema(self._conn, self._schema)
        self._enter()
        self._conn.execute(f"{_INFO}; {_FILES}".encode())
        plan = self._plan
        self._conn.execute(in_one_transaction(plan.steps(contracts=False)).encode())
        replace_changed(self._conn, self._schema)
        self._conn.execute(in_one_transaction(plan.steps(contracts=True)).encode())
        for each in plan.missing:
            self._conn.execute(_RECORD, [each.number, each.works_with, len(each.steps), True])
        self._conn.execute("SELECT make_partitions()")

    def _upgrade(self) -> None:
        for step in self._plan.steps(contracts=False):
            self._step(step)
        if not self._plan.up_to_date:
            self._in_transaction(self._replace)
        for step in self._plan.steps(contracts=True):
            self._step(step)

    def _replace(self) -> None:
        """Bring functions and views to this release; what was added is complete then."""
        self._enter()
        replace_changed(self._conn, self._schema)
        for each in self._plan.missing:
            if not each.contracts:
                self._conn.execute(_RECORD, [each.number, each.works_with, len(each.steps), True])

    def _step(self, step: MigrationStep) -> None:
        log.info("%s, step %d: %s", step.migration, step.number, step.title)
        if step.alone:
            self._build(step)
        self._in_transaction(lambda: self._apply(step))

    def _apply(self, step: MigrationStep) -> None:
        self._enter()
        if not step.alone:
            self._lock(step)
            self._conn.execute(step.text.encode())
        self._record(step)

    def _lock(self, step: MigrationStep) -> None:
        """Take the locks of a step: wait for the first, and for no other. A call that holds another may wait for it."""
        for number, (table, mode) in enumerate(step.locks.items()):
            self._conn.execute(f"LOCK TABLE {table} IN {mode} MODE{' NOWAIT' if number else ''}".encode())

    def _build(self, step: MigrationStep) -> None:
        """Run a statement outside a transaction. It may wait for open transactions, and none waits for it."""
        if self._settings.pooler:
            raise ConfigurationError(
                f"step {step.number} of {step.migration} ({step.title}) runs outside a transaction, for which it needs "
                "the server itself: for `holdfast migrate`, unset HOLDFAST_POOLER and set HOLDFAST_DSN to the server"
            )
        for setting in (f"search_path TO {self._schema}, pg_temp", "statement_timeout = 0", "lock_timeout = 0"):
            self._conn.execute(f"SET {setting}".encode())
        if step.index and self._conn.execute(_INVALID, [f"{self._schema}.{step.index}"]).fetchone():
            log.warning("index %s is invalid because an earlier run was interrupted; rebuilding it", step.index)
            self._conn.execute(f"DROP INDEX CONCURRENTLY {step.index}".encode())
        self._conn.execute(step.text.encode())

    def _record(self, step: MigrationStep) -> None:
        """Record a step. A contract is complete with its last one; other migrations are when functions are replaced."""
        (of,) = (each for each in self._plan.missing if each.name == step.migration)
        is_last = of.contracts and step.number == len(of.steps)
        self._conn.execute(_RECORD, [of.number, of.works_with, step.number, is_last])

    def _enter(self) -> None:
        _set(self._conn, [f"search_path TO {self._schema}, pg_temp"])

    def _in_transaction(self, work: Callable[[], None], hold: float | None = None) -> None:
        """Do the work in a transaction; repeat it while a lock is not free."""
        until = time.monotonic() + PATIENCE
        for tries in itertools.count():
            begun = time.monotonic()
            try:
                with self._conn.transaction():
                    limit = HOLD if hold is None else hold
                    _set(self._conn, [f"statement_timeout = '{limit}s'", f"lock_timeout = '{LOCK_WAIT}s'", *_RELIED_ON])
                    work()
                return
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
                waited = time.monotonic() - begun >= LOCK_WAIT or tries >= _SHORT_TRIES
                self._give_way(error, waited, until)

    def _give_way(self, error: psycopg.Error, waited: bool, until: float) -> None:
        """Let other transactions proceed for a while, or raise an error after the last try."""
        pid, blocker = _find_blocker(self._conn, self._schema)
        if time.monotonic() > until:
            raise DatabaseUnavailable(
                f"schema {self._schema!r} could not be changed within {PATIENCE:g} s, because {blocker}; nothing was "
                "left half done; run `holdfast migrate` again when it has ended"
            ) from error
        if waited and pid != self._logged_pid:
            log.warning("migrate waits, because %s", blocker)
            self._logged_pid = pid or self._logged_pid
        time.sleep(random.uniform(*(_PAUSE if waited else _SHORT_PAUSE)))


def _set(conn: Connection, settings: Iterable[str]) -> None:
    conn.execute("; ".join(f"SET LOCAL {each}" for each in settings).encode())


def _find_blocker(conn: Connection, schema: str) -> tuple[int | None, str]:
    row = conn.execute(_HOLDERS, [schema]).fetchone()
    if row is None:
        return None, "a lock was not free for a moment"
    pid, application, state, seconds, relation = row
    session = f"pid {pid} ({application or 'no application_name'}, {state or 'of another user'})"
    age = "" if seconds is None else f" in a transaction that has been open for {seconds:.0f} s"
    return pid, f"{session} has locked {schema}.{relation}{age}; to end it: SELECT pg_terminate_backend({pid})"


def _make_schema(conn: Connection, schema: str) -> None:
    """Create the schema. Refuse one with foreign objects: migrate would drop functions that have the name of one of
    ours, and revoke the privileges on all of them."""
    reserved = "SELECT 1 FROM pg_get_keywords() WHERE word = %s AND catcode IN ('R', 'T')"
    if conn.execute(reserved, [schema]).fetchone() is not None:
        raise ConfigurationError(f"schema {schema!r} is a reserved word of SQL; set HOLDFAST_SCHEMA to another name")
    if conn.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]).fetchone() is None:
        conn.execute(f"CREATE SCHEMA {schema}".encode())
    elif (other := _find_other(conn, schema)) is not None:
        raise ConfigurationError(
            f"schema {schema!r} has objects that are not Holdfast's ({other}), and Holdfast needs one of its own; "
            "nothing was changed; set HOLDFAST_SCHEMA to another name"
        )


def _find_other(conn: Connection, schema: str) -> str | None:
    """Return the name of an object in a schema that was never migrated, or None."""
    found = conn.execute(
        "SELECT to_regclass(%(name)s || '.schema_info') IS NOT NULL, coalesce("
        "(SELECT min(oid::regprocedure::text) FROM pg_proc WHERE pronamespace = to_regnamespace(%(name)s)),"
        "(SELECT min(oid::regclass::text) FROM pg_class WHERE relnamespace = to_regnamespace(%(name)s)))",
        {"name": schema},
    ).fetchone()
    return None if found is None or found[0] else found[1]


def _explain(error: psycopg.Error, settings: Settings) -> Exception:
    if error.sqlstate == "42501":
        return ConfigurationError(
            f"the database user may not set up schema {settings.schema!r} ({error}); have an administrator run "
            f"`holdfast migrate` once, or: GRANT CREATE ON DATABASE <database> TO <user>"
        )
    if error.sqlstate == "2BP01":
        return ConfigurationError(
            f"an object of yours depends on one that this release of Holdfast replaces ({error.diag.message_detail}); "
            f"no view or function was changed; drop it, run `holdfast migrate`, and create it again"
        )
    if error.sqlstate == "57014":
        return DatabaseUnavailable(
            f"a statement of migrate ran for longer than {HOLD:g} s with locks that others may need, and was canceled; "
            "nothing was left half done; run `holdfast migrate` again when the server is less busy"
        )
    if error.sqlstate is None or error.sqlstate.startswith(("08", "57", "28", "3D")):
        return connect.explain(error, settings)
    return error
