"""Bring a database's schema to this release: numbered migrations once, functions and views whenever they changed.

Everything happens in one transaction under one advisory lock, so many processes may migrate at once and a failure
leaves nothing half done. SQL files contain no schema name: search_path sets it, and functions keep it (`set search_path
from current`).

A statement that waits for a lock blocks all later ones. So migrate waits only LOCK_WAIT, then releases its locks and
tries again later, until PATIENCE is over.
"""

from __future__ import annotations

import hashlib
import logging
import random
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import psycopg

from holdfast.errors import ConfigurationError, DatabaseUnavailable
from holdfast.settings import Settings
from holdfast.store.dependants import come_back, make_way
from holdfast.store.wire import connect
from holdfast.store.wire.opener import READ_COMMITTED

Connection = psycopg.Connection[Any]
log = logging.getLogger("holdfast.migrate")
LOCK_WAIT = 0.5  # seconds that other transactions may wait behind migrate
PATIENCE = 60.0  # seconds after which a lock held elsewhere is an error
_PAUSE = (1.0, 3.0)  # seconds between tries, for other transactions to proceed
# Transactions that hold locks which migrate may need, oldest first.
_HOLDERS = """
SELECT a.pid, a.application_name, a.state, extract(epoch FROM clock_timestamp() - a.xact_start)::float8,
       min(c.relname::text)
FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND c.relnamespace = to_regnamespace(%s) AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
GROUP BY a.pid, a.application_name, a.state, a.xact_start ORDER BY a.xact_start LIMIT 1
"""
_RELIED_ON = ("statement_timeout = 0", "lock_timeout = 0", "standard_conforming_strings = on", "datestyle = 'ISO'")
_FIRST = (
    "views/jobs.sql",
    "views/limit_state.sql",
    "views/limit_use.sql",
    "views/outbox.sql",
    "views/worker_tick_metrics.sql",
)  # other views depend on these


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a run of migrate did."""

    version: int
    migrations: list[str]
    functions: list[str]


def migrate(settings: Settings) -> Migrated:
    """Apply what is missing; do nothing if the schema is up to date."""
    try:
        with psycopg.connect(connect.conninfo(settings, "migrate"), autocommit=True) as conn:
            connect.check_server(conn.info.server_version)
            conn.isolation_level = READ_COMMITTED
            return _try(conn, settings.schema, time.monotonic() + PATIENCE)
    except psycopg.Error as error:
        raise _explain(error, settings) from error


def _try(conn: Connection, schema: str, until: float) -> Migrated:
    logged_pid = None
    while True:
        try:
            with conn.transaction():
                return _apply(conn, schema)
        except psycopg.errors.LockNotAvailable as error:
            pid, blocker = _find_blocker(conn, schema)
            if time.monotonic() > until:
                raise DatabaseUnavailable(
                    f"schema {schema!r} could not be changed within {PATIENCE:g} s, because {blocker}; nothing was "
                    "changed; run `holdfast migrate` again when it has ended"
                ) from error
            if pid != logged_pid:
                log.warning("migrate waits, because %s", blocker)
            logged_pid = pid or logged_pid
            time.sleep(random.uniform(*_PAUSE))


def _find_blocker(conn: Connection, schema: str) -> tuple[int | None, str]:
    row = conn.execute(_HOLDERS, [schema]).fetchone()
    if row is None:
        return None, "a lock was not free for a moment"
    pid, application, state, seconds, relation = row
    session = f"pid {pid} ({application or 'no application_name'}, {state or 'of another user'})"
    age = "" if seconds is None else f" in a transaction that has been open for {seconds:.0f} s"
    return pid, f"{session} has locked {schema}.{relation}{age}; to end it: SELECT pg_terminate_backend({pid})"


def expected_version() -> int:
    """Return the schema version of this release: the number of its last migration."""
    return int(list(sql_files("migrations"))[-1][0][:4])


def found_version(conn: Connection, schema: str) -> int | None:
    """Return the schema version of a database, or None."""
    row = conn.execute("SELECT to_regclass(%s)", [f"{schema}.schema_info"]).fetchone()
    if row is None or row[0] is None:
        return None
    found = conn.execute(f"SELECT max(version) FROM {schema}.schema_info").fetchone()
    return None if found is None else found[0]


def _apply(conn: Connection, schema: str) -> Migrated:
    for setting in _RELIED_ON:
        conn.execute(f"SET LOCAL {setting}".encode())
    conn.execute("SELECT pg_advisory_xact_lock(%s)", [zlib.crc32(f"holdfast {schema}".encode())])
    # A process that waits above for another migrate holds no locks, so the timeout starts here.
    conn.execute(f"SET LOCAL lock_timeout = {int(LOCK_WAIT * 1000)}".encode())
    _make_schema(conn, schema)
    conn.execute(f"SET LOCAL search_path TO {schema}, pg_temp".encode())
    conn.execute("SET LOCAL check_function_bodies = off")
    conn.execute(
        "CREATE TABLE IF NOT EXISTS schema_info (version integer PRIMARY KEY, applied_at timestamptz NOT NULL)"
    )
    conn.execute("CREATE TABLE IF NOT EXISTS schema_files (name text PRIMARY KEY, checksum text NOT NULL)")
    found = found_version(conn, schema) or 0
    if found > expected_version():
        connect.check_schema(found, expected_version(), schema)
    done = Migrated(expected_version(), list(_migrate(conn, found)), list(_replace(conn, schema)))
    if done.migrations or done.functions:
        conn.execute(_text("grants.sql").encode())
        conn.execute("SELECT make_partitions()")
    return done


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


def _migrate(conn: Connection, found: int) -> Iterator[str]:
    for name, text in sql_files("migrations"):
        number = int(name[:4])
        if number > found:
            conn.execute(text.encode())
            conn.execute("INSERT INTO schema_info VALUES (%s, now())", [number])
            yield name


def _replace(conn: Connection, schema: str) -> Iterator[str]:
    """Recreate functions and views whose text has changed, and drop those whose file is gone. Dependent views of the
    application are recreated."""
    known = dict(conn.execute("SELECT name, checksum FROM schema_files").fetchall())
    files = {f"{kind}/{name}": text for kind in ("functions", "views") for name, text in sql_files(kind)}
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    changed = [name for name in files if known.get(name) != sums[name]]
    gone = [name for name in known if name not in files]
    if not changed and not gone:
        return
    # Views may use functions, so all views are dropped and recreated.
    changed += [name for name in files if name.startswith("views/") and name not in changed]
    views = [_name(name) for name in [*changed, *gone] if name.startswith("views/")]
    dependants = make_way(conn, schema, views)
    conn.execute(f"DROP VIEW IF EXISTS {', '.join(views)}".encode())
    for name in [*changed, *gone]:
        if name.startswith("functions/"):
            _drop_function(conn, _name(name))
    for name in sorted(changed, key=lambda n: (n.startswith("views/"), n not in _FIRST, n)):
        conn.execute(files[name].encode())
        conn.execute(
            "INSERT INTO schema_files VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum",
            [name, sums[name]],
        )
        yield name
    conn.execute("DELETE FROM schema_files WHERE name = ANY(%s)", [gone])
    come_back(conn, dependants)


def _name(file: str) -> str:
    return file.removesuffix(".sql").partition("/")[2]


def _drop_function(conn: Connection, name: str) -> None:
    overloads = (
        "SELECT oid::regprocedure::text FROM pg_proc "
        "WHERE proname = %s AND pronamespace = current_schema()::regnamespace"
    )
    for (signature,) in conn.execute(overloads, [name]).fetchall():
        conn.execute(f"DROP FUNCTION {signature}".encode())


def sql_files(kind: str) -> Iterator[tuple[str, str]]:
    """Return the name and text of each file of a kind, by name. Functions are in a folder for each noun."""
    folder = resources.files("holdfast") / "sql" / kind
    entries = [file for entry in folder.iterdir() for file in (entry.iterdir() if entry.is_dir() else [entry])]
    for entry in sorted(entries, key=lambda e: e.name):
        if entry.name.endswith(".sql"):
            yield entry.name, entry.read_text(encoding="utf-8")


def _text(name: str) -> str:
    return (resources.files("holdfast") / "sql" / name).read_text(encoding="utf-8")


def _explain(error: psycopg.Error, settings: Settings) -> Exception:
    if error.sqlstate == "42501":
        return ConfigurationError(
            f"the database user may not set up schema {settings.schema!r} ({error}); have an administrator run "
            f"`holdfast migrate` once, or: GRANT CREATE ON DATABASE <database> TO <user>"
        )
    if error.sqlstate == "2BP01":
        return ConfigurationError(
            f"an object of yours depends on one that this release of Holdfast replaces ({error.diag.message_detail}); "
            f"nothing was changed; drop it, run `holdfast migrate`, and create it again"
        )
    if error.sqlstate is None or error.sqlstate.startswith(("08", "57", "28", "3D")):
        return connect.explain(error, settings)
    return error
