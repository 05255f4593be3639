"""Worker processes for tests: started, signalled, and gone at the end whatever happens."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def _path() -> str:
    return os.pathsep.join(filter(None, (str(APPS), os.environ.get("PYTHONPATH"))))


class Process:
    """One worker process; its log is in `log`, what its handlers noted in `record`."""

    def __init__(self, dsn: str, folder: Path, app: str = "recorder", **settings: object) -> None:
        self.record = folder / "record"
        self.log = folder / f"worker-{os.urandom(3).hex()}.log"
        env = os.environ | {"HOLDFAST_DSN": dsn, "RECORD": str(self.record), "PYTHONPATH": _path()}
        env |= {f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items()}
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen([sys.executable, "-c", RUN, app], env=env, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def stop(self, timeout: float = 40) -> int:
        """Stop gracefully and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.popen.wait(timeout)

    def notes(self, word: str = "") -> list[list[str]]:
        """Return the lines of the record: word, job id, attempt, pid."""
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return [line.split() for line in lines if line.startswith(word)]


@contextmanager
def worker(dsn: str, folder: Path, app: str = "recorder", **settings: object) -> Iterator[Process]:
    """Run a worker process for the length of a block."""
    process = Process(dsn, folder, app, **settings)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.popen.send_signal(signal.SIGCONT)
            process.kill()


class Fleet:
    """Worker processes of which one after the other is killed (-9) at a random moment and replaced at once."""

    def __init__(self, dsn: str, folder: Path, number: int, rng: random.Random, **settings: Any) -> None:
        self._start: Callable[[], Process] = lambda: Process(dsn, folder, **settings)
        self._rng = rng
        self.processes = [self._start() for _ in range(number)]
        self.kills = 0
        self.killed: dict[int, float] = {}  # when, by the wall clock, for each process

    def rage(self, kills: int, pause: tuple[float, float], over: Callable[[], Any]) -> None:
        """Kill this many that are at work, unless the run is over before."""
        ends = time.monotonic() + 80
        while self.kills < kills and not over():
            assert time.monotonic() < ends, f"{self.kills} of {kills} killed; see {self.processes[0].log}"
            time.sleep(self._rng.uniform(*pause))
            at_work = [n for n, each in enumerate(self.processes) if "worker started" in each.log.read_text()]
            if at_work:
                place = self._rng.choice(at_work)
                self.processes[place].kill()
                self.killed[self.processes[place].popen.pid] = time.time()
                self.processes[place] = self._start()
                self.kills += 1


@contextmanager
def fleet(dsn: str, folder: Path, number: int, rng: random.Random, **settings: Any) -> Iterator[Fleet]:
    """Run a fleet for the length of a block."""
    made = Fleet(dsn, folder, number, rng, **settings)
    try:
        yield made
    finally:
        for process in made.processes:
            if process.popen.poll() is None:
                process.popen.send_signal(signal.SIGCONT)
                process.kill()
