"""The worker: claims jobs, runs their handlers, and finishes them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.worker.loop import Worker

__all__ = ["Worker"]


def __getattr__(name: str) -> Any:
    """Worker, when it is asked for: a child process imports from here too, and starts in half the time without it."""
    if name == "Worker":
        from holdfast.worker.loop import Worker

        return Worker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
