"""The database goes away: restarted under load, cut off between COMMIT and its reply, down at start."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import DatabaseUnavailable, Holdfast, Retry
from holdfast.store.calls import Calls
from holdfast.store.dev.embedded import EmbeddedPostgres
from holdfast.store.wire.session import Session
from holdfast.worker import Worker
from tests.conftest import wait_until
from tests.support.running import until, working
from tests.support.workers import worker

QUICK = {"lease": 3.0, "renew": 0.5, "upkeep": 0.2, "poll": 0.1}


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server that a test may kill."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("pg")) as server:
        Holdfast(server.dsn()).migrate()
        yield server


def counts(dsn: str) -> Counter[str]:
    with psycopg.connect(dsn) as conn:
        return Counter(dict(conn.execute("select status::text, count(*) from holdfast.jobs group by 1").fetchall()))


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_a_restart_under_load_loses_nothing_and_runs_nothing_accepted_twice(
    own_server: EmbeddedPostgres, tmp_path: Path, mode: str
) -> None:
    dsn = own_server.dsn()
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=holdfast") as conn:
        conn.execute("truncate live, later, dead, history, claims, dedupe, sleepers, workers")
    hf = Holdfast(dsn)

    async def slow(seconds: float) -> None: ...

    task = hf.task(name="slow", retry=Retry.fixed(0.1, max_attempts=5))(slow)
    accepted: list[str] = []
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            try:
                accepted.append(task.enqueue(0.002).id)
            except DatabaseUnavailable:
                time.sleep(0.02)

    producer = threading.Thread(target=produce)
    with worker(dsn, tmp_path, **QUICK) as one, worker(dsn, tmp_path, **QUICK) as two:
        producer.start()
        try:
            for _ in range(2):
                mark = len(accepted)
                wait_until(lambda m=mark: len(accepted) > m + 100)
                own_server.stop(mode)
                own_server.start()
            mark = len(accepted)
            wait_until(lambda: len(accepted) > mark + 100)
        finally:
            stop.set()
            producer.join()
        wait_until(lambda: counts(dsn)["succeeded"] >= len(accepted), 60)
        assert one.stop() == 0
        assert two.stop() == 0
    with psycopg.connect(dsn) as conn:
        ids = Counter(str(row[0]) for row in conn.execute("select id from holdfast.jobs").fetchall())
    assert set(ids.values()) == {1}
    assert set(accepted) <= set(ids), "every acknowledged job is there"
    # Only an enqueue whose reply was lost may be there without having been acknowledged.
    assert len(set(ids) - set(accepted)) <= 4
    assert counts(dsn) == {"succeeded": len(ids)}
    hf.close()


class CuttingProxy:
    """A relay between client and server; when `cut` is set, it drops the next reply and the connection. With `only`,
    it cuts only connections whose application name ends like that. With `keep_cutting` it cuts
    one reply in that number, forever."""

    def __init__(self, target: str, folder: Path, only: str = "") -> None:
        self._target = target
        self._only = f"{only}\0".encode() if only else b""
        self._chosen: set[socket.socket] = set()
        self.cut = threading.Event()
        self.stalled = threading.Event()
        self.cuts = 0
        self._every: Callable[[], int] | None = None
        self._passing = 0
        self._guard = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._start(self._accept)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            self._sockets += [client, server]
            self._start(self._pump, client, server, False)
            self._start(self._pump, server, client, True)

    def _start(self, work: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=work, args=args, daemon=True))
        self._threads[-1].start()

    def _pump(self, source: socket.socket, sink: socket.socket, replies: bool) -> None:
        try:
            while data := source.recv(65536):
                if not replies and self._only in data:  # among the first bytes of a client
                    self._chosen.add(sink)
                if self.stalled.is_set():
                    continue  # received and never passed on: the connection stays silent
                if replies and source in self._chosen and self._cuts_now():
                    self.cuts += 1
                    break
                sink.sendall(data)
        except OSError:
            pass
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()  # the other direction's thread closes the other one

    def keep_cutting(self, every: Callable[[], int] | None) -> None:
        """Cut after this many replies, a new number each time; None stops it."""
        with self._guard:
            self._every, self._passing = every, every() if every else 0

    def _cuts_now(self) -> bool:
        with self._guard:
            self._passing -= 1
            if self._every and self._passing < 0:
                self._passing = self._every()
                return True
            cut_requested = self.cut.is_set()
            self.cut.clear()
            return cut_requested

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def proxied(dsn: str) -> Iterator[tuple[Holdfast, CuttingProxy]]:
    host = psycopg.conninfo.conninfo_to_dict(dsn)["host"]
    with tempfile.TemporaryDirectory(prefix="hf") as folder:  # a socket's path must be short
        proxy = CuttingProxy(f"{host}/.s.PGSQL.5432", Path(folder))
        hf = Holdfast(psycopg.conninfo.make_conninfo(dsn, host=folder))
        yield hf, proxy
        hf.close()
        proxy.close()


async def _noop(n: int) -> None: ...


def test_an_enqueue_whose_reply_was_lost_is_accepted_once(
    proxied: tuple[Holdfast, CuttingProxy], hf: Holdfast, sql
) -> None:
    through, proxy = proxied
    task = through.task(name="noop")(_noop)
    task.enqueue(0)
    for n in range(1, 6):
        proxy.cut.set()
        job = task.enqueue(n)
        assert sql("select count(*) from jobs where id = %s", [job.id]) == [(1,)]
    assert proxy.cuts == 5
    assert sql("select count(*) from jobs") == [(6,)]


def test_a_bulk_enqueue_whose_reply_was_lost_is_accepted_once(proxied: tuple[Holdfast, CuttingProxy], sql) -> None:
    through, proxy = proxied
    task = through.task(name="noop")(_noop)
    task.enqueue(0)
    proxy.cut.set()
    ids = task.enqueue_many(range(500)).ids
    assert proxy.cuts == 1
    assert sql("select count(*), count(distinct id) from jobs") == [(501, 501)]
    assert len(set(ids)) == 500


def test_a_lost_reply_is_safe_even_when_the_job_has_already_run(proxied: tuple[Holdfast, CuttingProxy], sql) -> None:
    through, _ = proxied
    task = through.task(name="noop")(_noop)
    given = task.enqueue(1).id
    token = sql("select token from claim('w', '{default}', 1)")[0][0]
    assert sql("select finish(%s::uuid[], %s)", [[given], [token]]) == []
    again = task.using(id=given).enqueue(1)
    assert (again.id, again.existing) == (given, True)
    assert sql("select status::text from jobs where id = %s", [given]) == [("succeeded",)]


def test_aenqueue_whose_reply_was_lost_is_accepted_once(proxied: tuple[Holdfast, CuttingProxy], sql) -> None:
    through, proxy = proxied
    task = through.task(name="noop")(_noop)

    async def main() -> None:
        await task.aenqueue(0)
        proxy.cut.set()
        await task.aenqueue(1)
        await through.aclose()

    asyncio.run(main())
    assert proxy.cuts == 1
    assert sql("select count(*) from jobs") == [(2,)]


def test_a_worker_that_starts_before_its_database_waits_for_it(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "pg")
    dsn = server.start()
    Holdfast(dsn).migrate()
    server.stop()
    with worker(dsn, tmp_path, **QUICK) as process:
        wait_until(lambda: "waiting for database" in process.log.read_text())
        server.start()
        wait_until(lambda: "worker started" in process.log.read_text())
        assert process.stop() == 0
    server.release()


async def test_an_outage_is_warned_of_once_and_its_end_is_logged(
    proxied: tuple[Holdfast, CuttingProxy], caplog: pytest.LogCaptureFixture
) -> None:
    hf, proxy = proxied
    caplog.set_level(logging.DEBUG, "holdfast")

    def levels(event: str) -> list[str]:
        return [each.levelname for each in caplog.records if getattr(each, "event", "") == event]

    async with working(hf, poll=0.05, upkeep=0.05) as running:
        for number in (1, 2):
            caplog.clear()
            await until(lambda: running.health.ready().get("database") == "ok")
            proxy.keep_cutting(lambda: 0)
            await until(lambda: len(levels("claim failed")) >= 2)
            proxy.keep_cutting(None)
            await until(lambda: levels("database is back"))
            assert levels("claim failed").count("WARNING") == 1, f"in outage {number}"
            assert levels("database is back") == ["INFO"]
            assert levels("upkeep failed").count("WARNING") <= 1


async def test_a_worker_whose_connections_fall_silent_gives_up_its_jobs_before_others_start_them(
    dsn: str, sql: Any
) -> None:
    host = psycopg.conninfo.conninfo_to_dict(dsn)["host"]
    with tempfile.TemporaryDirectory(prefix="hf") as folder:
        proxy = CuttingProxy(f"{host}/.s.PGSQL.5432", Path(folder))
        silent = psycopg.conninfo.make_conninfo(dsn, host=folder)
        hf = Holdfast(silent, lease=6.0, renew=0.3, call_timeout=1.0, grace=0.1, poll=0.1, upkeep=30)
        started, ended = asyncio.Event(), asyncio.Event()

        @hf.task(name="long")
        async def long() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        worker = Worker(hf)
        running = asyncio.create_task(worker.run())
        job = await asyncio.to_thread(long.enqueue)
        await started.wait()
        proxy.stalled.set()
        async with asyncio.timeout(40):
            await ended.wait()
        lapsed = sql("select expires_at <= now() from claims")
        assert lapsed == [(False,)], "canceled before the lease has run out"
        assert worker.claimer.may_claim() is False
        proxy.stalled.clear()
        worker.stop()
        worker.stop()
        async with asyncio.timeout(40):
            await running
        await asyncio.to_thread(hf.close)
        proxy.close()
    assert job.id


def test_one_restart_costs_a_client_no_error_however_many_connections_it_had(hf: Holdfast, sql: Any) -> None:
    task = hf.task(name="noop")(_noop)
    threads = [threading.Thread(target=task.enqueue, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sql(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where application_name = 'holdfast client' and datname = current_database()"
    )
    assert [task.enqueue(n).existing for n in range(3)] == [False, False, False]


# -- connections lent to handlers

END_LENT = (  # of this database: other tests run beside these
    "select pg_terminate_backend(pid) from pg_stat_activity "
    "where application_name = 'holdfast transaction' and datname = current_database()"
)


def test_a_handler_waits_for_no_dead_connection_after_a_restart(hf: Holdfast, sql: Any) -> None:
    with contextlib.ExitStack() as all_of_them:
        for _ in range(hf.settings.pool_size):
            all_of_them.enter_context(hf.database.sync_pool.lent())
    assert len(sql(END_LENT)) == hf.settings.pool_size
    began = time.monotonic()
    with hf.database.sync_pool.lent() as conn:
        assert conn.execute("select 1").fetchone() == (1,)
    assert time.monotonic() - began < 10, (
        "it was given one dead connection after the other, with longer and longer pauses"
    )


async def test_an_async_handler_waits_for_no_dead_connection_after_a_restart(hf: Holdfast, sql: Any) -> None:
    async with contextlib.AsyncExitStack() as all_of_them:
        for _ in range(hf.settings.pool_size):
            await all_of_them.enter_async_context(hf.database.async_pool.lent())
    assert len(sql(END_LENT)) == hf.settings.pool_size
    async with asyncio.timeout(10), hf.database.async_pool.lent() as conn:
        assert await (await conn.execute("select 1")).fetchone() == (1,)
    await hf.aclose()


class Waiter(threading.Thread):
    """Waits for a lent connection, in a thread or in an event loop of its own."""

    def __init__(self, hf: Holdfast, is_async: bool) -> None:
        super().__init__(daemon=True)
        self._hf, self._is_async = hf, is_async
        self.opened, self.away, self.got = threading.Event(), threading.Event(), threading.Event()

    def run(self) -> None:
        asyncio.run(self._wait_async()) if self._is_async else self._wait()

    def _wait(self) -> None:
        with self._hf.database.sync_pool.lent():
            self.opened.set()
            self.away.wait()
        with self._hf.database.sync_pool.lent():
            self.got.set()

    async def _wait_async(self) -> None:
        async with self._hf.database.async_pool.lent():
            self.opened.set()
            await asyncio.to_thread(self.away.wait)
        async with self._hf.database.async_pool.lent():
            self.got.set()
        await self._hf.aclose()


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_call_waiting_for_a_connection_gets_one_when_the_server_is_back(
    own_server: EmbeddedPostgres, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    """The pool's pauses double while it cannot connect, and when it gives up it drops its waiters."""
    caplog.set_level(logging.DEBUG, "holdfast.pools")
    with Holdfast(own_server.dsn(), connect_timeout=0.5) as hf:
        waiter = Waiter(hf, is_async)
        waiter.start()
        assert waiter.opened.wait(40)
        own_server.stop("immediate")
        waiter.away.set()
        try:
            wait_until(lambda: caplog.text.count("reconnection attempt in pool 'holdfast' failed") >= 3)
            assert not waiter.got.is_set()
        finally:
            own_server.start()
        assert waiter.got.wait(40)
        waiter.join(40)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_call_waits_for_a_server_that_is_away_once_and_not_three_times(
    own_server: EmbeddedPostgres, is_async: bool
) -> None:
    with Holdfast(own_server.dsn(), connect_timeout=2) as hf, asyncio.Runner() as runner:
        task = hf.task(name="noop")(_noop)

        def enqueue() -> None:
            runner.run(task.aenqueue(0)) if is_async else task.enqueue(0)

        enqueue()
        own_server.stop("immediate")
        try:
            with pytest.raises(DatabaseUnavailable):
                enqueue()  # finds that its connection is gone
            began = time.monotonic()
            with pytest.raises(DatabaseUnavailable):
                enqueue()
            assert time.monotonic() - began < 5
        finally:
            own_server.start()
        enqueue()
        runner.run(hf.aclose())


