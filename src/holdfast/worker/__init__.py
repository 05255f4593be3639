"""The worker: claims jobs, runs their handlers, and finishes them."""

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.worker.loop import Worker

__all__ = ["Worker", "keep_what_is_loaded"]


def __getattr__(name: str) -> Any:
    """Worker, when it is asked for: a child process imports from here too, and starts in half the time without it."""
    if name == "Worker":
        from holdfast.worker.loop import Worker

        return Worker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def keep_what_is_loaded() -> None:
    """Modules and models stay until the end of the process, so the garbage collector need not look through them again:
    in a service that took 60 ms every few seconds, in a worker up to a fifth of its time. And it looks more seldom,
    unless the application has said how often: spans that wait for their export were a tenth of what a traced drain
    costs."""
    gc.collect()
    gc.freeze()
    if gc.get_threshold()[0] in (700, 2000):  # Python's own, which differ by version
        gc.set_threshold(10_000)
