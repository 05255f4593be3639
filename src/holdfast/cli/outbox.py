"""`holdfast outbox`: list, show and retry messages."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.commands import Commands
from holdfast.cli.database import Database, job_ids
from holdfast.cli.options import AsJson, Limit, TenantOnly, Yes
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.job import parse_id
from holdfast.model.outbox import PREFIX, MessageInfo
from holdfast.store.jobs import Filter
from holdfast.store.outbox import MessageFilter
from holdfast.store.select import Page

PAGE = 500

group = Commands(invoke_without_command=True)


class MessageStatus(enum.StrEnum):
    """The delivery status of a message."""

    PENDING = "pending"
    DELIVERING = "delivering"
    DELIVERED = "delivered"
    FAILED = "failed"
    DEAD = "dead"
    CANCELED = "canceled"


ChannelOnly = Annotated[str | None, typer.Option("--channel", metavar="NAME", help="Only messages of this channel.")]
StatusOnly = Annotated[MessageStatus | None, typer.Option("--status", help="Only messages with this status.")]
KeyOnly = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only messages with this key.")]
OrderOnly = Annotated[str | None, typer.Option("--order", metavar="ORDER", help="Only messages of this order.")]
IdOrKey = Annotated[str, typer.Argument(metavar="ID|KEY", help="The message's id, its idempotency key or its key.")]
SomeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Message ids, or --all.")]
All = Annotated[bool, typer.Option("--all", help="All failed and dead ones that match the options below.")]


@group.listing(epilog="Example: holdfast outbox --channel email --status dead --limit 20")
def list_messages(
    db: Database,
    *,
    channel: ChannelOnly = None,
    status: StatusOnly = None,
    tenant: TenantOnly = None,
    key: KeyOnly = None,
    order: OrderOnly = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest messages of the outbox; show them, and deliver failed ones again."""
    where = MessageFilter(channel=channel, status=status and str(status), tenant=tenant, key=key, order=order)
    found = db.run(db.calls.outbox.list(where, Page(limit=limit))).rows
    if as_json:
        render.emit_json(found)
        return
    columns = ("id", "status", "channel", "~key", "~tenant", "~order", "#tries", "emitted", "delivered", "~last error")
    render.show_rows(columns, map(_row, found), head=4, empty="no messages match")
    if len(found) == limit:
        render.note(f"these are the newest {limit}; --limit shows more")


def _row(it: MessageInfo) -> tuple[Any, ...]:
    return (it.id, it.status, it.channel, it.key, it.tenant, it.order, f"{it.attempts}/{it.max_attempts}",
            it.created_at, it.delivered_at, render.error_line(it.error))  # fmt: skip


@group.command(epilog="Example: holdfast outbox show email/acme/invoice-42")
def show(db: Database, message: IdOrKey, as_json: AsJson = False) -> None:
    """Show everything about one message."""
    it = _find(db, message)
    if as_json:
        render.emit_json(it)
    else:
        _show(it)


def _find(db: Database, text: str) -> MessageInfo:
    """Return a message by id, by idempotency key, or by a unique key."""
    try:
        found = [db.run(db.calls.outbox.get(parse_id(text)))]
    except UsageError:
        found = [db.run(db.calls.outbox.find(text))]
        if found == [None]:
            found = [*db.run(db.calls.outbox.list(MessageFilter(key=text), Page(limit=10))).rows]
    if len(found) > 1:
        names = ", ".join(each.idempotency_key for each in found if each is not None)
        raise UsageError(f"several messages have the key {text!r}; give an idempotency key: {names}")
    if not found or found[0] is None:
        raise HoldfastError(
            f"there is no message {text!r} in schema {db.settings.schema!r}; delivered ones are pruned with history"
        )
    return found[0]


def _show(it: MessageInfo) -> None:
    error = dict(it.error or {})
    trace = str(error.pop("traceback", "")).rstrip()
    render.show_fields({
        "id": it.id, "status": it.status, "channel": it.channel, "key": it.key, "tenant": it.tenant, "order": it.order,
        "idempotency key": it.idempotency_key, "attempts": f"{it.attempts} of {it.max_attempts}",
        "payload": it.payload, "queue": it.queue, "emitted": it.created_at,
        "next attempt": it.run_at if it.status == "pending" else None, "delivered": it.delivered_at,
        "ended": None if it.delivered_at else it.finished_at, "maybe sent": _maybe_sent(it),
        "last error": render.error_line(error) or None, "error code": error.get("code"),
    })  # fmt: skip
    if trace:
        render.echo(f"\n{trace}")


def _maybe_sent(it: MessageInfo) -> str | None:
    if it.status == "delivered":
        return None
    return "yes: an attempt began and did not report that it sent nothing" if it.maybe_sent else "no"


@group.command(epilog="Example: holdfast outbox retry --all --channel email --yes")
def retry(
    db: Database,
    id_: SomeIds = None,
    *,
    every: All = False,
    channel: ChannelOnly = None,
    tenant: TenantOnly = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Deliver failed and dead messages again, with fresh attempts; handlers see that they may have been sent."""
    if every == bool(id_):
        raise UsageError("give either the ids of messages to retry, or --all with or without filters")
    if id_ and (channel or tenant):
        raise UsageError("filters go with --all, not with ids")
    known, unknown = _known(db, job_ids(id_ or []))
    pages = iter([known]) if id_ else _dead(db, channel, tenant, yes)
    total = 0
    ids: list[str] = []
    for page in pages:
        total += len(page)
        back = db.run(db.calls.dead.retry(page))
        ids += back
    _report(total, ids, unknown, as_json)


def _known(db: Database, ids: list[str]) -> tuple[list[str], list[str]]:
    """Split ids into those of messages and other ones; jobs that are no messages must not be retried here."""
    there = {each: db.run(db.calls.outbox.get(each)) is not None for each in ids}
    return [each for each in there if there[each]], [each for each in there if not there[each]]


def _dead(db: Database, channel: str | None, tenant: str | None, yes: bool) -> Iterator[list[str]]:
    """Yield ids in ascending order, so that a message that dies again meanwhile is not taken twice."""
    where = Filter(task=channel and PREFIX + channel, task_prefix=PREFIX, tenant=tenant)
    total = db.run(db.calls.dead.count(where))
    if total and not yes:
        typer.confirm(f"retry {render.plural(total, 'message')}?", abort=True, err=True)
    after: str | None = None
    while page := db.run(db.calls.dead.ids(where, Page(limit=PAGE, after=after, order="oldest"))):
        yield page
        after = page[-1]


def _report(total: int, ids: list[str], unknown: list[str], as_json: bool) -> None:
    left = total - len(ids)
    if as_json:
        render.emit_json({"retried": len(ids), "left": left + len(unknown), "ids": ids})
    elif total or unknown:
        render.echo(f"retried {render.plural(len(ids), 'message')}")
    else:
        render.echo("no failed or dead messages match")
    for each in unknown:
        render.note(f"there is no message {each}; delivered ones are pruned with history", "yellow")
    if left:
        render.note(f"skipped {render.plural(left, 'message')}: neither failed nor dead", "yellow")
    if left or unknown:
        raise typer.Exit(1)
