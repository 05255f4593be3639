"""HS1, HS2: jobs that emit in their transaction and workers that deliver, while workers are killed and the database is
restarted. Each message is there once, is sent at least once, and no repeat is unmarked."""

from __future__ import annotations

import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, Retry
from holdfast.store.dev.embedded import EmbeddedPostgres
from tests.conftest import wait_until
from tests.support.ledger_receiver import Arrival, Receiver, receiver
from tests.support.mutants import Sql, mutant
from tests.support.workers import Fleet, fleet, worker

LONG = os.environ.get("HOLDFAST_TEST_LONG") == "1"
JOBS = 5000 if LONG else 400
PARTS = 10 if LONG else 2  # batches of jobs, so that jobs and messages are under way at the same time
KILLS = 40 if LONG else 5  # at least
PACE = (30, 200) if LONG else (20, 80)  # jobs that end between two kills
QUICK = {"lease": 2.0, "renew": 0.3, "upkeep": 0.2, "poll": 0.1, "app": "sending", "queues": "default,outbox"}
TENANTS = [None, "acme", "a/b", "50%"]
DUPLICATES = """
SELECT idempotency_key, COUNT(*)
FROM outbox
GROUP BY idempotency_key
HAVING COUNT(*) > 1;
"""
TABLES = "create table public.rows (n int not null); create table public.streams (stream text primary key, last int)"
Query = Callable[..., list[tuple[Any, ...]]]


# -- what must hold


@dataclass(frozen=True)
class Found:
    """The final state, when everything has ended."""

    jobs: int
    unfinished: list[Any]
    outbox: list[tuple[str, str]]  # idempotency key, status
    duplicates: list[Any]
    rows: list[int]
    arrivals: list[Arrival]
    left: list[Any]


def find(sql: Query, arrivals: list[Arrival], jobs: int) -> Found:
    left = "select count(*) from live union all select count(*) from later union all select count(*) from claims \
            union all select count(*) from kept_orders"
    return Found(
        jobs,
        sql("select id, status::text, last_error from jobs where status <> 'succeeded'"),
        sql("select idempotency_key, status from outbox"),
        sql(DUPLICATES),
        [n for (n,) in sql("select n from public.rows")],
        arrivals,
        [count for (count,) in sql(left) if count] + sql("select * from limit_drift"),
    )


def key_of(n: int) -> str:
    tenant = (TENANTS[n % 4] or "").replace("%", "%25").replace("/", "%2F")
    return f"{'asking' if n % 2 else 'blind'}/{tenant}/order-{n}"


def check(found: Found) -> None:
    """Check all guarantees for what was emitted, and how it was sent."""
    keys = [key_of(n) for n in range(found.jobs)]
    assert found.unfinished == [], "jobs have not succeeded"
    assert found.duplicates == [], "keys are in the outbox twice"
    assert sorted(key for key, _ in found.outbox) == sorted(keys), "the outbox is not one message for each key"
    assert {status for _, status in found.outbox} == {"delivered"}
    assert sorted(found.rows) == list(range(found.jobs)), "rows and messages were not committed together, once"
    assert {each.key for each in found.arrivals} == set(keys), "the receiver has not seen every key"
    check_repeats(found.arrivals)
    check_orders(found.arrivals)
    acted = Counter(each.n for each in found.arrivals if each.acted)
    assert acted == Counter(range(found.jobs)), "a receiver that honors the key has not acted once on each"
    assert found.left == [], "something was left behind"


def check_repeats(arrivals: list[Arrival]) -> None:
    """Check that each repeat had `maybe_sent`, and that a sender that looked its key up first never sent twice."""
    keys: set[str] = set()
    for each in arrivals:
        assert each.key not in keys or each.maybe_sent, f"sent again by one who did not know: {each}"
        assert each.key not in keys or each.channel != "asking", f"sent again by one who asks: {each}"
        keys.add(each.key)
    attempts = Counter((each.key, each.attempt) for each in arrivals)
    assert set(attempts.values()) <= {1}, "an attempt has sent twice"


