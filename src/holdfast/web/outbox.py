"""/v1/outbox: emit, read and retry messages."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from fastapi import APIRouter
from starlette.responses import Response

from holdfast.model.outbox import MessageInfo
from holdfast.store.outbox import MessageFilter
from holdfast.store.select import Page
from holdfast.web import shapes
from holdfast.web.body import BodyRoute
from holdfast.web.problems import FOR_CHANGES, FOR_ONE, Problem, unknown
from holdfast.web.service import Reads, RequestContext, Writes, respond

router = APIRouter(prefix="/outbox", tags=["outbox"], route_class=BodyRoute)
MessageStatus = Literal["pending", "delivering", "delivered", "failed", "dead", "canceled"]


@router.post("", status_code=201, response_model=shapes.Made, responses=FOR_CHANGES)
async def emit(new: shapes.NewMessage, ctx: Writes) -> Response:
    """Put a message into the outbox. A second one with the same key returns the first."""

    async def act(conn: Any) -> Response:
        message = ctx.hf.outbox.new_message(new.channel, new.payload, new.key, ctx.tenant(new.tenant), new.order)
        message.job.priority = max(message.job.priority, ctx.caller.priority)
        made = await ctx.hf.outbox.aemit_message(conn, message)
        return respond(shapes.Made(made.id, made.existing), 201)

    return await ctx.once(act)


@router.get("", response_model=shapes.Messages)
async def list_messages(
    ctx: Reads,
    channel: shapes.Name | None = None,
    status: MessageStatus | None = None,
    tenant: shapes.Name | None = None,
    key: shapes.Key | None = None,
    order: shapes.Key | None = None,
    cursor: shapes.Cursor = None,
    limit: shapes.Limit = 50,
) -> Response:
    """List the messages that match, newest first."""
    where = MessageFilter(channel=channel, status=status, tenant=tenant, key=key, order=order)
    page = Page(limit=limit, before=await ctx.before(cursor))
    calls, view = ctx.hf.database.calls.outbox, ctx.caller.view
    found = await ctx.service.page(ctx.caller, lambda part: calls.list(where, part, view, as_json=True), page)
    return respond(shapes.Messages(*found))


@router.get("/{message_id}", response_model=MessageInfo, responses=FOR_ONE)
async def get(message_id: UUID, ctx: Reads) -> Response:
    """Return a message."""
    return respond(await _look(ctx, message_id))


@router.post("/{message_id}/retry", response_model=shapes.Made, responses=FOR_CHANGES)
async def retry(message_id: UUID, ctx: Writes) -> Response:
    """Deliver a failed or dead message again, with fresh attempts."""

    async def act(conn: Any) -> Response:
        found = await _look(ctx, message_id, conn)
        if not await ctx.run(ctx.hf.database.calls.dead.retry([found.id], ctx.caller.view), conn):
            raise Problem(409, f"message {found.id} is {found.status}; failed and dead ones can be sent again")
        return respond(shapes.Made(found.id, existing=True))

    return await ctx.once(act)


async def _look(ctx: RequestContext, message_id: UUID, conn: Any = None) -> MessageInfo:
    found = await ctx.run(ctx.hf.database.calls.outbox.get(str(message_id), ctx.caller.view, as_json=True), conn)
    if found is None:
        raise unknown("message", message_id)
    return found
