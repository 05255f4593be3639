"""Poison beside healthy work in one worker: each poisonous attempt fails alone, and other jobs are unaffected."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import Status
from holdfast.client.database import Database
from holdfast.settings import Settings
from tests.conftest import wait_until
from tests.support.workers import APPS, worker

sys.path.append(str(APPS))
import poison

Sql = Callable[..., list[tuple[Any, ...]]]
LEASE = 3.0
MESSAGES = {
    "exits": ("PROCESS_DIED", "exited with code 1 while running the job (the process of task 'poison.exits')"),
    "segfaults": ("PROCESS_DIED", "killed by SIGSEGV (Segmentation fault) while running the job"),
    "allocates": (None, "out of memory; its process may use 512 MB (process_memory)"),
    "spins": ("TIMEOUT", "task 'poison.spins' ran longer than its timeout of 1 s; its process was killed"),
    "holds_the_lock": ("TIMEOUT", "ran longer than its timeout of 7 s; its process was killed"),
}
FINAL = "select count(*) from jobs where status in ('succeeded', 'failed', 'dead', 'canceled')"


def enqueue() -> tuple[dict[str, str], list[str]]:
    """Enqueue the poisonous jobs by name, and 100 healthy ones of every kind around them."""
    healthy = [poison.healthy_async, poison.healthy_thread, poison.healthy_process]
    bad, good, names = {}, [], list(MESSAGES)
    for n in range(100):
        if n % 20 == 5:
            name = names[n // 20]
            bad[name] = getattr(poison, name).enqueue().id
        good.append(healthy[n % 3].enqueue(n).id)
    return bad, good


def test_poison_kills_its_own_attempts_and_nothing_else(dsn: str, sql: Sql, tmp_path: Path) -> None:
    assert poison.holds_the_lock.timeout is not None and poison.holds_the_lock.timeout > 2 * LEASE
    poison.hf.database = Database(Settings.load(dsn=dsn))
    quick = {"lease": LEASE, "renew": 0.5, "upkeep": 0.2, "poll": 0.1}
    with poison.hf as hf, worker(dsn, tmp_path, "poison", child_processes=2, process_memory=512, **quick) as process:
        bad, good = enqueue()
        wait_until(lambda: sql(FINAL) == [(105,)], 80)
        assert process.popen.poll() is None, "the worker lives"
        assert process.stop() == 0
        log = process.log.read_text()
        for name, (code, message) in MESSAGES.items():
            info = hf.jobs.get(bad[name])
            assert info is not None and (info.status, info.attempts) == (Status.DEAD, 2), name
            assert info.last_error is not None and info.last_error.get("code") == code
            assert message in info.last_error["message"]
        fault = hf.jobs.get(bad["segfaults"])
        assert fault is not None and fault.last_error is not None
        assert "Fatal Python error: Segmentation fault" in fault.last_error["output"]
        assert "poison.py" in fault.last_error["output"] and "in segfaults" in fault.last_error["output"]
    counted = "select status::text, attempts, count(*) from jobs where id = any(%s::uuid[]) group by 1, 2"
    assert sql(counted, [good]) == [("succeeded", 1, 100)]
    assert sql("select count(distinct locked_by) from jobs") == [(1,)]
    assert not re.search("lease reclaimed|leases lost", log), log
    assert sql("select count(*) from jobs where last_error ->> 'code' = 'LEASE_LOST'") == [(0,)]