def test_a_sync_call_without_a_response_fails_at_its_deadline(proxied: tuple[Holdfast, CuttingProxy]) -> None:
    through, proxy = proxied
    impatient = Holdfast(through.settings.dsn, call_timeout=0.5, connect_timeout=1)
    task = impatient.task(name="noop")(_noop)
    task.enqueue(0)
    proxy.stalled.set()
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable):
        task.enqueue(1)
    assert time.monotonic() - began < 15
    proxy.stalled.clear()
    impatient.close()


def test_an_async_call_without_a_response_fails_at_its_deadline(proxied: tuple[Holdfast, CuttingProxy]) -> None:
    through, proxy = proxied
    impatient = Holdfast(through.settings.dsn, call_timeout=0.5, connect_timeout=1)
    task = impatient.task(name="noop")(_noop)

    async def main() -> None:
        await task.aenqueue(0)
        proxy.stalled.set()
        async with asyncio.timeout(40):
            with pytest.raises(DatabaseUnavailable):
                await task.aenqueue(1)
        proxy.stalled.clear()
        await impatient.aclose()

    asyncio.run(main())


async def test_a_workers_call_without_a_response_fails_at_its_deadline(proxied: tuple[Holdfast, CuttingProxy]) -> None:
    """psycopg handles a cancellation by waiting for the server, so asyncio's timeout alone takes longer."""
    through, proxy = proxied
    settings = through.settings.with_(call_timeout=0.5, connect_timeout=1.0)
    session, calls = Session(settings, "test"), Calls(settings.schema)
    await session.run(calls.workers.prune())
    proxy.stalled.set()
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable):
        await session.run(calls.workers.prune())
    assert time.monotonic() - began < 5
    proxy.stalled.clear()
    await session.run(calls.workers.prune())
    await session.close()
