"""The outbox: messages by status, what was sent and why it failed; retry."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from holdfast.store.outbox import MessageFilter
from holdfast.store.select import Page
from holdfast.web.dashboard import paging
from holdfast.web.dashboard.form import ReasonForm
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.outbox import ListMessages, get
from holdfast.web.problems import Problem
from holdfast.web.routing import READS, WRITES

section = Section("Outbox", "/outbox", key="x", needs=READS)
FILTERS = ("channel", "status", "tenant", "key", "order")
STATUSES = ("pending", "delivering", "delivered", "failed", "dead", "canceled")
DEAD = ("failed", "dead")


@section.page("/outbox", "outbox.html", READS)
async def show(visit: Visit, query: ListMessages) -> Values:
    """List the messages that match, newest first."""
    given: Any = {name: getattr(query, name) for name in FILTERS}
    where, calls = MessageFilter(**given), visit.calls.outbox
    page = Page(limit=query.limit, before=await visit.before(query.cursor))
    rows, cursor = await visit.service.page(
        visit.caller, lambda part: calls.list(where, part, visit.view, as_json=True), page, area=where.area
    )
    return {
        "title": "Outbox",
        "messages": rows,
        "errors": {each.id: summary(each.error) for each in rows if each.error is not None},
        "given": paging.filters(visit, *FILTERS),
        "statuses": STATUSES,
        "dead": DEAD,
        "newest": paging.newest(visit),
        "older": paging.following(visit, cursor),
    }


@section.page("/outbox/{message_id}", "message.html", READS)
async def show_message(visit: Visit, message_id: UUID) -> Values:
    """Show one message."""
    found = await get(visit, message_id)
    return {"title": f"Message {found.key[:60]}", "message": found, "dead": DEAD}


@section.action("/outbox/{message_id}/retry", WRITES)
async def retry(visit: Visit, message_id: UUID, form: ReasonForm) -> Done:
    """Deliver a failed or dead message again, with fresh attempts."""
    found = await get(visit, message_id)
    call = visit.calls.actions.act("retry", [found.id], visit.caller.name, form.reason, visit.view)
    if "changed" not in (await visit.run(call)).values():
        raise Problem(409, f"message {found.id} is {found.status}; failed and dead ones can be sent again")
    visit.forget()
    return Done(f"/outbox/{found.id}", "It is delivered again, with fresh attempts.")


def summary(error: Any) -> str:
    """Return an error, which is JSON, as its type and message."""
    found = msgspec.json.decode(error)
    return f"{found.get('type', '')}: {found.get('message', '')}" if isinstance(found, dict) else str(found)
