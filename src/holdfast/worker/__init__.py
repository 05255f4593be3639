"""The worker: claims jobs, runs their handlers, and finishes them."""

from holdfast.worker.loop import Worker

__all__ = ["Worker"]
