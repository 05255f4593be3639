"""`holdfast migrate`: create or update the database's schema."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import render
from holdfast.cli.options import AsJson, Dsn, Schema
from holdfast.settings import Settings
from holdfast.store.doctor import Pending, find_pending
from holdfast.store.migrate import Migrated
from holdfast.store.migrate import migrate as apply
from holdfast.store.wire import connect
from holdfast.store.wire.session import ThreadSession


def migrate(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 when something is missing.")] = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Create or update the schema; does nothing when it is up to date."""
    settings = Settings.load(dsn=dsn, schema=schema)
    if not check:
        _report_done(settings, apply(settings), as_json)
    elif not _report_pending(settings, look(settings), as_json):
        raise typer.Exit(1)


def look(settings: Settings) -> Pending:
    """Return what is missing; raise SchemaError if the schema is newer than this release."""
    session = ThreadSession(settings, "migrate")
    try:
        pending = find_pending(session, settings.schema)
    finally:
        session.close()
    if pending.found is not None and pending.found > pending.expected:
        connect.check_schema(pending.found, pending.expected, settings.schema)
    return pending


def _report_done(settings: Settings, done: Migrated, as_json: bool) -> None:
    if as_json:
        render.emit_json(
            {
                "schema": settings.schema,
                "version": done.version,
                "migrations": done.migrations,
                "functions": done.functions,
            }
        )
        return
    what = _named(done.migrations, done.functions)
    state = f"applied {what}" if what else "up to date"
    render.echo(f"schema {settings.schema} is at version {done.version}: {state}")


def _report_pending(settings: Settings, pending: Pending, as_json: bool) -> bool:
    if as_json:
        render.emit_json(
            {
                "schema": settings.schema,
                "version": pending.found,
                "expected": pending.expected,
                "up_to_date": pending.up_to_date,
                "migrations": pending.migrations,
                "functions": pending.functions,
            }
        )
    elif pending.up_to_date:
        render.echo(f"schema {settings.schema} is at version {pending.found}: up to date")
    else:
        what = _named(pending.migrations, pending.functions)
        render.echo(f"schema {settings.schema} lacks {what}; run: holdfast migrate", "yellow")
    return pending.up_to_date


def _named(migrations: list[str], functions: list[str]) -> str:
    return ", ".join([*migrations, *([f"{len(functions)} functions and views"] if functions else [])])
