"""`holdfast doctor`: check for common problems and suggest remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.options import AsJson, Dsn, Schema

if TYPE_CHECKING:
    from holdfast.cli.checks import Check


def doctor(
    as_json: AsJson = False,
    max_age: Annotated[
        float,
        typer.Option(
            "--max-age", min=0, metavar="SECONDS", help="Warn of transactions that have been open for longer."
        ),
    ] = 300.0,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Check versions, database, rights, durability, vacuum and workers; exit 1 on any error."""
    from holdfast.cli.checks import ERROR, examine

    found: list[Check] = []
    for check in examine(dsn, schema, max_age):
        found.append(check)
        if not as_json:
            _show(check)
    failed = any(check.level == ERROR for check in found)
    if as_json:
        render.emit_json({"ok": not failed, "checks": found})
    else:
        _sum_up([check.level for check in found])
    if failed:
        raise typer.Exit(1)


def _show(check: Check) -> None:
    head = Text.assemble((f"{check.level:<8}", render.COLOURS[check.level]), (f"{check.name:<13}", "bold"))
    render.show_wrapped(Text(render.printable(check.found)), first=head, then=" " * len(head))
    if check.advice:
        render.show_wrapped(Text(render.printable(check.advice)), first=f"{'':<21}-> ", then=" " * 24)


def _sum_up(levels: list[str]) -> None:
    errors, warnings = levels.count("error"), levels.count("warning")
    if errors or warnings:
        render.echo(f"\n{render.plural(errors, 'error')}, {render.plural(warnings, 'warning')}", "bold")
    else:
        render.echo("\nno problems found", "bold green")
