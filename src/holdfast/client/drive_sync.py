# Generated from drive_async.py by tools/async_to_sync.py. Change that file, and run `make sync`.
"""Run operations: perform what they yield, and send back the results and errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.client.work import Items, Step, Steps, Within
from holdfast.store.call import Call

if TYPE_CHECKING:
    from holdfast.client.database import Database

T = TypeVar("T")


def method(make: Callable[..., Any]) -> Any:
    """Return the method that runs what `make` returns: a call, or the steps of an operation."""

    @functools.wraps(make)
    def run(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        made = make(self, *args, **kwargs)
        database: Database = self._hf.database
        return database.sync_pool.run(made) if isinstance(made, Call) else run_steps(made, database)

    return run


def iterator(make: Callable[..., Any]) -> Any:
    """Return the method that runs the steps of `make` as its caller iterates."""

    @functools.wraps(make)
    def run(self: Any, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        steps: Any = make(self, *args, **kwargs)
        result = None
        while (step := _next(steps, result)) is not None:
            if isinstance(step, Items):
                for item in step.items:
                    yield item
            else:
                result = _perform(step, self._hf.database)

    return run


def run_steps(steps: Steps[T], database: Database) -> T:
    """Run the steps of an operation. The generator gets the errors, for its `try` and `with`."""
    __tracebackhide__ = True
    try:
        step = next(steps)
        while True:
            try:
                result = _perform(step, database)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


def _perform(step: Call[Any] | Within | Step, database: Database) -> Any:
    __tracebackhide__ = True
    if isinstance(step, Call):
        return database.sync_pool.run(step)
    return database.sync_pool.run(step.call, step.conn) if isinstance(step, Within) else step.run()


def _next(steps: Any, result: Any) -> Any:
    try:
        return steps.send(result)
    except StopIteration:
        return None
