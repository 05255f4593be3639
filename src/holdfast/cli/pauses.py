"""`holdfast pause` and `holdfast resume`: pause and resume a queue, a task, a tenant or a limit's key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import render
from holdfast.cli.limits import warn_of_unknown
from holdfast.cli.options import AsJson, Author, seconds

if TYPE_CHECKING:
    from holdfast.client import Holdfast

Key = Annotated[
    str, typer.Argument(metavar="KEY", help="queue:NAME, task:NAME, tenant:NAME, or a limit's key: domain:example.org.")
]


def pause(
    hf: Holdfast,
    key: Key,
    *,
    length: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Resume after 90s, 10m, 1h30m ... Default: until resumed."),
    ] = None,
    author: Author,
    as_json: AsJson = False,
) -> None:
    """Pause a queue, a task, a tenant or a limit's key.

    It takes effect at once. Running jobs continue; waiting ones keep their
    place and their attempts.
    """
    lasts = None if length is None else seconds(length, "--for")
    warn_of_unknown(hf, key)
    new = hf.limits.pause(key, for_=lasts, **author)
    if as_json:
        render.emit_json({"key": key, "outcome": "paused" if new else "paused again", "seconds": lasts})
        return
    until = "until it is resumed" if lasts is None else f"for {render.duration(lasts)}"
    render.echo(f"{key} is paused {until}{'' if new else '; it was paused before'}")
    render.note(f"to resume: holdfast resume {key}")


def resume(hf: Holdfast, key: Key, author: Author, as_json: AsJson = False) -> None:
    """Resume what was paused, at once; exit 1 when it was not paused."""
    was = hf.limits.resume(key, **author)
    paused = [] if was else [each.key for each in hf.limits.list(limit=10_000, busy=True) if each.paused]
    if as_json:
        render.emit_json({"key": key, "outcome": "resumed" if was else "not paused"})
    elif was:
        render.echo(f"{key} is resumed")
    if not was:
        known = f"; paused: {', '.join(paused[:5])}{' ...' if len(paused) > 5 else ''}" if paused else ""
        render.note(f"{key} was not paused{known}", "yellow")
        raise typer.Exit(1)
