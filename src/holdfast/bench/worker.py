"""A worker process of the bench: `python -m holdfast.bench.worker [WORKERS]`, one worker unless said otherwise."""

from __future__ import annotations

import asyncio
import signal
import sys

from holdfast.bench.app import hf
from holdfast.bench.bare import run_async
from holdfast.worker import Worker


async def run(number: int) -> None:
    """Works until told to stop."""
    workers = [Worker(hf) for _ in range(number)]

    def stop() -> None:
        for worker in workers:
            worker.stop()

    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stop)
    await asyncio.gather(*(worker.run() for worker in workers))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_async(run(int(sys.argv[1])))
    else:
        run_async(Worker(hf).run(handle_signals=True))
