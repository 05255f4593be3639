"""The outbox: messages that are committed with the caller's changes, and the channels that deliver them."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from holdfast.client.dead import MoveSteps, move_all
from holdfast.client.operation import Noun, Steps, iteration, operation
from holdfast.client.task import Runner, Task
from holdfast.errors import ConfigurationError, UsageError
from holdfast.model import check
from holdfast.model import outbox as words
from holdfast.model import payload as payloads
from holdfast.model.context import Context
from holdfast.model.job import NewJob, ids, parse_id
from holdfast.model.limit import Limit
from holdfast.model.outbox import Delivery, DeliverySignature, Emitted, MessageInfo
from holdfast.model.retry import Retry, check_policy
from holdfast.store.call import Call
from holdfast.store.jobs import Filter
from holdfast.store.outbox import Message, MessageFilter
from holdfast.store.select import Page, Part

if TYPE_CHECKING:
    from holdfast.client.middleware import Around
    from holdfast.settings import Settings
    from holdfast.store.calls import Calls
    from holdfast.store.wire.pools import AsyncPool, SyncPool

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class Channel(Generic[T, R_co]):
    """A handler that delivers messages. Calling it runs the plain function, which takes a Delivery."""

    def __init__(self, name: str, task: Task[Any, Any], signature: DeliverySignature) -> None:
        self.name = name
        self.task = task
        self._signature = signature
        functools.update_wrapper(self, task.handler)

    def __call__(self, *args: Any, **kwargs: Any) -> R_co:
        """Call the handler as a plain function."""
        result: R_co = self.task.handler(*args, **kwargs)
        return result

    def fill(self, job: NewJob) -> NewJob:
        """Set the channel's options in a message's job. Raise InvalidPayload if the handler cannot take its payload."""
        task = self.task
        self._signature.check(job.payload)
        job.queue, job.priority, job.max_attempts = task.queue, task.priority, task.retry.max_attempts
        if task.limits is not None:
            job.keys = task.keys(b'{"key":"","body":%b}' % job.payload, job.tenant, task.queue)
        return job

    def __repr__(self) -> str:
        return f"<channel {self.name!r} on queue {self.task.queue!r}>"


class ChannelDecorator:
    """Returned by `hf.channel(...)`: turns a handler into a Channel, keeping its payload's type."""

    def __init__(self, register: Callable[..., Channel[Any, Any]]) -> None:
        self._register = register

    @overload
    def __call__(
        self, handler: Callable[[Delivery[T]], Coroutine[Any, Any, None]]
    ) -> Channel[T, Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(
        self, handler: Callable[[Context, Delivery[T]], Coroutine[Any, Any, None]]
    ) -> Channel[T, Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(self, handler: Callable[[Delivery[T]], R_co]) -> Channel[T, R_co]: ...
    @overload
    def __call__(self, handler: Callable[[Context, Delivery[T]], R_co]) -> Channel[T, R_co]: ...
    def __call__(self, handler: Callable[..., Any]) -> Channel[Any, Any]:
        return self._register(handler)


class Messages(Noun):
    """`hf.outbox`: messages and how their delivery stands."""

    def _get(self, message_id: str) -> Call[MessageInfo | None]:
        """Return a message, or None."""
        return self._hf.calls.outbox.get(parse_id(message_id))

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
        part: Part[MessageInfo] = yield self._hf.calls.outbox.list(where, Page(limit=limit))
        return part.rows

    list, alist = operation(_list)

    def _find(self, text: str) -> Steps[builtins.list[MessageInfo]]:
        """Return the message with an id or an idempotency key, or else the newest messages with a key."""
        calls = self._hf.calls.outbox
        try:
            one: MessageInfo | None = yield calls.get(parse_id(text))
        except UsageError:
            one = yield calls.find(text)
            if one is None:
                part: Part[MessageInfo] = yield calls.list(MessageFilter(key=text), Page(limit=10))
                return part.rows
        return [] if one is None else [one]

    find, afind = operation(_find)

    def _count_dead(self, *, channel: str | None = None, tenant: str | None = None) -> Call[int]:
        """Count the failed and dead messages, of a channel and a tenant if given."""
        return self._hf.calls.dead.count(_dead(channel, tenant))

    count_dead, acount_dead = operation(_count_dead)

    def _retry_all(self, *, channel: str | None = None, tenant: str | None = None) -> MoveSteps:
        """Deliver those messages again with fresh attempts, in small committed steps, as you iterate over what each has
        moved. hf.dead.retry() takes ids."""
        return move_all(self._hf.calls.dead, self._hf.calls.dead.retry, _dead(channel, tenant))

    retry_all, aretry_all = iteration(_retry_all)


def _dead(channel: str | None, tenant: str | None) -> Filter:
    return Filter(task=None if channel is None else words.PREFIX + channel, task_prefix=words.PREFIX, tenant=tenant)


class Outbox:
    """Mixin of Holdfast for channels and for emitting messages."""

    settings: Settings
    channels: dict[str, Channel[Any, Any]]
    around_enqueues: Around
    calls: Calls
    if TYPE_CHECKING:

        @property
        def sync_pool(self) -> SyncPool: ...
        @property
        def async_pool(self) -> AsyncPool: ...
        def add_task(self, handler: Callable[..., Any], *, name: str, **options: Any) -> Task[Any, Any]: ...

    def channel(
        self,
        name: str,
        *,
        queue: str = "outbox",
        priority: int = 2,
        retry: Retry = words.RETRY,
        timeout: float | None = None,
        limits: Sequence[Limit] = (),
        runner: Runner | None = None,
    ) -> ChannelDecorator:
        """Register a handler that delivers the messages of a channel. It takes one Delivery, besides a Context and
        resources, and returns when the message is sent. Limits may name fields of the payload's type.

        Unlike a task's, an attempt that a stopping worker interrupts counts, because something may have been sent.
        """
        if not isinstance(name, str):
            raise ConfigurationError('write @hf.channel("name") with the channel\'s name in parentheses')
        words.check_channel(name)
        check_policy(retry)

        def register(handler: Callable[..., Any]) -> Channel[Any, Any]:
            signature = DeliverySignature(name, handler)
            task = self.add_task(
                handler,
                name=words.PREFIX + name,
                queue=queue,
                priority=priority,
                retry=retry,
                timeout=timeout,
                dedupe=None,
                runner=runner,
                limits=limits,
                signature=signature,
                refunds=False,
            )
            self.channels[name] = Channel(name, task, signature)
            return self.channels[name]

        return ChannelDecorator(register)

    @overload
    def emit(
        self,
        conn: Any,
        channel: Channel[T, Any],
        payload: T,
        *,
        key: str,
        tenant: str | None = None,
        order: str | None = None,
    ) -> Emitted: ...
    @overload
    def emit(
        self, conn: Any, channel: str, payload: Any, *, key: str, tenant: str | None = None, order: str | None = None
    ) -> Emitted: ...
    def emit(
        self,
        conn: Any,
        channel: Channel[Any, Any] | str,
        payload: Any,
        *,
        key: str,
        tenant: str | None = None,
        order: str | None = None,
    ) -> Emitted:
        """Put a message into the outbox in the caller's transaction. A worker delivers it after the commit.

        conn: a connection or session of psycopg, asyncpg, SQLAlchemy or Django; None for a transaction of its own. A
        channel and tenant have one message for each key; emitting it again returns its id and changes nothing. Messages
        with the same order are delivered one at a time, as emitted. A channel need not be registered in this
        application: another service may deliver it.
        """
        message = self.new_message(channel, payload, key, tenant, order)
        with self.around_enqueues.entered(message.job):
            return self.sync_pool.run(self._emit(message), conn)

    @overload
    async def aemit(
        self,
        conn: Any,
        channel: Channel[T, Any],
        payload: T,
        *,
        key: str,
        tenant: str | None = None,
        order: str | None = None,
    ) -> Emitted: ...
    @overload
    async def aemit(
        self, conn: Any, channel: str, payload: Any, *, key: str, tenant: str | None = None, order: str | None = None
    ) -> Emitted: ...
    async def aemit(
        self,
        conn: Any,
        channel: Channel[Any, Any] | str,
        payload: Any,
        *,
        key: str,
        tenant: str | None = None,
        order: str | None = None,
    ) -> Emitted:
        """Put a message into the outbox, as emit()."""
        return await self.aemit_message(conn, self.new_message(channel, payload, key, tenant, order))

    async def aemit_message(self, conn: Any, message: Message) -> Emitted:
        # The second half of aemit().
        async with self.around_enqueues.aentered(message.job):
            return await self.async_pool.run(self._emit(message), conn)

    def new_message(
        self, channel: Channel[Any, Any] | str, body: Any, key: str, tenant: str | None, order: str | None
    ) -> Message:
        # The first half of emit() and aemit().
        name = words.check_channel(channel.name if isinstance(channel, Channel) else channel)
        words.check_key(key)
        check.tenant(tenant)
        if order is not None:
            payloads.check_text(order, "the order of a message", words.LONGEST_KEY)
        what = f"the payload of a message of channel {name!r}"
        data = payloads.encode(body, what)
        payloads.check_limits(data, what, self.settings.max_payload, self.settings.max_depth)
        job = NewJob(ids.make(), words.PREFIX + name, data, "", tenant)
        known = channel if isinstance(channel, Channel) else self.channels.get(name)
        return Message(job if known is None else known.fill(job), name, key, order)

    def _emit(self, message: Message) -> Call[Emitted]:
        if (headers := message.job.headers) is not None:
            payloads.check_headers(headers, self.settings.max_payload, self.settings.max_depth)
        return self.calls.outbox.emit(message)
