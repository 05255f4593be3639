"""Middleware: generators that run around every enqueue, or around every attempt, of one application."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

from holdfast.errors import ConfigurationError, UsageError
from holdfast.model.job import Job

F = TypeVar("F", bound=Callable[..., Any])


class Around:
    """The layers in the order they were added: the first is the outermost.

    A layer is a generator function that takes one value and yields once. What happens inside is raised at its yield. It
    may swallow that only where told so: an enqueue that failed must not look like one that was accepted.

    A layer around attempts may have a function `skips` that looks at a job before there is a context: one that all
    layers skip runs as if there were none, which costs much less.
    """

    def __init__(self, *, may_swallow: bool = False) -> None:
        self._may_swallow = may_swallow
        self._layers: list[tuple[str, bool, Callable[[Any], Any]]] = []
        self._skips: list[Callable[[Job], bool] | None] = []

    def __bool__(self) -> bool:
        return bool(self._layers)

    def add(self, layer: F) -> F:
        """Adds a layer, innermost so far; answers it, so that it serves as a decorator."""
        if inspect.isasyncgenfunction(layer):
            self._layers.append((layer.__qualname__, True, contextlib.asynccontextmanager(layer)))
        elif inspect.isgeneratorfunction(layer):
            self._layers.append((layer.__qualname__, False, contextlib.contextmanager(layer)))
        else:
            raise ConfigurationError(f"middleware is a function with one yield (def or async def), got {layer!r}")
        self._skips.append(getattr(layer, "skips", None))
        return layer

    def concerns(self, job: Job) -> bool:
        """Whether any layer has something to do around an attempt of a job."""
        concerned = False
        for skips in self._skips:  # each is asked, whatever the others say
            if skips is None or not skips(job):
                concerned = True
        return concerned

    @contextlib.contextmanager
    def entered(self, value: Any) -> Iterator[None]:
        """All layers around a block of a thread's."""
        swallowed: BaseException | None = None
        with contextlib.ExitStack() as stack:
            for name, is_async, layer in self._layers:
                if is_async:
                    raise UsageError(f"middleware {name} is async: use aenqueue, or write it with def")
                stack.enter_context(layer(value))
            try:
                yield
            except BaseException as error:
                swallowed = None if self._may_swallow else error
                raise
        if swallowed is not None:
            raise swallowed

    @contextlib.asynccontextmanager
    async def aentered(self, value: Any) -> AsyncIterator[None]:
        """All layers around a block of a coroutine's."""
        swallowed: BaseException | None = None
        async with contextlib.AsyncExitStack() as stack:
            for _, is_async, layer in self._layers:
                if is_async:
                    await stack.enter_async_context(layer(value))
                else:
                    stack.enter_context(layer(value))
            try:
                yield
            except BaseException as error:
                swallowed = None if self._may_swallow else error
                raise
        if swallowed is not None:
            raise swallowed
