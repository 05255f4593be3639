"""The context as handlers without `async` see it: the same object, whose waits return values, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from holdfast.model.context import Context

R = TypeVar("R")
T = TypeVar("T")

if TYPE_CHECKING:
    from holdfast.client import Enqueuer
    from holdfast.client.children import ChildBatch, Gathered
    from holdfast.model.retry import Retry

    class SyncContext(Context):
        """Annotates the context of a handler that is not async: `def order(*, ctx: SyncContext)`."""

        def step(  # type: ignore[override]
            self,
            name: str,
            function: Callable[..., R],
            /,
            *args: Any,
            undo: Enqueuer[Any, Any] | None = None,
            retry: Retry | None = None,
            timeout: float | None = None,
            runner: Literal["thread", "process"] | None = None,
            **kwargs: Any,
        ) -> R: ...

        def sleep(  # type: ignore[override]
            self, name: str, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
        ) -> None: ...

        @overload  # type: ignore[override]
        def wait_for(self, name: str, *, timeout: float | None = None, type: type[T]) -> T: ...
        @overload
        def wait_for(self, name: str, *, timeout: float | None = None) -> Any: ...
        def wait_for(self, name: str, *, timeout: float | None = None, type: Any = Any) -> Any: ...

        def gather(self, batch: ChildBatch, *, failures: float = 0.0) -> Gathered: ...  # type: ignore[override]

        def call(self, name: str, task: Enqueuer[..., R], /, *args: Any, **kwargs: Any) -> R: ...  # type: ignore[override]

else:
    SyncContext = Context
