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

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from holdfast.client.drive_async import aiterator, amethod, arun_steps
from holdfast.client.drive_sync import iterator, method, run_steps
from holdfast.client.work import Items, Step, Steps, Within, sleep
from holdfast.store.call import Call

if TYPE_CHECKING:
    from holdfast.client.app import Holdfast
    from holdfast.store.calls import Calls

__all__ = [
    "Items",
    "Noun",
    "Step",
    "Steps",
    "Within",
    "arun_steps",
    "is_operation",
    "iteration",
    "operation",
    "run_steps",
    "sleep",
]
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
    return _named(method(make), ""), _named(amethod(make), "a")


def iteration(
    make: Callable[Concatenate[N, P], Generator[Call[Any] | Items[T], Any, None]],
) -> tuple[Callable[Concatenate[N, P], Iterator[T]], Callable[Concatenate[N, P], AsyncIterator[T]]]:
    """Return the sync and the async method of an operation that is done step by step, as its caller iterates."""
    return _named(iterator(make), ""), _named(aiterator(make), "a")


def is_operation(function: Any) -> bool:
    """Return whether a function was made by operation()."""
    return getattr(function, "__wrapped__", None) is not None and hasattr(function, "operation")


def _named(function: Any, prefix: str) -> Any:
    owner, _, name = function.__qualname__.rpartition(".")
    function.__name__ = prefix + name.lstrip("_")
    function.__qualname__ = f"{owner}.{function.__name__}"
    function.operation = True
    return function
