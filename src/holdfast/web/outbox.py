"""/v1/outbox: messages, emitted and looked at."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from fastapi import APIRouter
from starlette.responses import Response

from holdfast.model.delivery import MessageInfo
from holdfast.store.outbox import MessageFilter
from holdfast.store.seen import Page
from holdfast.web import shapes
from holdfast.web.body import BodyRoute
from holdfast.web.problems import FOR_CHANGES, FOR_ONE, Problem, unknown
from holdfast.web.service import Asked, Reads, Writes, answer

router = APIRouter(prefix="/outbox", tags=["outbox"], route_class=BodyRoute)
MessageStatus = Literal["pending", "delivering", "delivered", "failed", "dead", "canceled"]


@router.post("", status_code=201, response_model=shapes.Made, responses=FOR_CHANGES)
async def emit(new: shapes.NewMessage, asked: Writes) -> Response:
    """Puts a message into the outbox; the second with the same key answers the first."""

    async def act(conn: Any) -> Response:
        message = asked.hf.new_message(new.channel, new.payload, new.key, asked.tenant(new.tenant), new.order)
        message.job.priority = max(message.job.priority, asked.caller.priority)
        made = await asked.hf.aemit_message(conn, message)
        return answer(shapes.Made(made.id, made.existing), 201)

    return await asked.once(act)


@router.get("", response_model=shapes.Messages)
async def list_messages(
    asked: Reads,
    channel: shapes.Name | None = None,
    status: MessageStatus | None = None,
    tenant: shapes.Name | None = None,
    key: shapes.Key | None = None,
    order: shapes.Key | None = None,
    cursor: shapes.Cursor = None,
    limit: shapes.Limit = 50,
) -> Response:
    """The newest messages that match."""
    where = MessageFilter(channel=channel, status=status, tenant=tenant, key=key, order=order)
    page = Page(limit=limit, before=await asked.before(cursor))
    calls = asked.service.seen
    found = await asked.service.page(asked.caller, lambda part: calls.list_messages(asked.caller, where, part), page)
    return answer(shapes.Messages(*found))


@router.get("/{message_id}", response_model=MessageInfo, responses=FOR_ONE)
async def get(message_id: UUID, asked: Reads) -> Response:
    """A message."""
    return answer(await _look(asked, message_id))


@router.post("/{message_id}/retry", response_model=shapes.Made, responses=FOR_CHANGES)
async def retry(message_id: UUID, asked: Writes) -> Response:
    """Delivers a failed or dead message again, with fresh attempts."""

    async def act(conn: Any) -> Response:
        found = await _look(asked, message_id, conn)
        if not await asked.run(asked.service.seen.retry_dead(asked.caller, [found.id]), conn):
            raise Problem(409, f"message {found.id} is {found.status}; failed and dead ones can be sent again")
        return answer(shapes.Made(found.id, existing=True))

    return await asked.once(act)


async def _look(asked: Asked, message_id: UUID, conn: Any = None) -> MessageInfo:
    found = await asked.run(asked.service.seen.message(asked.caller, str(message_id)), conn)
    if found is None:
        raise unknown("message", message_id)
    return found