def check_orders(arrivals: list[Arrival]) -> None:
    """Check for 1, 2, 3, ... in each order; only the last one sent may be sent again, with `maybe_sent`."""
    last: dict[str, int] = defaultdict(int)
    for each in arrivals:
        if each.order:
            step = each.number - last[each.order]
            assert step == 1 or (step == 0 and each.maybe_sent), f"out of order after {last[each.order]}: {each}"
            last[each.order] = each.number


# -- a run


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that a test may stop."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("pg")) as server:
        Holdfast(server.dsn()).migrate()
        yield server


@contextmanager
def tables(dsn: str) -> Iterator[None]:
    """Create the application's tables for the length of a block."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(TABLES)
        conn.execute("insert into public.streams select 'stream-' || n, 0 from generate_series(0, 19) n")
    try:
        yield
    finally:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("drop table public.rows, public.streams")


def load(dsn: str, schema: str, numbers: range) -> None:
    """Enqueue one job for each number, and for every fifth two: adjacent, or of different tasks. (HS1: "two workers
    claim same time window".)"""

    def stub(n: int) -> None: ...

    retry = Retry.fixed(0, max_attempts=1000)
    with Holdfast(dsn, schema=schema) as hf:
        tasks = [hf.task(name=name, retry=retry)(stub) for name in ("on_loop", "in_thread")]
        for task, rest in zip(tasks, (0, 1), strict=True):
            mine = [n for n in numbers if n // 4 % 2 == rest or n % 10 == 5]
            for place, tenant in enumerate(TENANTS):
                task.using(tenant=tenant).enqueue_many(
                    [n for n in mine if n % 4 == place for _ in range(2 if n % 10 == 0 else 1)]
                )


def asker(dsn: str, schema: str) -> Query:
    """Return a runner of SQL with a new connection each time: the server may have been restarted."""
    options = f"-c search_path={schema},pg_temp -c statement_timeout=60s"

    def sql(query: str, params: Any = None) -> list[tuple[Any, ...]]:
        with psycopg.connect(dsn, autocommit=True, options=options) as conn:
            return conn.execute(query, params).fetchall()

    return sql


def delivered(sql: Query) -> int:
    return int(sql("select count(*) from history where starts_with(task, 'channel:')")[0][0])


def ended(sql: Query) -> int:
    return int(sql("select count(*) from history")[0][0])


def kill(killed: Fleet, sql: Query, rng: random.Random, pace: tuple[int, int], over: Callable[[], Any]) -> None:
    """Kill one worker after the other, each after some more jobs have ended: as many kills on a slow machine."""
    while not over():
        mark = ended(sql) + rng.randint(*pace)
        wait_until(lambda mark=mark: ended(sql) >= mark or over(), 60, every=0.05)
        killed.rage(killed.kills + 1, (0, 0.1), over)


def drain(sql: Query) -> None:
    """Let everything come to an end without further faults. The claim of a killed worker stays until it expires, even
    if its jobs have ended."""
    over = "select not exists (table live) and not exists (table later) and not exists (table claims)"
    wait_until(lambda: sql(over) == [(True,)], 90, every=0.1)


@contextmanager
def listening(
    folder: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, broken: str = ""
) -> Iterator[Receiver]:
    """Run the receiver, and set where the workers find it."""
    seed = rng.randrange(2**32)
    with receiver(folder, seed) as at:
        for name, value in (("RECEIVER", at.port), ("SEED", seed), ("BROKEN", broken)):
            monkeypatch.setenv(name, str(value))
        yield at


def again(arrivals: list[Arrival]) -> list[Arrival]:
    """Return the arrivals that were not the first of their key."""
    keys: set[str] = set()
    return [each for each in arrivals if each.key in keys or keys.add(each.key)]


class Storm:
    """Jobs in parts, kills all along, and a restart in the middle part; then the drain."""

    def __init__(self, server: EmbeddedPostgres, killed: Fleet, rng: random.Random) -> None:
        self._server, self._killed, self._rng = server, killed, rng
        self.sql = asker(server.dsn(), "holdfast")
        self.down = 0.0

    def run(self) -> None:
        loaded = 0
        for part in range(PARTS):
            upto = JOBS * (part + 1) // PARTS
            load(self._server.dsn(), "holdfast", range(loaded, upto))
            if part == PARTS // 2:
                self._kill(loaded + (upto - loaded) // 3)
                self._restart()
            self._kill(loaded + (upto - loaded) * 3 // 4)
            loaded = upto
        drain(self.sql)

    def _kill(self, upto: int) -> None:
        """Kill workers until this many messages are delivered."""
        kill(self._killed, self.sql, self._rng, PACE, lambda: delivered(self.sql) >= upto)

    def _restart(self) -> None:
        began = time.monotonic()
        self._server.stop("immediate")
        self._killed.rage(self._killed.kills + 1, (0, 0.4), lambda: False)
        self._server.start()
        self.down = time.monotonic() - began


@pytest.mark.timeout(480 if LONG else 240)
def test_every_message_is_there_once_and_no_repeat_is_unmarked_while_workers_are_killed_and_postgres_restarts(
    own_server: EmbeddedPostgres, tmp_path: Path, seeded: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, began = own_server.dsn(), time.monotonic()
    with listening(tmp_path, seeded, monkeypatch) as at, tables(dsn):
        with fleet(dsn, tmp_path, 4, seeded, concurrency=10, **QUICK) as killed:
            storm = Storm(own_server, killed, seeded)
            storm.run()
        found = find(storm.sql, at.arrivals, JOBS)
        lost = dict(storm.sql("select starts_with(task, 'channel:'), count(*) from jobs where attempts > 1 group by 1"))
        print(f"{time.monotonic() - began:.0f} s, {killed.kills} workers killed, postgres down for {storm.down:.1f} s")
        report(found, at, killed.killed, lost)
        check(found)
    assert killed.kills >= KILLS, "too few workers were killed to prove anything"
    assert len(again(found.arrivals)) > KILLS // 2, "too few messages were sent again to prove anything"
    assert [each for each in at.lines("lookup") if each["known"]], "no resend was avoided by a lookup"
    assert min(lost[False], lost[True]) > KILLS // 2, "too few jobs were lost to prove anything"


def report(found: Found, at: Receiver, killed: dict[int, float], lost: dict[bool, int]) -> None:
    """Print the figures, for `pytest -s`."""
    repeats, lookups = again(found.arrivals), at.lines("lookup")
    flagged = sum(each.maybe_sent for each in found.arrivals) - len(repeats)
    first = {each.key: each for each in reversed(found.arrivals)}
    print(
        f"{len(found.outbox)} messages, {len(found.duplicates)} keys twice, {len(found.rows)} rows; second attempts of "
        f"{lost.get(False)} jobs and {lost.get(True)} deliveries\n"
        f"{len(found.arrivals)} arrivals of {len(first)} keys: {len(repeats)} sent again, "
        f"{sum(not each.maybe_sent for each in repeats)} of them by one who did not know; "
        f"{sum(first[each.key].pid in killed for each in repeats)} after the sender was killed\n"
        f"{flagged} flagged and not sent before; {len(lookups)} lookups, {sum(each['known'] for each in lookups)} "
        f"resends avoided; {len(at.lines('busy'))} times busy; {sum(each.acted for each in found.arrivals)} acted on "
        f"by key; {sum(each.order is not None for each in found.arrivals)} arrived in order"
    )


# -- HS2 in document 003's words: "recovery worker reclaims and checks outbox before resend"


def emitting(hf: Holdfast, within: bool) -> str:
    def stub(n: int, within: bool) -> None: ...

    return hf.task(name="emits_and_hangs", retry=Retry.fixed(0, max_attempts=9))(stub).enqueue(7, within).id


def test_a_reclaimed_job_that_emits_again_gets_the_first_id_and_nothing_is_sent_twice(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path, seeded: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(tmp_path, seeded, monkeypatch) as at:
        job = emitting(hf, within=False)
        with worker(dsn, tmp_path, **QUICK) as first:
            wait_until(lambda: first.notes("emitted") and sql("select 1 from outbox where status = 'delivered'"))
            first.kill()
        with worker(dsn, tmp_path, **QUICK) as second:
            wait_until(lambda: sql("select 1 from jobs where id = %s and status = 'succeeded'", [job]))
            assert second.stop() == 0
        ((id_, key),) = sql("select id::text, idempotency_key from outbox")
        assert second.notes("emitted") == [["emitted", "1", id_, "False"], ["emitted", "2", id_, "True"]]
        assert [(each.key, each.maybe_sent) for each in at.arrivals] == [(key, False)] == [("blind//order-7", False)]
        assert sql(DUPLICATES) == []


def test_messages_of_a_killed_jobs_transaction_were_never_there(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path, seeded: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(tmp_path, seeded, monkeypatch) as at:
        emitting(hf, within=True)
        with worker(dsn, tmp_path, **QUICK) as first:
            wait_until(lambda: first.notes("emitted"))
            first.kill()
        assert sql("select * from outbox") == []
        with worker(dsn, tmp_path, **QUICK) as second:
            wait_until(lambda: sql("select 1 from outbox where status = 'delivered'"))
            assert second.stop() == 0
        assert [note[3] for note in second.notes("emitted")] == ["False", "False"]
        assert [(each.key, each.maybe_sent) for each in at.arrivals] == [("blind//order-7", False)]


# -- the checks go red: for facts that were tampered with, and for runs in which something is broken


def arrival(n: int, **more: Any) -> Arrival:
    number = {0: 1, 60: 2, 120: 3}.get(n, 0)
    base = Arrival(key_of(n), n, key_of(n).partition("/")[0], "stream-0" if number else None, number, 1, False)
    return replace(base, **more)


def good() -> Found:
    """Return what a run may leave: 0, 60 and 120 are in order, and 4 and 60 were sent again with `maybe_sent`."""
    arrivals = [arrival(n) for n in range(121)]
    arrivals[61:61] = [arrival(n, attempt=2, maybe_sent=True, acted=False) for n in (60, 4)]
    outbox = [(key_of(n), "delivered") for n in range(121)]
    return Found(121, [], outbox, [], list(range(121)), arrivals, [])


def with_last(found: Found, **more: Any) -> Found:
    """Add one more arrival, sent again."""
    return replace(
        found, arrivals=[*found.arrivals, arrival(**{"attempt": 3, "maybe_sent": True, "acted": False} | more)]
    )


Tampers = Callable[[Found], Found]
TAMPERED: dict[str, tuple[str, Tampers]] = {
    "a job failed": ("have not succeeded", lambda it: replace(it, unfinished=[1])),
    "a key is there twice": ("in the outbox twice", lambda it: replace(it, duplicates=[("k", 2)])),
    "a message is missing": ("one message for each key", lambda it: replace(it, outbox=it.outbox[1:])),
    "a message too many": ("one message for each key", lambda it: replace(it, outbox=it.outbox + it.outbox[:1])),
    "a message was not delivered": ("delivered", lambda it: replace(it, outbox=[(key_of(0), "dead"), *it.outbox[1:]])),
    "a row is missing": ("committed together", lambda it: replace(it, rows=it.rows[1:])),
    "a row is there twice": ("committed together", lambda it: replace(it, rows=[*it.rows, 5])),
    "a message did not arrive": ("seen every key", lambda it: replace(it, arrivals=it.arrivals[:-1])),
    "sent again and not flagged": ("did not know", lambda it: with_last(it, n=2, maybe_sent=False)),
    "sent again by one who asks": ("one who asks", lambda it: with_last(it, n=3)),
    "an attempt sent twice": ("attempt has sent twice", lambda it: with_last(it, n=4, attempt=2)),
    "an old one of an order": ("out of order", lambda it: with_last(it, n=60)),
    "a gap in an order": (
        "out of order",
        lambda it: replace(it, arrivals=[a for a in reversed(it.arrivals) if a.acted]),
    ),
    "acted on twice": ("acted once", lambda it: with_last(it, n=4, acted=True)),
    "never acted on": (
        "acted once",
        lambda it: replace(it, arrivals=[replace(a, acted=a.n != 7) for a in it.arrivals]),
    ),
    "something is left": ("left behind", lambda it: replace(it, left=[1])),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_the_check_goes_red_when(what: str) -> None:
    message, tampers = TAMPERED[what]
    check(good())
    with pytest.raises(AssertionError, match=message):
        check(tampers(good()))


Enough = Callable[[Sql, Receiver], Any]
LOST_ROW = """
select 1 from outbox o
where not exists (select 1 from public.rows r where r.n = (o.payload ->> 'n')::int)
  and not exists (select 1 from jobs j where j.queue = 'default' and j.payload ->> 'n' = o.payload ->> 'n'
                  and j.status <> 'succeeded')
"""


def at_once(sql: Sql, at: Receiver) -> Any:
    return True


def sent_again(sql: Sql, at: Receiver) -> Any:
    return again(at.arrivals)


def overtaken(sql: Sql, at: Receiver) -> Any:
    try:
        check_orders(at.arrivals)
    except AssertionError:
        return True
    return False


def lost_row(sql: Sql, at: Receiver) -> Any:
    return sql(LOST_ROW)


ONLY_LONG = pytest.mark.skipif(not LONG, reason="tests/sql/test_orders.py and test_transactions.py have the like")
MUTANTS = [
    pytest.param("unflagged", {}, sent_again, "by one who did not know", id="maybe_sent is always false"),
    pytest.param(
        "",
        {"settle": [("'parked'))::integer as refund", "'parked', 'lost'))::integer as refund")]},
        sent_again,
        "by one who did not know",
        id="a lost attempt is refunded",
    ),
    pytest.param(
        "",
        {"take_outbox_key": [("idempotency_key(p_channel, p_tenant, p_key);", "p_id;")]},
        at_once,
        "in the outbox twice",
        id="keys are not compared",
    ),
    pytest.param(
        "",
        {"emit": [("v_keys := array['order:' || idempotency_key(p_channel, p_tenant, p_order)];", "")]},
        overtaken,
        "out of order",
        id="orders are not kept",
        marks=ONLY_LONG,
    ),
    pytest.param(
        "beside", {}, lost_row, "not committed together", id="emitted beside the transaction", marks=ONLY_LONG
    ),
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("broken", "changes", "enough", "expected"), MUTANTS)
def test_a_run_goes_red_when_something_is_broken(
    dsn: str,
    tmp_path: Path,
    seeded: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    changes: dict[str, list[tuple[str, str]]],
    enough: Enough,
    expected: str,
) -> None:
    """Workers are killed until the violation has happened; then the check must find it."""
    jobs, settings = 240 if LONG else 120, QUICK | {"lease": 1.0, "schema": "mutant", "concurrency": 10}
    with mutant(dsn, changes) as sql, listening(tmp_path, seeded, monkeypatch, broken) as at, tables(dsn):
        load(dsn, "mutant", range(jobs))
        with fleet(dsn, tmp_path, 2, seeded, **settings) as killed:
            kill(killed, sql, seeded, (5, 30), lambda: enough(sql, at))
            drain(sql)
        with pytest.raises(AssertionError, match=expected):
            check(find(sql, at.arrivals, jobs))
