"""A worker process of the long suites: `python -m bench.worker [WORKERS [FOLDER]]`, by default with one worker. When it
ends it writes the handlers' records to a file in the folder."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from bench.app import STARTS
from holdfast.bench.app import hf
from holdfast.bench.bare import run_async
from holdfast.worker import Worker, keep_what_is_loaded


async def run(number: int) -> None:
    """Run workers until SIGTERM or SIGINT."""
    workers = [Worker(hf) for _ in range(number)]

    def stop() -> None:
        for worker in workers:
            worker.stop()

    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stop)
    await asyncio.gather(*(worker.run() for worker in workers))


def main(number: str = "1", folder: str | None = None) -> None:
    """Run workers, then write the records."""
    keep_what_is_loaded()
    run_async(run(int(number)))
    if folder is not None:
        (Path(folder) / f"{os.getpid()}.json").write_bytes(msgspec.json.encode(STARTS))


if __name__ == "__main__":
    main(*sys.argv[1:])
