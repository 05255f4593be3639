"""`holdfast migrate`: create the schema, bring it to this release, or show what that would do."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli import render
from holdfast.cli.options import AsJson, Dsn, Schema
from holdfast.settings import Settings
from holdfast.store.call import Call
from holdfast.store.migrate import LOCK_WAIT, PATIENCE, Migrated
from holdfast.store.migrate import migrate as apply
from holdfast.store.plan import Plan, PlanPart, make_plan
from holdfast.store.wire import connect
from holdfast.store.wire.session import ThreadSession


def migrate(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 when something is missing.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Change nothing; show the steps, and what each locks for how long.")
    ] = False,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="VERSION", help="The schema version to go to. Default: that of this release."),
    ] = None,
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Create or update the schema, while processes of other releases work; does nothing when it is up to date."""
    settings = Settings.load(dsn=dsn, schema=schema)
    if plan:
        _show(settings, look(settings, to), as_json)
    elif not check:
        _report_done(settings, apply(settings, to), as_json)
    elif not _report_pending(settings, look(settings, to), as_json):
        raise typer.Exit(1)


def look(settings: Settings, to: int | None = None) -> Plan:
    """Return what is missing; raise SchemaError if the schema does not work with this release."""
    session = ThreadSession(settings, "migrate")
    try:
        plan = make_plan(lambda sql: session.run(Call(sql, (), list)), settings.schema, to)
    finally:
        session.close()
    if plan.found.version is not None:
        connect.check_schema(plan.found, settings.schema, oldest=0)
    return plan


def _show(settings: Settings, plan: Plan, as_json: bool) -> None:
    if as_json:
        parts = [{"title": each.title, "locks": each.locks, "at_most": each.at_most} for each in plan.parts()]
        render.emit_json({**_pending(settings, plan), "to": plan.to, "works_with": plan.works_with, "steps": parts})
    elif plan.up_to_date:
        render.echo(f"schema {settings.schema} is at version {plan.found.version}: nothing to do")
    elif plan.found.version is None:
        render.echo(f"schema {settings.schema} is created at version {plan.to}, in one transaction")
    else:
        _show_parts(settings, plan)


def _show_parts(settings: Settings, plan: Plan) -> None:
    render.echo(f"schema {settings.schema} is at version {plan.found.version} and goes to {plan.to}")
    for number, part in enumerate(plan.parts(), 1):
        render.echo(f"{number:3}. {part.title}")
        render.echo(f"     {_locks(part)}")
    render.echo(f"it waits {LOCK_WAIT:g} s for a lock, then lets others pass and tries again, up to {PATIENCE:g} s")
    render.echo(f"processes that know schema {plan.works_with} or later work meanwhile and afterwards")


def _locks(part: PlanPart) -> str:
    if not part.locks:
        return "locks no table"
    by_mode: dict[str, list[str]] = {}
    for table, mode in part.locks.items():
        by_mode.setdefault(mode, []).append(table)
    what = "; ".join(f"{', '.join(tables)} ({mode})" for mode, tables in by_mode.items())
    if part.at_most is None:
        return f"locks {what} as long as it runs, outside a transaction: reads and writes continue"
    return f"locks {what} for at most {part.at_most:g} s a statement"


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


def _report_pending(settings: Settings, plan: Plan, as_json: bool) -> bool:
    if as_json:
        render.emit_json(_pending(settings, plan))
    elif plan.up_to_date:
        render.echo(f"schema {settings.schema} is at version {plan.found.version}: up to date")
    else:
        what = _named(plan.migrations, plan.functions)
        render.echo(f"schema {settings.schema} lacks {what}; run: holdfast migrate", "yellow")
    return plan.up_to_date


def _pending(settings: Settings, plan: Plan) -> dict[str, object]:
    return {
        "schema": settings.schema,
        "version": plan.found.version,
        "expected": plan.expected,
        "up_to_date": plan.up_to_date,
        "migrations": plan.migrations,
        "functions": plan.functions,
    }


def _named(migrations: list[str], functions: list[str]) -> str:
    return ", ".join([*migrations, *([f"{len(functions)} functions and views"] if functions else [])])
