"""What the generator of an operation yields, besides calls (operation.py)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.store.call import Call

T = TypeVar("T")


class Within(msgspec.Struct, frozen=True):
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
