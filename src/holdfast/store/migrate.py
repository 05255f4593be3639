"""Brings a database's schema to this release: numbered migrations once, functions and views whenever they changed.

Everything happens in one transaction under one advisory lock, so many processes may migrate at once and a failure
leaves nothing half done. SQL files carry no schema name: search_path says where they apply, and functions keep it
(`set search_path from current`).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import psycopg

from holdfast.errors import ConfigurationError
from holdfast.settings import Settings
from holdfast.store import connect
from holdfast.store.dependants import come_back, make_way

Connection = psycopg.Connection[Any]
_FIRST = ("views/jobs.sql", "views/outbox.sql", "views/worker_tick_metrics.sql")  # other views are made of them


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a run of migrate did."""

    version: int
    migrations: list[str]
    functions: list[str]


def migrate(settings: Settings) -> Migrated:
    """Applies what is missing; nothing when the schema is up to date."""
    try:
        with psycopg.connect(connect.conninfo(settings, "migrate"), autocommit=False) as conn:
            connect.check_server(conn.info.server_version)
            conn.execute("SET LOCAL statement_timeout = 0")
            return _apply(conn, settings.schema)
    except psycopg.Error as error:
        raise _explain(error, settings) from error


def expected_version() -> int:
    """The schema version this release works with: the number of its last migration."""
    return int(list(_files("migrations"))[-1][0][:4])


def found_version(conn: Connection, schema: str) -> int | None:
    """The schema version of a database, None where there is none."""
    row = conn.execute("SELECT to_regclass(%s)", [f"{schema}.schema_info"]).fetchone()
    if row is None or row[0] is None:
        return None
    found = conn.execute(f"SELECT max(version) FROM {schema}.schema_info").fetchone()
    return None if found is None else found[0]


def _apply(conn: Connection, schema: str) -> Migrated:
    conn.execute("SELECT pg_advisory_xact_lock(%s)", [zlib.crc32(f"holdfast {schema}".encode())])
    if conn.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]).fetchone() is None:
        conn.execute(f"CREATE SCHEMA {schema}".encode())
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


def _migrate(conn: Connection, found: int) -> Iterator[str]:
    for name, text in _files("migrations"):
        number = int(name[:4])
        if number > found:
            conn.execute(text.encode())
            conn.execute("INSERT INTO schema_info VALUES (%s, now())", [number])
            yield name


def _replace(conn: Connection, schema: str) -> Iterator[str]:
    """Drops and recreates functions and views whose text has changed; drops those whose file is gone. Views that others
    have made of them come back."""
    known = dict(conn.execute("SELECT name, checksum FROM schema_files").fetchall())
    files = {f"{kind}/{name}": text for kind in ("functions", "views") for name, text in _files(kind)}
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    changed = [name for name in files if known.get(name) != sums[name]]
    gone = [name for name in known if name not in files]
    if not changed and not gone:
        return
    # Views may use functions, so all views make way and come back.
    changed += [name for name in files if name.startswith("views/") and name not in changed]
    views = [_name(name) for name in [*changed, *gone] if name.startswith("views/")]
    others = make_way(conn, schema, views)
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
    come_back(conn, others)


def _name(file: str) -> str:
    return file.removesuffix(".sql").partition("/")[2]


def _drop_function(conn: Connection, name: str) -> None:
    overloads = (
        "SELECT oid::regprocedure::text FROM pg_proc "
        "WHERE proname = %s AND pronamespace = current_schema()::regnamespace"
    )
    for (signature,) in conn.execute(overloads, [name]).fetchall():
        conn.execute(f"DROP FUNCTION {signature}".encode())


def _files(kind: str) -> Iterator[tuple[str, str]]:
    folder = resources.files("holdfast") / "sql" / kind
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
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
            f"something of yours is made of what this release of Holdfast replaces ({error.diag.message_detail}); "
            f"nothing was changed; drop it, run `holdfast migrate`, and make it again"
        )
    if error.sqlstate is None or error.sqlstate.startswith(("08", "57", "28", "3D")):
        return connect.explain(error, settings)
    return error
