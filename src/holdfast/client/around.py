"""Middleware: generators that run around every enqueue, or around every attempt, of one application."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
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

    In a child process no layer runs. One may have two more functions, for what a handler is to find there: `carried`,
    called in the worker inside of the layer, answers texts by name, and `resumed` is entered with them in the child.
    """

    def __init__(self, *, may_swallow: bool = False) -> None:
        self._may_swallow = may_swallow
        self._layers: list[tuple[str, bool, Callable[[Any], Any]]] = []
        self._skips: list[Callable[[Job], bool]] = []
        # Whether an attempt of a job may run as if there were no layers; None where there are none. An attribute, for
        # every attempt asks: what one layer says is asked of that layer itself.
        self.skips: Callable[[Job], bool] | None = None
        self._carried: list[Callable[[], dict[str, str]]] = []
        self._resumed: list[Callable[[Mapping[str, Any]], contextlib.AbstractContextManager[None]]] = []

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
        self._skips.append(getattr(layer, "skips", _never))
        self.skips = self._skips[0] if len(self._skips) == 1 else self._all_skip
        carried, resumed = getattr(layer, "carried", None), getattr(layer, "resumed", None)
        if carried is not None and resumed is not None:
            self._carried.append(carried)
            self._resumed.append(resumed)
        return layer

    def _all_skip(self, job: Job) -> bool:
        asked = [skips(job) for skips in self._skips]  # each of them, whatever the others say
        return all(asked)

    def carried(self) -> dict[str, str]:
        """What a child process is to be told of the layers around this attempt."""
        told: dict[str, str] = {}
        for carry in self._carried:
            told |= carry()
        return told

    def resumed(self, told: Any) -> contextlib.AbstractContextManager[Any]:
        """Around a handler in a child process, with what was told; headers are anybody's, and may be no dict."""
        stack = contextlib.ExitStack()
        for resume in self._resumed:
            stack.enter_context(resume(told if isinstance(told, dict) else {}))
        return stack

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

    def aentered(self, value: Any) -> contextlib.AbstractAsyncContextManager[Any, bool | None]:
        """All layers around a block of a coroutine's."""
        if self._may_swallow and len(self._layers) == 1 and not self._layers[0][1]:
            return _Awaited(self._layers[0][2](value))  # tracing alone, say: a third of its time went into the stack
        return self._aentered(value)

    @contextlib.asynccontextmanager
    async def _aentered(self, value: Any) -> AsyncIterator[None]:
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


class _Awaited:
    """A plain context manager where an async one is asked for."""

    __slots__ = ("_inner",)

    def __init__(self, inner: contextlib.AbstractContextManager[Any]) -> None:
        self._inner = inner

    async def __aenter__(self) -> None:
        self._inner.__enter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        return self._inner.__exit__(*error)


def _never(job: Job) -> bool:
    """Of a layer that has something to do around every attempt."""
    return False
