"""Functions and views, brought to this release's text under running callers.

`create or replace` keeps an object: callers never miss it, and views of the application stay as they are. Where
PostgreSQL refuses that, because a signature or a view's columns have changed:

- a function is renamed, and the new one takes its name. A caller that has looked up the old one still finds it; the
  next change drops it. There is one function of each name, so its new parameters have defaults, or older callers fail.
- views are dropped and recreated in the same transaction, those of the application too (dependants.py).

A function or view whose file is gone stays: older releases may call it. A contract migration drops it by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg import errors as pg

from holdfast.store.dependants import drop_dependants, recreate_dependants
from holdfast.store.migrations import KNOWN, checksum, replaceable, sql_text

Connection = psycopg.Connection[Any]
_FIRST = (
    "views/jobs.sql",
    "views/limit_state.sql",
    "views/limit_use.sql",
    "views/outbox.sql",
    "views/worker_tick_metrics.sql",
)  # other views depend on these
_OIDS = "SELECT oid::bigint FROM pg_proc WHERE proname = %s AND pronamespace = current_schema()::regnamespace"
_ASIDE = "aside/"  # in schema_files: a function that was renamed


class _SignatureChanged(Exception):
    """A function has another signature, so `create or replace` made a second one."""


def replace_changed(conn: Connection, schema: str) -> list[str]:
    """Apply the functions and views whose text has changed, and the grants; return their files."""
    files = replaceable()
    known = dict(conn.execute(KNOWN.format(schema=schema).encode()).fetchall())
    changed = sorted(
        (name for name in files if known.get(name) != checksum(files[name])),
        key=lambda name: (name.startswith("views/"), name not in _FIRST, name),
    )
    if changed:
        _drop_renamed(conn)
        try:
            with conn.transaction():
                _in_place(conn, changed, files)
        except (_SignatureChanged, pg.InvalidFunctionDefinition, pg.InvalidTableDefinition):
            _recreate(conn, schema, changed, files)
        _note(conn, changed, files)
        conn.execute(sql_text("grants.sql").encode())
    return changed


def _in_place(conn: Connection, changed: Iterable[str], files: dict[str, str]) -> None:
    for name in changed:
        before = _oids(conn, name)
        conn.execute(files[name].encode())
        if before and _oids(conn, name) != before:
            raise _SignatureChanged(name)


def _recreate(conn: Connection, schema: str, changed: Iterable[str], files: dict[str, str]) -> None:
    """Rename functions that cannot be replaced, and recreate all views, which may use them."""
    views = [name for name in files if name.startswith("views/")]
    dependants = drop_dependants(conn, schema, [_name(each) for each in views])
    conn.execute(f"DROP VIEW IF EXISTS {', '.join(_name(each) for each in views)}".encode())
    for name in changed:
        if name.startswith("functions/"):
            _apply_function(conn, name, files[name])
    for name in sorted(views, key=lambda name: (name not in _FIRST, name)):
        conn.execute(files[name].encode())
    recreate_dependants(conn, dependants)


def _apply_function(conn: Connection, name: str, text: str) -> None:
    before = _oids(conn, name)
    try:
        with conn.transaction():
            conn.execute(text.encode())
            if before and _oids(conn, name) != before:
                raise _SignatureChanged(name)
    except (_SignatureChanged, pg.InvalidFunctionDefinition):
        for oid in before:
            _rename_old(conn, _name(name), oid)
        conn.execute(text.encode())


def _rename_old(conn: Connection, name: str, oid: int) -> None:
    row = conn.execute("SELECT %s::regprocedure::text", [oid]).fetchone()
    conn.execute(f"ALTER FUNCTION {row[0] if row else name} RENAME TO {(aside := f'old_{name}_{oid}')}".encode())
    conn.execute("INSERT INTO schema_files VALUES (%s, '')", [_ASIDE + aside])


def _drop_renamed(conn: Connection) -> None:
    """Drop the functions that an earlier change has renamed: no caller finds them any more."""
    found = conn.execute("DELETE FROM schema_files WHERE starts_with(name, %s) RETURNING name", [_ASIDE]).fetchall()
    for (name,) in found:
        conn.execute(f"DROP FUNCTION IF EXISTS {name.removeprefix(_ASIDE)}".encode())


def _note(conn: Connection, changed: Iterable[str], files: dict[str, str]) -> None:
    sql = "INSERT INTO schema_files VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum"
    for name in changed:
        conn.execute(sql, [name, checksum(files[name])])


def _oids(conn: Connection, name: str) -> set[int]:
    """Return the functions of a file's name; none for a view."""
    return {oid for (oid,) in conn.execute(_OIDS, [_name(name)])} if name.startswith("functions/") else set()


def _name(file: str) -> str:
    return file.removesuffix(".sql").partition("/")[2]
