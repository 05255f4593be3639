"""Several servers in one DSN: which is tried first, how long calls wait for a primary, and standbys stay unused."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import PoolTimeout

from holdfast import CONTEXT, Context, DatabaseUnavailable, Holdfast
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.wire import connect, hosts
from holdfast.store.wire.connection_sync import Connection
from holdfast.store.wire.opener import Opener
from holdfast.store.wire.repeat import Repeats
from tests.conftest import wait_until
from tests.support.running import ended, until, working

Sql = Callable[..., list[tuple[Any, ...]]]


def of(dsn: str, **settings: Any) -> dict[str, Any]:
    return conninfo_to_dict(connect.conninfo(Settings(dsn=dsn, **settings), "test"))


def test_of_several_servers_only_the_primary_will_do_and_they_share_the_time() -> None:
    given = of("postgresql://u@a:1,b:2,c:3/d", connect_timeout=9)
    assert (given["target_session_attrs"], given["connect_timeout"]) == ("read-write", "3")


def test_one_server_may_be_a_standby_and_has_all_the_time() -> None:
    given = of("postgresql://u@a/d", connect_timeout=9)
    assert ("target_session_attrs" in given, given["connect_timeout"]) == (False, "9")


def test_what_the_dsn_says_is_kept() -> None:
    given = of("postgresql://u@a,b/d?target_session_attrs=any&connect_timeout=7")
    assert (given["target_session_attrs"], given["connect_timeout"]) == ("any", "7")


@pytest.mark.parametrize(
    ("dsn", "found"),
    [
        ("host=a,b port=5", [("a", "", "5"), ("b", "", "5")]),
        ("host=a,b hostaddr=10.0.0.1,10.0.0.2 port=5,6", [("a", "10.0.0.1", "5"), ("b", "10.0.0.2", "6")]),
        ("hostaddr=10.0.0.1,10.0.0.2", [("", "10.0.0.1", ""), ("", "10.0.0.2", "")]),
        ("dbname=d", [("", "", "")]),
        ("host=a,b,c port=1,2", [("", "", "")]),
    ],
)
def test_servers_are_read_as_libpq_reads_them(dsn: str, found: list[tuple[str, str, str]]) -> None:
    assert hosts.servers(conninfo_to_dict(dsn)) == found


@pytest.fixture
def two(dsn: str, tmp_path: Path) -> Iterator[str]:
    """A DSN of two servers, of which the first is away."""
    params = conninfo_to_dict(dsn)
    yield make_conninfo(dsn, host=f"{tmp_path},{params['host']}", port="5432")
    hosts.last_primaries.clear()


def test_the_last_primary_is_tried_first_by_all_connections(two: str) -> None:
    opener = Opener(Settings(dsn=two), "test")
    assert hosts.primary_first(opener.conninfo()) == opener.conninfo()
    Connection.connect(opener.conninfo(), **opener.kwargs()).close()
    first, second = conninfo_to_dict(two)["host"].split(",")
    other = Opener(Settings(dsn=two), "another")
    assert conninfo_to_dict(hosts.primary_first(other.conninfo()))["host"] == f"{second},{first}"
    assert "hostaddr" not in conninfo_to_dict(hosts.primary_first(other.conninfo()))


async def test_clients_and_workers_find_the_server_that_is_there(two: str, sql: Sql) -> None:
    with Holdfast(two) as hf:

        @hf.task(name="one")
        async def one() -> None: ...

        @hf.task(name="own")
        async def own(*, ctx: Context = CONTEXT) -> None:
            async with ctx.transaction() as conn:
                await conn.execute("select 1")

        async with working(hf):
            for task in (one, own):
                assert (await ended(hf, (await task.aenqueue()).id)).status == "succeeded"
            sql(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and application_name like 'holdfast %'"
            )
            for task in (one, own):
                assert (await ended(hf, (await task.aenqueue()).id)).status == "succeeded"
        await hf.aclose()


@pytest.fixture
def read_only(dsn: str, sql: Sql) -> Iterator[Callable[[bool], None]]:
    """Make the database read-only for new connections, as a standby is, and end all connections to it."""
    name = conninfo_to_dict(dsn)["dbname"]
    with psycopg.connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as admin:

        def change(on: bool) -> None:
            admin.execute(f"alter database {name} set default_transaction_read_only = {on}")
            if on:
                admin.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where application_name like 'holdfast %%' and datname = %s",
                    [name],
                )

        yield change
        change(False)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_an_enqueue_waits_for_the_primary_and_does_not_use_a_standbys_connection_again(
    dsn: str, read_only: Callable[[bool], None], is_async: bool
) -> None:
    with Holdfast(dsn, connect_timeout=40, pool_size=1) as hf, asyncio.Runner() as runner:

        @hf.task(name="one")
        async def one() -> None: ...

        def enqueue() -> str:
            return (runner.run(one.aenqueue()) if is_async else one.enqueue()).id

        enqueue()
        read_only(True)
        ids: list[str] = []
        thread = threading.Thread(target=lambda: ids.append(enqueue()))
        thread.start()
        with psycopg.connect(dsn, autocommit=True, options="-c default_transaction_read_only=off") as conn:
            wait_until(lambda: is_connected(conn, "client"))
        read_only(False)
        thread.join(40)
        assert hf.jobs.get(ids[0]) is not None
        if is_async:
            runner.run(hf.aclose())


def test_an_enqueue_that_finds_no_primary_says_so_after_connect_timeout(
    dsn: str, read_only: Callable[[bool], None]
) -> None:
    with Holdfast(dsn, connect_timeout=1) as hf:

        @hf.task(name="one")
        async def one() -> None: ...

        one.enqueue()
        read_only(True)
        began = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match=r"is read-only: .* is it a standby"):
            one.enqueue()
        assert 0.3 < time.monotonic() - began < 20


def test_a_pool_timeout_after_a_read_only_server_names_the_server(dsn: str) -> None:
    repeats = Repeats(Opener(Settings(dsn=dsn, connect_timeout=30), "test"))
    call = Calls("holdfast").jobs.wake("default", 1)
    repeats.next(call, psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT in a read-only transaction"))
    with pytest.raises(DatabaseUnavailable, match=r"is read-only: .* is it a standby"):
        repeats.next(call, PoolTimeout("couldn't get a connection after 0.01 sec"))


@pytest.mark.parametrize("kind", ["on_loop", "in_thread"])
async def test_a_handlers_transaction_waits_for_the_primary_and_costs_no_attempt(
    dsn: str, read_only: Callable[[bool], None], kind: str
) -> None:
    opened, goes_on = threading.Event(), threading.Event()
    with Holdfast(dsn) as hf:

        @hf.task(name="on_loop")
        async def on_loop(*, ctx: Context = CONTEXT) -> None:
            opened.set()
            await asyncio.to_thread(goes_on.wait)
            async with ctx.transaction() as conn:
                await conn.execute("create table written ()")

        @hf.task(name="in_thread")
        def in_thread(*, ctx: Context = CONTEXT) -> None:
            opened.set()
            goes_on.wait()
            with ctx.transaction() as conn:
                conn.execute("create table written ()")

        async with working(hf):
            job = await {"on_loop": on_loop, "in_thread": in_thread}[kind].aenqueue()
            await until(opened.is_set)
            read_only(True)
            goes_on.set()
            with psycopg.connect(dsn, autocommit=True) as conn:
                await until(lambda: is_connected(conn, "transaction"))
            read_only(False)
            assert ((info := await ended(hf, job.id)).status, info.attempts) == ("succeeded", 1)
        await hf.aclose()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("drop table written")


def is_connected(conn: psycopg.Connection[Any], purpose: str) -> bool:
    query = "select 1 from pg_stat_activity where application_name = %s and datname = current_database()"
    return conn.execute(query, [f"holdfast {purpose}"]).fetchone() is not None


def test_the_first_call_waits_while_a_server_of_several_may_become_the_primary(
    two: str, read_only: Callable[[bool], None]
) -> None:
    read_only(True)
    with Holdfast(two, connect_timeout=40) as hf:
        jobs: list[Any] = []
        thread = threading.Thread(target=lambda: jobs.append(hf.jobs.get("01890000-0000-7000-8000-000000000000")))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        read_only(False)
        thread.join(40)
        assert jobs == [None]


def test_patience_counts_from_the_first_failure_and_its_pauses_grow() -> None:
    patience = hosts.Patience(60)
    assert patience.left == 60
    pauses = [patience.pause() or 0.0 for _ in range(12)]
    assert 0.02 < pauses[0] < 0.08
    assert all(0.5 <= each <= 1.5 for each in pauses[-4:])
    assert patience.left < 60
    assert hosts.Patience(0).pause() is None


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (psycopg.OperationalError("the connection is lost"), True),
        (psycopg.errors.AdminShutdown("x"), True),
        (psycopg.errors.CannotConnectNow("x"), True),
        (psycopg.errors.ReadOnlySqlTransaction("x"), True),
        (psycopg.errors.QueryCanceled("x"), False),
        (psycopg.errors.DiskFull("x"), False),
        (psycopg.errors.UniqueViolation("x"), False),
    ],
)
def test_which_errors_a_failover_causes(error: Exception, away: bool) -> None:
    assert hosts.is_away(error) is away
