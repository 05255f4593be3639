"""Child processes in the tests: the application of tests/support/apps/crunch.py, and what became of its processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.client.database import Database
from holdfast.model.job import Job, ids
from holdfast.settings import Settings
from holdfast.worker.prefetch import Lease
from holdfast.worker.processes import Processes
from tests.conftest import PATIENCE, wait_until
from tests.support.running import until
from tests.support.workers import APPS

sys.path.append(str(APPS))
import crunch


@pytest.fixture(name="app")
def app_fixture(dsn: str) -> Iterator[Holdfast]:
    """The application of tests/support/apps/crunch.py on the test's database."""
    crunch.hf.database = Database(Settings.load(dsn=dsn))
    yield crunch.hf
    crunch.hf.close()


def alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return [each for each in found if b"holdfast.worker.child" in Path(f"/proc/{each}/cmdline").read_bytes()]


async def pids(file: Path) -> list[int]:
    """Return what a handler recorded, once it has."""
    await asyncio.to_thread(wait_until, file.exists)
    return [int(each) for each in (await asyncio.to_thread(file.read_text)).split()]


async def gone(pid: int, seconds: float = PATIENCE) -> None:
    async def is_gone() -> bool:
        return not alive(pid)

    await until(is_gone, seconds)


@asynccontextmanager
async def processes(**settings: Any) -> AsyncIterator[Processes]:
    """Run one place for child processes, without a worker and a database."""
    pool = Processes(Settings(child_processes=1, **settings), lambda: False)
    try:
        yield pool
    finally:
        await pool.close(at_once=False)
        assert not children(os.getpid())


def job(**payload: object) -> Job:
    """Return a claimed job as a worker holds it."""
    row = (ids.make(), 7, "", json.dumps(payload), 1, 5, "default", 2, None, 0.0, None, None, 0, None, None)
    return Job(row, Lease(7, 1, 0.0, 60.0))


def discard(job: Job, done: float, total: float | None, message: str | None) -> None:
    """Ignore a report of progress."""


def last_error(info: Any) -> dict[str, Any]:
    assert info.last_error is not None
    return dict(info.last_error)
