"""`holdfast worker --processes`: children that are killed, that block their event loop, or whose schema moved on."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.support.pace import slower
from tests.support.program import as_json, holdfast, started

Sql = Callable[..., list[tuple[Any, ...]]]

APP = """
import asyncio
from holdfast import CONTEXT, Context, Holdfast, Retry

hf = Holdfast()
ONCE = Retry.fixed(0, max_attempts=1)

@hf.task(name="app.neighbour")
async def neighbour(*, ctx: Context = CONTEXT) -> None:
    if ctx.attempt == 1:
        await asyncio.sleep(600)

@hf.task(name="app.spin", retry=ONCE)
async def spin() -> None:
    while True:
        pass

@hf.task(name="app.hold_the_lock", retry=ONCE)
async def hold_the_lock() -> None:
    sum(range(10**13))  # no bytecode runs in it, so no other thread does

@hf.task(name="app.relay", retry=ONCE)
async def relay() -> None:
    await neighbour.aenqueue()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def enqueue(dsn: str, task: str) -> str:
    return str(as_json(holdfast(dsn, "jobs", "enqueue", task, "--json"))["id"])


def show(sql: Sql, id_: str) -> Any:
    return sql("SELECT status::text, attempts, last_error ->> 'code' FROM jobs WHERE id = %s", [id_])[0]


def running(sql: Sql, ids: list[str]) -> bool:
    return [show(sql, each)[:2] for each in ids] == [("running", 1)] * len(ids)


def pids(sql: Sql) -> set[int]:
    return {row[0] for row in sql("SELECT pid FROM workers WHERE NOT stopping")}


def test_the_jobs_of_a_killed_process_run_again_at_once(dsn: str, folder: Path, sql: Sql) -> None:
    with started(dsn, "worker", "app:hf", "--processes", "2", folder=folder) as program:
        wait_until(lambda: len(pids(sql)) == 2)
        ids = [enqueue(dsn, "app.neighbour") for _ in range(4)]
        wait_until(lambda: running(sql, ids))
        killed = sql("SELECT w.pid, w.id FROM workers w WHERE id = (SELECT min(worker) FROM claims)")[0]
        held = sql("SELECT unnest(ids)::text FROM claims WHERE worker = %s", [killed[1]])
        os.kill(killed[0], signal.SIGKILL)
        began = time.monotonic()
        for (each,) in held:
            wait_until(lambda each=each: show(sql, each) == ("succeeded", 2, "LEASE_LOST"))
        assert time.monotonic() - began < 2 * max(slower(), 5)  # the lease is 60 s
        assert sql("SELECT count(*) FROM workers WHERE id = %s", [killed[1]]) == [(0,)]
        assert "jobs reclaimed" in program.output


@pytest.mark.parametrize(
    ("task", "expected"),
    [("app.spin", "event loop is stuck"), ("app.hold_the_lock", "process ended: its event loop is stuck")],
)
def test_a_process_whose_loop_is_stuck_is_replaced_and_its_jobs_run_again(
    dsn: str, folder: Path, sql: Sql, task: str, expected: str
) -> None:
    settings = {"HOLDFAST_LOOP_TIMEOUT": "1.5", "HOLDFAST_LOOP_WARNING": "0.5", "HOLDFAST_POLL": "0.2"}
    with started(dsn, "worker", "app:hf", "--processes", "1", folder=folder, **settings) as program:
        first = wait_until(lambda: pids(sql))
        ids = [enqueue(dsn, "app.neighbour") for _ in range(3)]
        wait_until(lambda: running(sql, ids))
        stuck = enqueue(dsn, task)
        for each in ids:  # within 40 s, and the lease is 60 s
            wait_until(lambda each=each: show(sql, each) == ("succeeded", 2, "LEASE_LOST"))
        assert show(sql, stuck) == ("dead", 1, "LEASE_LOST")
        wait_until(lambda: pids(sql).isdisjoint(first))
        assert expected in program.output
        if task == "app.spin":
            assert f"task={task} job={stuck}" in program.output
            assert re.search(r"app\.py:\d+ spin", program.output)
        else:
            assert re.search(r'app\.py", line \d+ in hold_the_lock', program.output)


def test_a_worker_without_a_supervisor_ends_its_process_when_its_loop_is_stuck(dsn: str, folder: Path) -> None:
    with started(dsn, "worker", "app:hf", folder=folder, HOLDFAST_LOOP_TIMEOUT="1") as program:
        enqueue(dsn, "app.spin")
        assert program.ended() == 75
    assert "event loop is stuck" in program.output and "task=app.spin" in program.output


def test_a_process_that_an_operator_stops_is_not_started_again(dsn: str, folder: Path, sql: Sql) -> None:
    with started(dsn, "worker", "app:hf", "--processes", "2", folder=folder, HOLDFAST_UPKEEP="0.2") as program:
        wait_until(lambda: len(pids(sql)) == 2)
        first, second = (row[0] for row in sql("SELECT id FROM workers ORDER BY id"))
        holdfast(dsn, "workers", "stop", first, "--reason", "it leaks")
        wait_until(lambda: "process stopped by an operator" in program.output)
        id_ = enqueue(dsn, "app.relay")
        wait_until(lambda: show(sql, id_)[0] == "succeeded")
        assert sql("SELECT id FROM workers") == [(second,)]
        holdfast(dsn, "workers", "stop", second, "--now")
        assert program.ended() == 0
    assert "process ended by itself" not in program.output


def test_a_schema_that_moved_on_ends_the_supervisor_with_2_and_fails_no_job(dsn: str, folder: Path, sql: Sql) -> None:
    with started(dsn, "worker", "app:hf", "--processes", "1", folder=folder) as program:
        wait_until(lambda: pids(sql))
        sql("INSERT INTO schema_info VALUES (9999, now())")
        try:
            (id_,) = sql("SELECT id FROM enqueue('app.relay', '{}')")[0]
            assert program.ended() == 2
        finally:
            sql("DELETE FROM schema_info WHERE version = 9999")
    assert show(sql, id_) == ("queued", 0, None)
    assert "worker stops: the schema does not fit" in program.output
    assert "at version 9999, newer than" in program.output and "upgrade holdfast" in program.output
