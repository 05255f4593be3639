"""Worker processes for tests: started, signalled, and gone at the end whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

APPS = Path(__file__).parent / "apps"
RUN = """
import asyncio, sys
from importlib import import_module
from holdfast.telemetry import logs
from holdfast.worker import Worker
logs.configure("console", "info")
app = import_module(sys.argv[1])
asyncio.run(Worker(app.hf).run(handle_signals=True))
"""


class Process:
    """One worker process; its log is in `log`, what its handlers noted in `record`."""

    def __init__(self, dsn: str, folder: Path, app: str = "recorder", **settings: object) -> None:
        self.record = folder / "record"
        self.log = folder / f"worker-{os.urandom(3).hex()}.log"
        env = os.environ | {"HOLDFAST_DSN": dsn, "RECORD": str(self.record), "PYTHONPATH": str(APPS)}
        env |= {f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items()}
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen([sys.executable, "-c", RUN, app], env=env, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def stop(self, timeout: float = 40) -> int:
        """A graceful stop; answers the exit code."""
        self.signal(signal.SIGTERM)
        return self.popen.wait(timeout)

    def notes(self, word: str = "") -> list[list[str]]:
        """The lines of the record: word, job id, attempt, pid."""
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return [line.split() for line in lines if line.startswith(word)]


@contextmanager
def worker(dsn: str, folder: Path, app: str = "recorder", **settings: object) -> Iterator[Process]:
    """A worker process for the length of a block."""
    process = Process(dsn, folder, app, **settings)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.popen.send_signal(signal.SIGCONT)
            process.kill()
