"""Calls of the outbox: emit and list messages. See call.py."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import msgspec

from holdfast.model.job import NewJob
from holdfast.model.outbox import PREFIX, Emitted, MessageInfo
from holdfast.store.call import Call, Rows, text_array

_COLUMNS = ", ".join({"id": "id::text", "order": '"order"'}.get(each.name, each.name) for each in fields(MessageInfo))


@dataclass(frozen=True, slots=True)
class Message:
    """One message to emit. `job` will deliver it, and carries the message's payload."""

    job: NewJob
    channel: str
    key: str
    order: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Conditions on messages; all that are given must hold."""

    channel: str | None = None
    status: str | None = None
    tenant: str | None = None
    key: str | None = None
    order: str | None = None

    def sql(self) -> tuple[str, list[Any]]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        names = [name for name, value in values.items() if value is not None]
        return " AND ".join(["true", *(f'"{name}" = %s' for name in names)]), [values[name] for name in names]


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

    def message(self, id_: str) -> Call[MessageInfo | None]:
        return Call(f"SELECT {_COLUMNS} FROM {self.schema}.outbox WHERE id = %s::uuid", (id_,), _one)

    def message_of(self, idempotency_key: str) -> Call[MessageInfo | None]:
        """Return a message by its idempotency key, through the row that holds the key."""
        return Call(
            f"SELECT {_COLUMNS} FROM {self.schema}.outbox WHERE id = "
            f"(SELECT d.id FROM {self.schema}.dedupe d WHERE d.key = 'outbox' || chr(31) || %s)",
            (idempotency_key,),
            _one,
        )

    def list_messages(self, where: MessageFilter, *, limit: int, newest_first: bool = True) -> Call[list[MessageInfo]]:
        conditions, params = where.sql()
        return Call(
            f"SELECT {_COLUMNS} FROM {self.schema}.outbox WHERE {conditions} "
            f"ORDER BY outbox.id {'DESC' if newest_first else 'ASC'} LIMIT %s",
            (*params, limit),
            lambda rows: [MessageInfo(*row) for row in rows],
        )

    def count_dead(self, channel: str | None, tenant: str | None) -> Call[int]:
        conditions, params = _dead(channel, tenant)
        return Call(f"SELECT count(*) FROM {self.schema}.dead WHERE {conditions}", params, lambda rows: rows[0][0])

    def dead_ids(self, channel: str | None, tenant: str | None, *, limit: int, after: str | None) -> Call[list[str]]:
        conditions, params = _dead(channel, tenant)
        return Call(
            f"SELECT id::text FROM {self.schema}.dead WHERE {conditions} AND (%s::uuid IS NULL OR id > %s::uuid) "
            "ORDER BY id LIMIT %s",
            (*params, after, after, limit),
            lambda rows: [row[0] for row in rows],
        )


def _dead(channel: str | None, tenant: str | None) -> tuple[str, list[str]]:
    conditions, params = "starts_with(task, %s)", [PREFIX]
    if channel is not None:
        conditions, params = "task = %s", [PREFIX + channel]
    return (conditions, params) if tenant is None else (f"{conditions} AND tenant = %s", [*params, tenant])


def _one(rows: Rows) -> MessageInfo | None:
    return MessageInfo(*rows[0]) if rows else None
