"""`holdfast outbox`: list, show and retry messages."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.act import Selection, act
from holdfast.cli.commands import Commands
from holdfast.cli.options import AsJson, By, Limit, Reason, TenantOnly, Yes, check_selection, checked_ids
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.action import Where
from holdfast.model.outbox import PREFIX, MessageInfo

if TYPE_CHECKING:
    from holdfast.client import Holdfast

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
    hf: Holdfast,
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
    text = status and str(status)
    found = hf.outbox.list(channel=channel, status=text, tenant=tenant, key=key, order=order, limit=limit)
    columns = (
        "id, status, channel, ~key, ~tenant, ~order, #tries, emitted=created_at, delivered=delivered_at, ~last error"
    )
    render.show_list(found, columns, _more, as_json=as_json, head=4, empty="no messages match", limit=limit)


def _more(it: MessageInfo) -> dict[str, Any]:
    return {"tries": f"{it.attempts}/{it.max_attempts}", "last error": render.error_line(it.error)}


@group.command(epilog="Example: holdfast outbox show email/acme/invoice-42")
def show(hf: Holdfast, message: IdOrKey, as_json: AsJson = False) -> None:
    """Show everything about one message."""
    found = hf.outbox.find(message)
    if len(found) > 1:
        names = ", ".join(each.idempotency_key for each in found)
        raise UsageError(f"several messages have the key {message!r}; give an idempotency key: {names}")
    if not found:
        raise HoldfastError(
            f"there is no message {message!r} in schema {hf.settings.schema!r}; delivered ones are pruned with history"
        )
    if as_json:
        render.emit_json(found[0])
    else:
        _show(found[0])


def _show(it: MessageInfo) -> None:
    error = dict(it.error or {})
    trace = str(error.pop("traceback", "")).rstrip()
    names = (
        "id, status, channel, key, tenant, order, idempotency key, attempts, payload, queue, emitted=created_at, "
        "next attempt, delivered=delivered_at, ended, maybe sent, last error, error code"
    )
    more = {
        "attempts": f"{it.attempts} of {it.max_attempts}",
        "next attempt": it.run_at if it.status == "pending" else None,
        "ended": None if it.delivered_at else it.finished_at,
        "maybe sent": _maybe_sent(it),
        "last error": render.error_line(error) or None,
        "error code": error.get("code"),
    }
    render.show_fields(render.pick(it, names) | more)
    if trace:
        render.echo(f"\n{trace}")


def _maybe_sent(it: MessageInfo) -> str | None:
    if it.status == "delivered":
        return None
    return "yes: an attempt began and did not report that it sent nothing" if it.maybe_sent else "no"


@group.command(epilog="Example: holdfast outbox retry --all --channel email --yes")
def retry(
    hf: Holdfast,
    id_: SomeIds = None,
    *,
    every: All = False,
    channel: ChannelOnly = None,
    tenant: TenantOnly = None,
    reason: Reason = None,
    by: By = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Deliver failed and dead messages again, with fresh attempts; handlers see that they may have been sent."""
    usage = "give either the ids of messages to retry, or --all with or without filters"
    check_selection(id_, every, {"channel": channel, "tenant": tenant}, usage)
    ids = checked_ids(id_ or [])
    for each in ids:
        if hf.outbox.get(each) is None:  # jobs that are no messages must not be retried here
            raise UsageError(f"there is no message {each}; delivered ones are pruned with history")
    where: Where = {"task": f"{PREFIX}{channel or '*'}"}
    if tenant is not None:
        where["tenant"] = tenant
    act(hf, "retry", Selection(ids, where if every else {}, by, reason, yes, True, as_json))
