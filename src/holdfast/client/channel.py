"""Channels: handlers that deliver the messages of the outbox."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar, overload

from holdfast.client.task import Task
from holdfast.model.context import Context
from holdfast.model.job import NewJob
from holdfast.model.outbox import Delivery, DeliverySignature

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
