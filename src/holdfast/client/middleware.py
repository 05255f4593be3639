"""Middleware: generators that run around every enqueue, or around every attempt, of one application."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from holdfast.client.operation import Step, Steps
from holdfast.errors import ConfigurationError, UsageError
from holdfast.model.job import Job

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Around:
    """The layers in the order they were added: the first is the outermost.

    A layer is a generator function that takes one value and yields once. Exceptions inside are raised at its yield. It
    may suppress them only with may_swallow: a failed enqueue must not look like an accepted one.

    A layer around attempts may have a function `skips`, called with the job before its context exists. A job that all
    layers skip runs as if there were none, which costs much less.

    No layer runs in a child process. To pass values to a handler there, a layer may have two more functions: `carried`,
    called in the worker inside of the layer, returns texts by name, and `resumed` is entered with them in the child.
    """

    def __init__(self, *, may_swallow: bool = False) -> None:
        self._may_swallow = may_swallow
        self._layers: list[tuple[str, bool, Callable[[Any], Any]]] = []
        self._skips: list[Callable[[Job], bool]] = []
        # Returns whether a job runs as if there were no layers; None if there are none. It is an attribute, not a
        # method, because every attempt calls it: with one layer this is the layer's own function.
        self.skips: Callable[[Job], bool] | None = None
        self._carried: list[Callable[[], dict[str, str]]] = []
        self._resumed: list[Callable[[Mapping[str, Any]], contextlib.AbstractContextManager[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._layers)

    def add(self, layer: F) -> F:
        """Add a layer inside of the existing ones. Return it, so that this works as a decorator."""
        if inspect.isasyncgenfunction(layer):
            self._layers.append((layer.__qualname__, True, contextlib.asynccontextmanager(layer)))
        elif inspect.isgeneratorfunction(layer):
            self._layers.append((layer.__qualname__, False, contextlib.contextmanager(layer)))
        else:
            raise ConfigurationError(f"middleware must be a function with one yield (def or async def), got {layer!r}")
        self._skips.append(getattr(layer, "skips", _never))
        self.skips = self._skips[0] if len(self._skips) == 1 else self._all_skip
        carried, resumed = getattr(layer, "carried", None), getattr(layer, "resumed", None)
        if carried is not None and resumed is not None:
            self._carried.append(carried)
            self._resumed.append(resumed)
        return layer

    def _all_skip(self, job: Job) -> bool:
        results = [skips(job) for skips in self._skips]  # a list, so that each function is called
        return all(results)

    def carried(self) -> dict[str, str]:
        """Return the values that the layers pass to a child process."""
        values: dict[str, str] = {}
        for carry in self._carried:
            values |= carry()
        return values

    def resumed(self, values: Any) -> contextlib.AbstractContextManager[Any]:
        """Enter the layers' `resumed` in a child process. Values come from headers, and may not be a dict."""
        stack = contextlib.ExitStack()
        for resume in self._resumed:
            stack.enter_context(resume(values if isinstance(values, dict) else {}))
        return stack

    def around(self, value: Any, steps: Steps[T]) -> Steps[T]:
        """Run the steps of an operation inside of all layers."""
        if not self._layers:
            return (yield from steps)
        layers = self.entered(value)
        yield Step(self._refuse_async, _nothing)
        yield _on_either_side(layers.__aenter__())
        try:
            result = yield from steps
        except BaseException as error:
            if not (yield _on_either_side(layers.__aexit__(type(error), error, error.__traceback__))):
                raise
            raise AssertionError("unreachable: a failed operation is never swallowed") from error
        yield _on_either_side(layers.__aexit__(None, None, None))
        return result

    def _refuse_async(self) -> None:
        for name, is_async, _ in self._layers:
            if is_async:
                raise UsageError(f"middleware {name} is async: use aenqueue, or write it with def")

    def entered(self, value: Any) -> contextlib.AbstractAsyncContextManager[Any, bool | None]:
        """Enter all layers around a block of code."""
        if self._may_swallow and len(self._layers) == 1 and not self._layers[0][1]:
            return _Awaited(self._layers[0][2](value))  # fast path: an exit stack would add half to the time of tracing
        return self._entered(value)

    @contextlib.asynccontextmanager
    async def _entered(self, value: Any) -> AsyncIterator[None]:
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
    """A sync context manager as an async one."""

    __slots__ = ("_inner",)

    def __init__(self, inner: contextlib.AbstractContextManager[Any]) -> None:
        self._inner = inner

    async def __aenter__(self) -> None:
        self._inner.__enter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        return self._inner.__exit__(*error)


def _on_either_side(work: Coroutine[Any, Any, Any]) -> Step:
    """Return a coroutine as a step. Layers that are all sync never suspend it, so that threads can run it too."""
    return Step(lambda: _finish(work), lambda: work)


def _finish(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("unreachable: sync middleware was suspended")


async def _nothing() -> None:
    """Do nothing."""


def _never(job: Job) -> bool:
    """Skip no job: the default for layers without `skips`."""
    return False
