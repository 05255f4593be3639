"""The worker: claims jobs, runs their handlers, and finishes them."""

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.worker.loop import Worker

__all__ = ["Worker", "keep_what_is_loaded"]


def __getattr__(name: str) -> Any:
    """Import Worker on first use: a child process imports from here too, and starts in half the time without it."""
    if name == "Worker":
        from holdfast.worker.loop import Worker

        return Worker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def keep_what_is_loaded() -> None:
    """Exclude loaded modules and models from garbage collection, because they stay until the process ends.

    Scanning them took 60 ms every few seconds in a service, and up to a fifth of a worker's time. Collections also
    become less frequent, unless the application has set a threshold: scanning spans that wait for export took a tenth
    of a traced drain.
    """
    gc.collect()
    gc.freeze()
    if gc.get_threshold()[0] in (700, 2000):  # Python's defaults, which differ by version
        gc.set_threshold(10_000)
