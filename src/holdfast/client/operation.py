"""One definition of an operation, offered as a sync and an async method.

The class of a noun (`hf.limits`, `hf.dead`) defines each operation once, as a function that returns the store's Call:

    class Limits(Noun):
        def _clear(self, key: str) -> Call[int]:
            ...

        clear, aclear = operation(_clear)

A function that needs several calls is a generator: it yields each call and receives its result. It yields
`Within(call, conn)` for a call in the caller's transaction. iteration() makes iterators of a generator that also yields
`Items(...)`, for work in many committed steps.
"""

from __future__ import annotations

import functools
from collections import abc
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from holdfast.store.call import Call

if TYPE_CHECKING:
    from holdfast.client.app import Holdfast

P = ParamSpec("P")
N = TypeVar("N", bound="Noun")
T = TypeVar("T")
Steps = Generator["Call[Any] | Within", Any, T]
Make = Callable[Concatenate[Any, P], "Call[T] | Steps[T]"]


class Noun:
    """The operations on one kind of thing, for one application."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf


@dataclass(frozen=True, slots=True)
class Within:
    """A call on a caller's connection; None is a connection of the pool."""

    call: Call[Any]
    conn: Any


@dataclass(frozen=True, slots=True)
class Items(Generic[T]):
    """What an iterator of iteration() returns next."""

    items: Iterable[T]


class _Method(Generic[P, T]):
    """A descriptor that binds an operation to its noun."""

    def __init__(self, make: Make[P, T]) -> None:
        self.make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def _named(self, noun: Noun, run: Callable[..., Any]) -> Callable[..., Any]:
        bound = functools.update_wrapper(run, self.make.__get__(noun))
        bound.__name__, bound.__qualname__ = self.name, f"{type(noun).__qualname__}.{self.name}"
        return bound


class SyncMethod(_Method[P, T]):
    """The sync form of an operation."""

    @overload
    def __get__(self, noun: None, owner: type) -> SyncMethod[P, T]: ...
    @overload
    def __get__(self, noun: Noun, owner: type) -> Callable[P, T]: ...
    def __get__(self, noun: Noun | None, owner: type) -> SyncMethod[P, T] | Callable[P, T]:
        if noun is None:
            return self

        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            steps = _steps(self.make(noun, *args, **kwargs))
            pool, result = noun._hf.sync_pool, None
            try:
                while True:
                    result = pool.run(*_where(steps.send(result)))
            except StopIteration as end:
                returned: T = end.value
                return returned

        return self._named(noun, run)


class AsyncMethod(_Method[P, T]):
    """The async form of an operation."""

    @overload
    def __get__(self, noun: None, owner: type) -> AsyncMethod[P, T]: ...
    @overload
    def __get__(self, noun: Noun, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, noun: Noun | None, owner: type) -> AsyncMethod[P, T] | Callable[P, Coroutine[Any, Any, T]]:
        if noun is None:
            return self

        async def run(*args: P.args, **kwargs: P.kwargs) -> T:
            steps = _steps(self.make(noun, *args, **kwargs))
            pool, result = noun._hf.async_pool, None
            try:
                while True:
                    result = await pool.run(*_where(steps.send(result)))
            except StopIteration as end:
                returned: T = end.value
                return returned

        return self._named(noun, run)


class SyncIterator(_Method[P, T]):
    """The sync form of an iteration."""

    @overload
    def __get__(self, noun: None, owner: type) -> SyncIterator[P, T]: ...
    @overload
    def __get__(self, noun: Noun, owner: type) -> Callable[P, Iterator[T]]: ...
    def __get__(self, noun: Noun | None, owner: type) -> SyncIterator[P, T] | Callable[P, Iterator[T]]:
        if noun is None:
            return self

        def run(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            steps: Any = self.make(noun, *args, **kwargs)
            pool, result = noun._hf.sync_pool, None
            while (step := _next(steps, result)) is not None:
                if isinstance(step, Items):
                    yield from step.items
                else:
                    result = pool.run(*_where(step))

        return self._named(noun, run)


class AsyncIterator(_Method[P, T]):
    """The async form of an iteration."""

    @overload
    def __get__(self, noun: None, owner: type) -> AsyncIterator[P, T]: ...
    @overload
    def __get__(self, noun: Noun, owner: type) -> Callable[P, abc.AsyncIterator[T]]: ...
    def __get__(self, noun: Noun | None, owner: type) -> AsyncIterator[P, T] | Callable[P, abc.AsyncIterator[T]]:
        if noun is None:
            return self

        async def run(*args: P.args, **kwargs: P.kwargs) -> abc.AsyncIterator[T]:
            steps: Any = self.make(noun, *args, **kwargs)
            pool, result = noun._hf.async_pool, None
            while (step := _next(steps, result)) is not None:
                if isinstance(step, Items):
                    for item in step.items:
                        yield item
                else:
                    result = await pool.run(*_where(step))

        return self._named(noun, run)


def iteration(
    make: Callable[Concatenate[N, P], Generator[Call[Any] | Items[T], Any, None]],
) -> tuple[SyncIterator[P, T], AsyncIterator[P, T]]:
    """Return the sync and the async method of an operation that is done step by step, as its caller iterates."""
    made: Any = make
    return SyncIterator(made), AsyncIterator(made)


def _next(steps: Any, result: Any) -> Any:
    try:
        return steps.send(result)
    except StopIteration:
        return None


@overload
def operation(make: Callable[Concatenate[N, P], Call[T]]) -> tuple[SyncMethod[P, T], AsyncMethod[P, T]]: ...
@overload
def operation(make: Callable[Concatenate[N, P], Steps[T]]) -> tuple[SyncMethod[P, T], AsyncMethod[P, T]]: ...
def operation(make: Any) -> tuple[SyncMethod[Any, Any], AsyncMethod[Any, Any]]:
    """Return the sync and the async method of an operation."""
    return SyncMethod(make), AsyncMethod(make)


def _steps(made: Call[T] | Steps[T]) -> Steps[T]:
    return _one(made) if isinstance(made, Call) else made


def _where(step: Call[Any] | Within) -> tuple[Call[Any], Any]:
    return (step.call, step.conn) if isinstance(step, Within) else (step, None)


def _one(call: Call[T]) -> Steps[T]:
    result: T = yield call
    return result
