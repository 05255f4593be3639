"""The outbox: messages that are committed with the caller's changes: `hf.outbox`."""

from __future__ import annotations

import builtins
from typing import Any, TypeVar

from holdfast.client.channel import Channel
from holdfast.client.operation import Noun, Steps, Within, operation
from holdfast.errors import UsageError
from holdfast.model import check
from holdfast.model import outbox as words
from holdfast.model import payload as payloads
from holdfast.model.job import NewJob, ids, parse_id
from holdfast.model.outbox import Emitted, MessageInfo
from holdfast.store.call import Call
from holdfast.store.outbox import Message, MessageFilter
from holdfast.store.select import Page, Part

T = TypeVar("T")


class Outbox(Noun):
    """`hf.outbox`: emit messages, and read their delivery status."""

    def _get(self, message_id: str) -> Call[MessageInfo | None]:
        """Return a message, or None."""
        return self._calls.outbox.get(parse_id(message_id))

    get, aget = operation(_get)

    def _list(
        self,
        *,
        channel: str | None = None,
        status: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        order: str | None = None,
        limit: int = 50,
    ) -> Steps[builtins.list[MessageInfo]]:
        """Return the newest messages that match all given values."""
        where = MessageFilter(channel=channel, status=status, tenant=tenant, key=key, order=order)
        part: Part[MessageInfo] = yield self._calls.outbox.list(where, Page(limit=limit))
        return part.rows

    list, alist = operation(_list)

    def _find(self, text: str) -> Steps[builtins.list[MessageInfo]]:
        """Return the message with an id or an idempotency key, or else the newest messages with a key."""
        calls = self._calls.outbox
        try:
            one: MessageInfo | None = yield calls.get(parse_id(text))
        except UsageError:
            one = yield calls.find(text)
            if one is None:
                part: Part[MessageInfo] = yield calls.list(MessageFilter(key=text), Page(limit=10))
                return part.rows
        return [] if one is None else [one]

    find, afind = operation(_find)

    def _emit(
        self,
        conn: Any,
        channel: Channel[T, Any] | str,
        payload: T,
        *,
        key: str,
        tenant: str | None = None,
        order: str | None = None,
    ) -> Steps[Emitted]:
        """Put a message into the outbox in the caller's transaction. A worker delivers it after the commit.

        conn: a connection or session of psycopg, asyncpg, SQLAlchemy or Django; None for a transaction of its own. A
        channel and tenant have one message for each key; emitting it again returns its id and changes nothing. Messages
        with the same order are delivered one at a time, as emitted. A channel need not be registered in this
        application: another service may deliver it.
        """
        return (yield from self._emit_message(conn, self.new_message(channel, payload, key, tenant, order)))

    emit, aemit = operation(_emit)

    def _emit_message(self, conn: Any, message: Message) -> Steps[Emitted]:
        """Put a message that new_message() returned into the outbox."""
        return (yield from self._hf.registry.around_enqueue.around(message.job, self._insert(conn, message)))

    emit_message, aemit_message = operation(_emit_message)

    def new_message(
        self, channel: Channel[Any, Any] | str, body: Any, key: str, tenant: str | None, order: str | None
    ) -> Message:
        """Return the checked message of an emit, not yet in the outbox."""
        settings = self._hf.database.settings
        name = words.check_channel(channel.name if isinstance(channel, Channel) else channel)
        words.check_key(key)
        check.tenant(tenant)
        if order is not None:
            payloads.check_text(order, "the order of a message", words.LONGEST_KEY)
        what = f"the payload of a message of channel {name!r}"
        data = payloads.encode(body, what)
        payloads.check_limits(data, what, settings.max_payload, settings.max_depth)
        job = NewJob(ids.make(), words.PREFIX + name, data, "", tenant)
        known = channel if isinstance(channel, Channel) else self._hf.registry.channels.get(name)
        return Message(job if known is None else known.fill(job), name, key, order)

    def _insert(self, conn: Any, message: Message) -> Steps[Emitted]:
        if (headers := message.job.headers) is not None:
            settings = self._hf.database.settings
            payloads.check_headers(headers, settings.max_payload, settings.max_depth)
        emitted: Emitted = yield Within(self._calls.outbox.emit(message), conn)
        return emitted
