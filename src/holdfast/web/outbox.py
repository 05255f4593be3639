"""/v1/outbox: emit, read and retry messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import msgspec

from holdfast.model.outbox import MessageInfo
from holdfast.store.outbox import MessageFilter
from holdfast.store.select import Page
from holdfast.web.body import read_value
from holdfast.web.context import RequestContext
from holdfast.web.fields import Body, Key, Name, Paged
from holdfast.web.jobs import AcceptedJob
from holdfast.web.problems import Problem
from holdfast.web.routing import READS, WRITES, Routes

routes = Routes("/outbox", "outbox")


class NewMessage(Body):
    """A message for the outbox. A key is sent once."""

    channel: Name
    """A channel of the application."""
    payload: msgspec.Raw
    """The value for the channel's handler."""
    key: Key
    """Identifies the message; a second one with the same key is not sent."""
    tenant: Name | None = None
    order: Key | None = None
    """Messages with the same order are delivered one at a time, as emitted."""


class ListMessages(Paged):
    channel: Name | None = None
    status: Literal["pending", "delivering", "delivered", "failed", "dead", "canceled"] | None = None
    tenant: Name | None = None
    key: Key | None = None
    order: Key | None = None


@dataclass(frozen=True, slots=True)
class Messages:
    """A page of messages; `next` is the cursor of the next page."""

    items: list[MessageInfo]
    next: str | None


@routes.post("", WRITES, status=201)
async def emit(ctx: RequestContext, new: NewMessage) -> AcceptedJob:
    """Put a message into the outbox. A second one with the same key returns the first."""
    value = read_value(new.payload, "payload", ctx.hf.settings.max_payload)
    message = ctx.hf.outbox.new_message(new.channel, value, new.key, ctx.tenant(new.tenant), new.order)
    message.job.priority = max(message.job.priority, ctx.caller.priority)
    made = await ctx.hf.outbox.aemit_message(ctx.conn, message)
    return AcceptedJob(made.id, made.existing)


@routes.get("", READS)
async def list_messages(ctx: RequestContext, query: ListMessages) -> Messages:
    """List the messages that match, newest first."""
    where = MessageFilter(
        channel=query.channel, status=query.status, tenant=query.tenant, key=query.key, order=query.order
    )
    page = Page(limit=query.limit, before=await ctx.before(query.cursor))
    calls = ctx.calls.outbox
    found = await ctx.service.page(
        ctx.caller, lambda part: calls.list(where, part, ctx.view, as_json=True), page, area=where.area
    )
    return Messages(*found)


@routes.get("/{message_id}", READS)
async def get(ctx: RequestContext, message_id: UUID) -> MessageInfo:
    """Return a message."""
    return await ctx.found(ctx.calls.outbox.get(str(message_id), ctx.view, as_json=True), "message", message_id)


@routes.post("/{message_id}/retry", WRITES)
async def retry(ctx: RequestContext, message_id: UUID) -> AcceptedJob:
    """Deliver a failed or dead message again, with fresh attempts."""
    found = await get(ctx, message_id)
    if not await ctx.run(ctx.calls.dead.retry([found.id], ctx.view)):
        raise Problem(409, f"message {found.id} is {found.status}; failed and dead ones can be sent again")
    return AcceptedJob(found.id, existing=True)
