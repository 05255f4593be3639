"""Calls of the outbox: emit and list messages. See call.py."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import msgspec

from holdfast.model.job import NewJob
from holdfast.model.outbox import Emitted, MessageInfo
from holdfast.model.view import EVERYTHING, View
from holdfast.store.call import Call, text_array
from holdfast.store.jobs import PLACES
from holdfast.store.select import HIDDEN, Area, Conditions, Page, Part, Shape, Where, every, raw, select_page, visible

_LARGE = ("payload", "error")
_NAMES = [each.name for each in fields(MessageInfo)]
_COLUMNS = {name: f'"{name}"' for name in _NAMES} | {"id": "id::text"}
_DECODED = Shape(_COLUMNS, lambda row: MessageInfo(*row), _LARGE)
_PLACES = PLACES | {"pending": ("live", "later"), "delivering": ("live",), "delivered": ("history",)}
_TEXTS = {"payload": "payload::text", "error": f"(error {HIDDEN})::text"}
_JSON = Shape(_COLUMNS | _TEXTS, raw(_LARGE, _NAMES, MessageInfo), _LARGE)


@dataclass(frozen=True, slots=True)
class Message:
    """One message to emit. `job` will deliver it, and carries the message's payload."""

    job: NewJob
    channel: str
    key: str
    order: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter(Conditions):
    """Conditions on messages."""

    channel: str | None = None
    status: str | None = None
    tenant: str | None = None
    key: str | None = None
    order: str | None = None

    SQL: ClassVar = {name: f'"{name}" = %s' for name in ("channel", "status", "tenant", "key", "order")}

    @property
    def area(self) -> Area:
        """The tables that can hold messages of the status."""
        return Area(None if self.status is None else _PLACES.get(self.status), messages=True)


class OutboxCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def emit(self, it: Message) -> Call[Emitted]:
        """Emit a message. Repeating it after a lost reply is safe: the key is unique, and the id shows whose it was."""
        job = it.job
        headers = None if job.headers is None else msgspec.json.encode(job.headers).decode()
        return Call(
            f"SELECT id::text, outcome FROM {self.schema}.emit(%s, %s::jsonb, %s, %s, %s, %s, %s, %s, NULL, %s::uuid, "
            "%s::json, %s::text[])",
            (
                it.channel,
                job.payload.decode(),
                it.key,
                job.tenant,
                it.order,
                job.queue or None,
                job.priority,
                job.max_attempts,
                job.id,
                headers,
                job.keys and text_array(job.keys),
            ),
            lambda rows: Emitted(rows[0][0], rows[0][1] == "existing" and rows[0][0] != job.id),
            due=lambda emitted: None if emitted.existing else emitted.id,
        )

    def get(self, id_: str, view: View = EVERYTHING, *, as_json: bool = False) -> Call[MessageInfo | None]:
        return self._one(every((Where("id = %s::uuid", (id_,)), visible(self.schema, view))), as_json)

    def find(self, idempotency_key: str) -> Call[MessageInfo | None]:
        """Return a message by its idempotency key, through the row that holds the key."""
        held = f"(SELECT d.id FROM {self.schema}.dedupe d WHERE d.key = 'outbox' || chr(31) || %s)"
        return self._one(Where(f"id = {held}", (idempotency_key,)), as_json=False)

    def list(
        self, where: MessageFilter, page: Page, view: View = EVERYTHING, *, as_json: bool = False
    ) -> Call[Part[MessageInfo]]:
        """Return a page of the messages that match; `as_json`, with payload and error as callers of the service get
        them: undecoded, and without traceback and output."""
        conditions = every((where.where(), where.area.where(), visible(self.schema, view)))
        return select_page(_JSON if as_json else _DECODED, f"{self.schema}.outbox", conditions, page)

    def _one(self, where: Where, as_json: bool) -> Call[MessageInfo | None]:
        shape = _JSON if as_json else _DECODED
        return Call(
            f"SELECT {shape.sql} FROM {self.schema}.outbox WHERE {where.sql}",
            where.params,
            lambda rows: shape.read(rows[0]) if rows else None,
        )
