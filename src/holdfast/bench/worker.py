"""A worker process of the bench: `python -m holdfast.bench.worker`."""

from __future__ import annotations

from holdfast.bench.app import hf
from holdfast.bench.bare import run_async
from holdfast.worker import Worker

if __name__ == "__main__":
    run_async(Worker(hf).run(handle_signals=True))
