"""A fleet whose leaders are killed or frozen: a schedule that comes due each second is fired once for each slot."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.support.workers import Process, worker

Sql = Callable[..., list[tuple[Any, ...]]]
LONG = os.environ.get("HOLDFAST_TEST_LONG") == "1"
SECONDS = 60 if LONG else 12
WHY = f"{SECONDS} s of slots and quick upkeep only; HOLDFAST_TEST_LONG=1 makes it 60 s, and the default upkeep as well"
QUICK = {"lease": 1.0, "renew": 0.3, "upkeep": 0.3, "poll": 0.1}


@pytest.fixture(
    params=[
        pytest.param(QUICK, id="quick upkeep"),
        pytest.param({}, id="default upkeep", marks=pytest.mark.skipif(not LONG, reason=WHY)),
    ]
)
def fleet(request: pytest.FixtureRequest, dsn: str, sql: Sql, tmp_path: Path) -> Iterator[dict[int, Process]]:
    """Three workers by process id, all of them at work."""
    with ExitStack() as stack:
        started = [stack.enter_context(worker(dsn, tmp_path, "ticker", **request.param)) for _ in range(3)]
        wait_until(lambda: sql("select count(*) from workers") == [(3,)])
        yield {process.popen.pid: process for process in started}


def leader(sql: Sql) -> tuple[str, int]:
    """Return the id and the process of the worker that leads."""
    ((found, pid),) = sql("select w.id, w.pid from leader l join workers w on w.id = l.worker")
    return found, pid


def slots(sql: Sql) -> list[datetime]:
    return [row[0] for row in sql("select run_at from jobs where task = 'tick' order by run_at")]


def wait_for(sql: Sql, moment: datetime) -> None:
    """Wait for a moment when no job runs: one that is lost with its worker gets another run_at, and we count those."""
    query = "select clock_timestamp() >= %s and not exists (select 1 from live where token is not null)"
    wait_until(lambda: sql(query, [moment]) == [(True,)], SECONDS + 40, every=0.005)


def check(sql: Sql, first: datetime, seconds: int) -> list[datetime]:
    """Check that each slot of this many seconds was fired exactly once, and return the slots."""
    expected = [first + timedelta(seconds=n) for n in range(seconds)]
    wait_until(lambda: slots(sql)[-1] >= expected[-1], seconds + 60)
    counted = Counter(slot for slot in slots(sql) if slot <= expected[-1])
    assert [slot for slot in expected if slot not in counted] == [], "slots were left out"
    assert [slot for slot, times in counted.items() if times > 1] == [], "slots were fired twice"
    assert sorted(counted) == expected
    return expected


@pytest.mark.timeout(200)
def test_each_slot_is_fired_once_though_the_leader_is_killed_twice(sql: Sql, fleet: dict[int, Process]) -> None:
    first = wait_until(lambda: slots(sql))[0]
    killed = []
    for part, phase in ((1, 0.05), (2, 0.98)):  # right after a slot, and right before one
        wait_for(sql, first + timedelta(seconds=SECONDS * part // 3 + phase))
        worker_id, pid = leader(sql)
        fleet.pop(pid).kill()
        killed.append(worker_id)
    expected = check(sql, first, SECONDS)
    assert len(set(killed)) == 2
    report(sql, expected)


@pytest.mark.parametrize("fleet", [QUICK], indirect=True, ids=["quick upkeep"])
def test_a_leader_that_freezes_and_wakes_up_beside_the_next_fires_nothing_twice(
    sql: Sql, fleet: dict[int, Process]
) -> None:
    first = wait_until(lambda: slots(sql))[0]
    wait_for(sql, first + timedelta(seconds=1.98))
    frozen, pid = leader(sql)
    fleet[pid].signal(signal.SIGSTOP)
    wait_until(lambda: leader(sql)[0] != frozen)
    last = wait_until(lambda: (found := slots(sql))[-1] > first + timedelta(seconds=3) and found[-1])
    fleet[pid].signal(signal.SIGCONT)
    check(sql, first, round((last - first).total_seconds()) + 4)


def report(sql: Sql, expected: list[datetime]) -> None:
    """Print how late the slots were fired, for `pytest -s`."""
    late = "extract(epoch from created_at - run_at)::float8"
    query = f"select percentile_disc(array[0.5, 0.9, 1]) within group (order by {late}) from jobs where run_at <= %s"
    ((found,),) = sql(query, [expected[-1]])
    print(f"{len(expected)} slots, each fired once; late by p50, p90, max: {[f'{each:.3f} s' for each in found]}")
