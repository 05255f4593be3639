"""`holdfast dead blocks` and `dead unblock`: keys that handlers found blocked, until a person acts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.database import Database
from holdfast.cli.options import AsJson, Yes
from holdfast.errors import UsageError
from holdfast.model.job import BlockInfo


def list_blocks(db: Database, as_json: AsJson = False) -> None:
    """List blocked keys: raise Dead(..., block=KEY) in a handler adds a key (a domain, an account)."""
    found = db.run(db.calls.dead.blocks())
    if as_json:
        render.emit_json(found)
        return
    columns = ("key", "~reason", "#count", "first seen", "last seen", "last job")
    render.show_rows(columns, map(_row, found), head=2, empty="no key is blocked")


def _row(block: BlockInfo) -> tuple[Any, ...]:
    reason = " ".join((block.reason or "").split())
    return (block.key, reason, block.count, block.first_seen, block.last_seen, block.last_job)


def unblock(
    db: Database,
    key: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Keys as listed, or --all.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All keys on the list.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove keys from the list of blocks; a job that finds one blocked again adds it back."""
    if every == bool(key):
        raise UsageError("give either keys, as listed by `holdfast dead blocks`, or --all")
    keys = [each.key for each in db.run(db.calls.dead.blocks())] if every else list(dict.fromkeys(key or []))
    if every and keys and not yes:
        typer.confirm(f"unblock {render.plural(len(keys), 'key')}?", abort=True, err=True)
    cleared = db.run(db.calls.dead.clear_blocks(keys))
    gone = set(cleared)
    _report([each for each in keys if each in gone], [each for each in keys if each not in gone], as_json)


def _report(gone: list[str], left: list[str], as_json: bool) -> None:
    if as_json:
        render.emit_json({"unblocked": len(gone), "left": len(left), "keys": gone, "left_keys": left})
    else:
        render.echo(f"unblocked {render.plural(len(gone), 'key')}")
    if left:
        render.note(f"not on the list: {', '.join(left[:5])}{' ...' if len(left) > 5 else ''}", "yellow")
        raise typer.Exit(1)
