"""Workers that are killed while they run jobs of steps: what a step commits is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Retry
from tests.conftest import wait_until
from tests.support.workers import Process, worker

Sql = Callable[..., list[tuple[Any, ...]]]
QUICK = {"lease": 1.0, "renew": 0.2, "upkeep": 0.1, "poll": 0.1, "app": "killed"}
KILLED = ("end-pay", "begin-pack", "end-van", "end-bill")


@pytest.fixture
def ledger(sql: Sql) -> Iterator[None]:
    sql("drop table if exists public.ledger")
    sql("create table public.ledger (job uuid not null, step text not null)")
    yield
    sql("drop table public.ledger")


def wanted(hf: Holdfast) -> Any:
    """Return the client's side of tests/support/apps/killed.py."""

    async def order(order: str) -> list[str]: ...

    return hf.task(name="order", retry=Retry.fixed(0, max_attempts=1000))(order)


def reached(process: Process, word: str) -> Callable[[], Any]:
    return lambda: process.notes(word + " ")


@pytest.mark.usefixtures("ledger")
def test_steps_take_effect_once_however_often_their_worker_is_killed(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path
) -> None:
    job = wanted(hf).enqueue("o-1")
    for word in KILLED:
        with worker(dsn, tmp_path, **QUICK) as killed:
            if word == "end-bill":
                wait_until(lambda: sql("select 1 from later where waits_for = 'signal approved'"))
                assert hf.signal("approved", "ann")
            wait_until(reached(killed, word))
            killed.kill()
    with worker(dsn, tmp_path, **QUICK) as last:
        assert job.result(timeout=40) == ["pay", "pack", "o-1 delivered", "ann", "bill"]
    assert Counter(sql("select step, count(*) from public.ledger group by step")) == Counter(
        [("pay", 1), ("pack", 1), ("van", 1), ("bill", 1)]
    )
    pids = {note[3] for note in last.notes()}
    assert len(pids) >= len(KILLED), "each was killed at work"
    assert sql("select (select count(*) from endings), (select count(*) from steps where finished_at is null)") == [
        (0, 0)
    ]
