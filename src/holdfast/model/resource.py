"""Resources that a worker opens once and passes to its handlers: a connection pool, an HTTP session, a model."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, TypeVar, cast

from holdfast.errors import ConfigurationError

T = TypeVar("T")


class Resource(Generic[T]):
    """Made by `@hf.resource` from a generator function that yields the value once and cleans up after the yield."""

    def __init__(self, opener: Callable[[], Iterator[T] | AsyncIterator[T]]) -> None:
        if not (inspect.isgeneratorfunction(opener) or inspect.isasyncgenfunction(opener)):
            raise ConfigurationError(f"a resource must be a function with one yield (def or async def), got {opener!r}")
        self.name = opener.__qualname__
        self._opener = opener

    @property
    def value(self) -> T:
        """Return the default of a handler's parameter, which the worker replaces: `pool: Pool = db.value`."""
        return cast(T, self)

    async def open(self, stack: contextlib.AsyncExitStack) -> T:
        """Open the resource until the stack closes. The code after its yield always runs, without a `finally`."""
        if inspect.isasyncgenfunction(self._opener):
            on_loop = contextlib.asynccontextmanager(self._opener)()
            value = await on_loop.__aenter__()
            stack.push_async_callback(on_loop.__aexit__, None, None, None)
        else:
            plain = contextlib.contextmanager(cast(Any, self._opener))()
            value = plain.__enter__()
            stack.callback(plain.__exit__, None, None, None)
        return cast(T, value)

    def __repr__(self) -> str:
        return f"<resource {self.name}>"
