"""`holdfast worker`: a process of its own, stopped by signals, alone or supervised."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.support.program import as_json, holdfast, ran, started

Sql = Callable[..., list[tuple[Any, ...]]]

APP = """
import asyncio, pathlib, threading
from holdfast import Holdfast

hf = Holdfast()

@hf.task(name="app.touch")
async def touch(name: str) -> None:
    pathlib.Path(name).touch()

@hf.task(name="app.until")
async def until(name: str) -> str:
    while not pathlib.Path(name).exists():
        await asyncio.sleep(0.01)
    return "saw it"

@hf.task(name="app.hang")
def hang() -> None:
    threading.Event().wait()

@hf.task(name="app.mail", queue="mail")
async def mail() -> None: ...

mail.using(queue="reports").schedule("monthly", "0 3 1 * *")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project's folder with an application in it."""
    (tmp_path / "worker_app.py").write_text(APP)
    return tmp_path


def enqueue(dsn: str, *arguments: str) -> str:
    return str(as_json(holdfast(dsn, "jobs", "enqueue", *arguments, "--json"))["id"])


def status(dsn: str, id_: str) -> str:
    return str(as_json(holdfast(dsn, "jobs", "show", id_, "--json"))["status"])


def pids(sql: Sql) -> set[int]:
    return {row[0] for row in sql("SELECT pid FROM workers WHERE NOT stopping")}


def test_a_worker_runs_jobs_and_on_sigterm_finishes_them_and_exits_with_0(dsn: str, folder: Path, sql: Sql) -> None:
    with started(dsn, "worker", "worker_app:hf", "--concurrency", "2", "--poll", "0.1", folder=folder) as program:
        id_ = enqueue(dsn, "app.until", '{"name": "go"}')
        wait_until(lambda: status(dsn, id_) == "running")
        program.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "worker stopping" in program.output)
        (folder / "go").touch()
        assert program.ended() == 0
    assert "queues not served here" in program.output
    assert status(dsn, id_) == "succeeded"
    assert sql("SELECT count(*) FROM workers") == [(0,)]


def test_a_thread_that_never_ends_does_not_keep_the_process(dsn: str, folder: Path) -> None:
    with started(dsn, "worker", "worker_app:hf", "--grace", "0.2", "--log-format", "json", folder=folder) as program:
        id_ = enqueue(dsn, "app.hang")
        wait_until(lambda: status(dsn, id_) == "running")
        program.process.send_signal(signal.SIGINT)
        assert program.ended() == 0
    assert '"event":"worker stopped"' in program.output
    assert status(dsn, id_) == "queued"  # released, its attempt not counted


def test_all_queues_serves_what_tasks_and_schedules_name(dsn: str, folder: Path) -> None:
    with started(dsn, "worker", "worker_app:hf", "--all-queues", folder=folder):
        id_ = enqueue(dsn, "app.mail", "--queue", "mail")
        wait_until(lambda: status(dsn, id_) == "succeeded")
        id_ = holdfast(dsn, "schedules", "run", "monthly").stdout.strip()
        wait_until(lambda: status(dsn, id_) == "succeeded")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["worker_app:hff"], "did you mean 'hf'"),
        (["worker_apq:hf"], "did you mean 'worker_app'"),
        (["worker_app:hf", "--renew", "50"], "renew (50 s) must be at most half of lease"),
        (["worker_app:hf", "--log-level", "loud"], "log_level must be debug, info, warning or error"),
        (["worker_app:hf", "--schema", "not_there"], "run: holdfast migrate"),
        (["worker_app:hff", "--processes", "2"], "did you mean 'hf'"),
    ],
)
def test_a_wrong_setup_is_exit_code_2(dsn: str, folder: Path, arguments: list[str], why: str) -> None:
    result = ran(dsn, "worker", *arguments, folder=folder)
    assert result.returncode == 2
    assert why in result.stderr
    assert "Traceback" not in result.stderr


def test_a_supervisor_replaces_a_killed_process_and_stops_all_on_sigterm(dsn: str, folder: Path, sql: Sql) -> None:
    with started(dsn, "worker", "worker_app:hf", "--processes", "2", folder=folder) as program:
        first = wait_until(lambda: len(found := pids(sql)) == 2 and found)
        killed = first.pop()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: pids(sql) - {killed, *first})
        assert "process ended by itself" in program.output
        assert "code=-9" in program.output
        program.process.send_signal(signal.SIGTERM)
        assert program.ended() == 0
    assert sql("SELECT count(*) FROM workers") == [(0,)]  # the one that was killed too


def test_processes_of_a_killed_supervisor_stop_by_themselves(dsn: str, folder: Path, sql: Sql) -> None:
    with started(dsn, "worker", "worker_app:hf", "--processes", "2", folder=folder) as program:
        wait_until(lambda: len(pids(sql)) == 2)
        program.process.kill()
        program.ended()
        wait_until(lambda: program.output.count("worker stopped") == 2)  # logged last, after the row is gone
    assert sql("SELECT count(*) FROM workers") == [(0,)]


def test_a_second_signal_to_the_supervisor_reaches_the_processes(dsn: str, folder: Path) -> None:
    with started(dsn, "worker", "worker_app:hf", "--processes", "1", folder=folder) as program:
        id_ = enqueue(dsn, "app.until", '{"name": "never"}')
        wait_until(lambda: status(dsn, id_) == "running")
        program.process.send_signal(signal.SIGINT)
        wait_until(lambda: "worker stopping" in program.output)
        assert program.process.poll() is None
        program.process.send_signal(signal.SIGINT)
        assert program.ended() == 0
    assert status(dsn, id_) == "queued"
