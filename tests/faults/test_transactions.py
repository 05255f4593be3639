"""Exactly once: what handlers write in their job's transaction, while workers are killed, frozen and brought back."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, Retry
from tests.conftest import wait_until
from tests.support.mutants import NO_TOKEN, Sql, mutant
from tests.support.workers import fleet, worker

QUICK = {"lease": 2.0, "renew": 0.3, "upkeep": 0.2, "poll": 0.1, "app": "ledger"}
JOBS = 500


@pytest.fixture
def ledger(dsn: str) -> Iterator[Callable[[], list[tuple[str, int]]]]:
    """Create the application's table and return a function for its rows: which job, which attempt."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create table if not exists public.ledger (job uuid not null, attempt int not null)")
        yield lambda: conn.execute("select job::text, attempt from public.ledger order by 1, 2").fetchall()
        conn.execute("drop table public.ledger")


def enqueue(hf: Holdfast, task: str, number: int) -> list[str]:
    def stub(n: int) -> None: ...

    return hf.task(name=task, retry=Retry.fixed(0, max_attempts=1000))(stub).enqueue_many(range(number)).ids


def check_once(sql: Sql, rows: list[tuple[str, int]], ids: list[str]) -> None:
    """Check I4: one row for each job, written by the attempt that succeeded."""
    jobs = sql("select id::text, attempts from jobs where status = 'succeeded' order by 1")
    assert sorted(ids) == [id_ for id_, _ in jobs], "a job is lost, or has not succeeded"
    assert rows == jobs, "the rows are not those of the jobs' last attempts, one each"


def run_under_kills(
    dsn: str, sql: Sql, folder: Path, rng: random.Random, jobs: int, *, workers: int = 3, kills: int = 10
) -> None:
    def over() -> bool:
        return sql("select count(*) from history") == [(jobs,)]

    with fleet(dsn, folder, workers, rng, concurrency=6, **QUICK) as killed:
        wait_until(lambda: sql("select 1 from history limit 1"), 60)
        killed.rage(kills, (0.05, 0.4), over)
        wait_until(over, 90)
    lost = sql("select count(*) from jobs where attempts > 1")[0][0]
    print(f"{killed.kills} workers killed, {lost} of {jobs} jobs were lost at least once")
    assert lost >= kills // 2, "too few jobs were lost to prove anything"


@pytest.mark.timeout(240)
def test_five_hundred_jobs_write_five_hundred_rows_while_their_workers_are_killed(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path, ledger: Any, seeded: random.Random
) -> None:
    ids = [*enqueue(hf, "on_loop", JOBS // 2), *enqueue(hf, "in_thread", JOBS // 2)]
    run_under_kills(dsn, sql, tmp_path, seeded, JOBS)
    check_once(sql, ledger(), ids)


@pytest.mark.timeout(240)
def test_rows_of_child_processes_are_written_once_while_their_workers_are_killed(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path, ledger: Any, seeded: random.Random
) -> None:
    ids = enqueue(hf, "in_process", 60)
    run_under_kills(dsn, sql, tmp_path, seeded, 60, workers=2, kills=3)
    check_once(sql, ledger(), ids)


@pytest.mark.timeout(240)
def test_the_check_goes_red_for_rows_written_beside_the_transaction(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path, ledger: Any, seeded: random.Random
) -> None:
    ids = enqueue(hf, "outside", 120)
    run_under_kills(dsn, sql, tmp_path, seeded, 120, workers=2, kills=3)
    with pytest.raises(AssertionError, match="not those of the jobs' last attempts"):
        check_once(sql, ledger(), ids)
    assert len(ledger()) > 120, "some rows are there twice"


# -- a worker that freezes inside its transaction and comes back

RETURNS_REFUSALS = "return query (select unnest(p_ids)"
SILENT = {"finish": [(RETURNS_REFUSALS, f"return; {RETURNS_REFUSALS}")]}


@contextmanager
def zombie_and_owner(dsn: str, sql: Sql, folder: Path, schema: str) -> Iterator[tuple[Any, Any]]:
    """Yield a worker frozen in its transaction for longer than its lease, and another that has the job now: both have
    written, and neither has committed."""
    sql('select enqueue(\'frozen\', p_max_attempts => 9, p_retry => \'{"kind": "fixed", "delay": 0}\')')
    with worker(dsn, folder, schema=schema, **QUICK) as zombie:
        wait_until(lambda: zombie.notes("written"))
        zombie.signal(signal.SIGSTOP)
        with worker(dsn, folder, schema=schema, **QUICK) as owner:
            wait_until(lambda: len(owner.notes("written")) == 2)
            yield zombie, owner


def come_back(zombie: Any, folder: Path) -> None:
    """Let the zombie go on until it has committed or is refused."""
    (folder / "go-1").touch()
    zombie.signal(signal.SIGCONT)
    wait_until(lambda: [note for note in (*zombie.notes("committed"), *zombie.notes("refused")) if note[2] == "1"])


def check_zombie(dsn: str, sql: Sql, folder: Path, schema: str, ledger: Any, *, owner_first: bool) -> None:
    with zombie_and_owner(dsn, sql, folder, schema) as (zombie, owner):
        if owner_first:
            (folder / "go-2").touch()
            wait_until(lambda: sql("select 1 from history"))
        come_back(zombie, folder)
        (folder / "go-2").touch()
        wait_until(lambda: sql("select 1 from history where status = 'succeeded'"))
        assert owner.stop() == 0
        zombie.kill()
    ((id_,),) = sql("select id::text from jobs")
    check_once(sql, ledger(), [id_])


@pytest.mark.parametrize("owner_first", [True, False], ids=["after the owner", "before the owner"])
def test_a_frozen_worker_that_comes_back_adds_no_row(
    dsn: str, sql: Sql, tmp_path: Path, ledger: Any, owner_first: bool
) -> None:
    check_zombie(dsn, sql, tmp_path, "holdfast", ledger, owner_first=owner_first)


def test_the_zombie_check_goes_red_without_the_token_predicate(dsn: str, tmp_path: Path, ledger: Any) -> None:
    """It is accepted in the owner's place: one row, of an attempt that had lost the job."""
    with mutant(dsn, NO_TOKEN) as sql, pytest.raises(AssertionError, match="not those of the jobs' last attempts"):
        check_zombie(dsn, sql, tmp_path, "mutant", ledger, owner_first=False)
    assert len(ledger()) == 1


def test_the_zombie_check_goes_red_when_finish_does_not_say_what_it_refused(
    dsn: str, tmp_path: Path, ledger: Any
) -> None:
    """Then both commit: two rows."""
    with mutant(dsn, SILENT) as sql, pytest.raises(AssertionError, match="not those of the jobs' last attempts"):
        check_zombie(dsn, sql, tmp_path, "mutant", ledger, owner_first=True)
    assert len(ledger()) == 2
