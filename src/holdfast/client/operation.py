"""One definition of an operation, offered as a sync and an async method.

A class that belongs to an application defines each operation once, as a function that returns the store's Call:

    class Limits(Noun):
        def _clear(self, key: str) -> Call[int]:
            ...

        clear, aclear = operation(_clear)

A function that needs several calls is a generator: it yields each call and receives its result or its error. It yields
`Within(call, conn)` for a call in the caller's transaction, and a `Step` for work that is no call. The generator of an
iteration() also yields `Items` for its caller.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from holdfast.store.call import Call

if TYPE_CHECKING:
    from holdfast.client.app import Holdfast
    from holdfast.client.database import Database
    from holdfast.store.calls import Calls

P = ParamSpec("P")
N = TypeVar("N")
T = TypeVar("T")


class Noun:
    """The operations on one kind of thing, for one application."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf

    @property
    def _calls(self) -> Calls:
        return self._hf.database.calls


@dataclass(frozen=True, slots=True)
class Within:
    """A call on a caller's connection; None is a connection of the pool."""

    call: Call[Any]
    conn: Any


@dataclass(frozen=True, slots=True)
class Step:
    """Work that is no call, in the form for threads and in the form for coroutines."""

    run: Callable[[], Any]
    arun: Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Items(Generic[T]):
    """What an iterator of iteration() returns next."""

    items: Iterable[T]


Steps = Generator["Call[Any] | Within | Step", Any, T]


def sleep(seconds: float) -> Step:
    """Return the step that waits."""
    return Step(lambda: time.sleep(seconds), lambda: asyncio.sleep(seconds))


@overload
def operation(
    make: Callable[Concatenate[N, P], Call[T]],
) -> tuple[Callable[Concatenate[N, P], T], Callable[Concatenate[N, P], Coroutine[Any, Any, T]]]: ...
@overload
def operation(
    make: Callable[Concatenate[N, P], Steps[T]],
) -> tuple[Callable[Concatenate[N, P], T], Callable[Concatenate[N, P], Coroutine[Any, Any, T]]]: ...
def operation(make: Callable[..., Any]) -> Any:
    """Return the sync and the async method of an operation. They are called `name` and `aname` for `_name`."""

    @functools.wraps(make)
    def run(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        made = make(self, *args, **kwargs)
        database: Database = self._hf.database
        return database.sync_pool.run(made) if isinstance(made, Call) else run_steps(made, database)

    @functools.wraps(make)
    async def arun(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        made = make(self, *args, **kwargs)
        database: Database = self._hf.database
        return await (database.async_pool.run(made) if isinstance(made, Call) else arun_steps(made, database))

    return _named(run, ""), _named(arun, "a")


def iteration(
    make: Callable[Concatenate[N, P], Generator[Call[Any] | Items[T], Any, None]],
) -> tuple[Callable[Concatenate[N, P], Iterator[T]], Callable[Concatenate[N, P], AsyncIterator[T]]]:
    """Return the sync and the async method of an operation that is done step by step, as its caller iterates."""

    @functools.wraps(make)
    def run(self: Any, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        steps: Any = make(self, *args, **kwargs)
        result = None
        while (step := _next(steps, result)) is not None:
            if isinstance(step, Items):
                yield from step.items
            else:
                result = _run(step, self._hf.database)

    @functools.wraps(make)
    async def arun(self: Any, /, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        steps: Any = make(self, *args, **kwargs)
        result = None
        while (step := _next(steps, result)) is not None:
            if isinstance(step, Items):
                for item in step.items:
                    yield item
            else:
                result = await _arun(step, self._hf.database)

    return _named(run, ""), _named(arun, "a")


def is_operation(function: Any) -> bool:
    """Return whether a function was made by operation()."""
    return getattr(function, "__wrapped__", None) is not None and hasattr(function, "operation")


def run_steps(steps: Steps[T], database: Database) -> T:
    """Run the steps of an operation in this thread. The generator gets the errors, for its `try` and `with`."""
    __tracebackhide__ = True
    try:
        step = next(steps)
        while True:
            try:
                result = _run(step, database)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def arun_steps(steps: Steps[T], database: Database) -> T:
    """Run the steps of an operation on this event loop."""
    __tracebackhide__ = True
    try:
        step = next(steps)
        while True:
            try:
                result = await _arun(step, database)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


def _run(step: Call[Any] | Within | Step, database: Database) -> Any:
    __tracebackhide__ = True
    if isinstance(step, Call):
        return database.sync_pool.run(step)
    return database.sync_pool.run(step.call, step.conn) if isinstance(step, Within) else step.run()


def _arun(step: Call[Any] | Within | Step, database: Database) -> Awaitable[Any]:
    if isinstance(step, Call):
        return database.async_pool.run(step)
    return database.async_pool.run(step.call, step.conn) if isinstance(step, Within) else step.arun()


def _next(steps: Any, result: Any) -> Any:
    try:
        return steps.send(result)
    except StopIteration:
        return None


def _named(function: Any, prefix: str) -> Any:
    owner, _, name = function.__qualname__.rpartition(".")
    function.__name__ = prefix + name.lstrip("_")
    function.__qualname__ = f"{owner}.{function.__name__}"
    function.operation = True
    return function
