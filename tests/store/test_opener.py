"""Our own connections work whatever a server, a database, a role or the environment has set; and there are few."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import CONTEXT, Context, DatabaseUnavailable, Holdfast
from holdfast.store.call import Call
from holdfast.store.dev.embedded import EmbeddedPostgres
from holdfast.store.wire.deadline import MOST_ABANDONED
from tests.conftest import wait_until
from tests.support.running import ended, until, working

Sql = Callable[..., list[tuple[Any, ...]]]
Change = Callable[..., None]
SQL = Path(holdfast.__file__).parent / "sql"
ID = "018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f"


@pytest.fixture
def database_sets(dsn: str, sql: Sql) -> Iterator[Change]:
    """Set defaults for connections opened from now on: database_sets(datestyle="SQL, DMY")."""
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]

    def change(**settings: str) -> None:
        for setting, value in settings.items():
            sql(f"alter database {name} set {setting} = '{value}'")

    yield change
    sql(f"alter database {name} reset all")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_batches_end_and_ids_are_accepted_whatever_the_default_isolation(
    dsn: str, sql: Sql, database_sets: Change, level: str
) -> None:
    database_sets(default_transaction_isolation=level)
    with Holdfast(dsn) as hf:
        ran: list[int] = []

        @hf.task(name="one")
        async def one(n: int) -> None:
            ran.append(n)

        @hf.task(name="done")
        async def done() -> None:
            ran.append(99)

        one.schedule("yearly", "0 0 1 1 *", 7)
        async with working(hf):
            async with hf.batch("together", on_done=done) as batch:
                await one.using(batch=batch).aenqueue_many([(n,) for n in range(10)])
            assert (await batch.ajoin(40)).succeeded == 10
            await ended(hf, (await one.using(id=ID).aenqueue(50)).id)
            assert (await one.using(id=ID).aenqueue(50)).existing
            hf.schedules.run("yearly")
            await until(lambda: sorted(ran) == sorted([*range(10), 99, 50, 7]))


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_calls_in_one_transaction_are_read_committed_whatever_the_default_isolation(
    dsn: str, database_sets: Change, is_async: bool
) -> None:
    database_sets(default_transaction_isolation="serializable")
    levels: list[Any] = []
    look: Call[Any] = Call("SELECT current_setting('transaction_isolation')", (), lambda rows: levels.extend(*rows))
    with Holdfast(dsn) as hf:
        if is_async:
            await hf.database.async_pool.run_together([look, look])
            await hf.database.close_loop()
        else:
            hf.database.sync_pool.run_together([look, look])
    assert levels == ["read committed", "read committed"]


async def test_a_handlers_own_transaction_keeps_the_default_isolation(
    dsn: str, sql: Sql, database_sets: Change
) -> None:
    database_sets(default_transaction_isolation="serializable")
    with Holdfast(dsn) as hf:

        @hf.task(name="look")
        async def look(*, ctx: Context = CONTEXT) -> None:
            async with ctx.transaction() as conn:
                row = await (await conn.execute("show transaction_isolation")).fetchone()
                levels.append(row)

        levels: list[Any] = []
        async with working(hf):
            assert (await ended(hf, (await look.aenqueue()).id)).status == "succeeded"
    assert levels == [("serializable",)]


@pytest.mark.parametrize("where", ["database", "environment"])
async def test_any_text_and_any_time_is_read_whatever_encoding_and_datestyle(
    dsn: str, database_sets: Change, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "database":
        database_sets(client_encoding="LATIN1", datestyle="SQL, DMY")
    else:
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
        monkeypatch.setenv("PGDATESTYLE", "German")
    with Holdfast(dsn) as hf:

        @hf.task(name="say")
        async def say(text: str) -> str:
            return text

        say.schedule("yearly", "0 0 1 1 *", "x")
        async with working(hf):
            job = await say.using(tenant="日本").aenqueue("日本 \\ '")
            assert await job.aresult(40) == "日本 \\ '"
        assert [each.name for each in hf.schedules.list()] == ["yearly"]


def test_functions_called_by_hand_work_with_other_settings_of_strings_and_dates(dsn: str, sql: Sql) -> None:
    sql(
        "create table history_20200101 partition of history "
        "for values from ('2020-01-01 00:00+00') to ('2020-01-02 00:00+00')"
    )
    settings = "-c standard_conforming_strings=off -c escape_string_warning=off -c datestyle=SQL,DMY"
    with psycopg.connect(dsn, autocommit=True, options=f"-c search_path=holdfast {settings}") as conn:
        assert conn.execute("select partitions_dropped from prune()").fetchone() == (1,)
        conn.execute("select add_endpoint(uuid7(), 'https://example.org/x', 's', p_events => '{order.paid,order.*}')")
        assert conn.execute('select error_in_words(\'{"message": "a \\\\n b"}\'::jsonb)').fetchone() == ("a b",)
        conn.execute("drop table if exists history_20200101")


def test_no_literal_in_sql_means_something_else_with_another_setting_of_strings() -> None:
    """A function's text is read with the settings of its caller: a backslash is one only in E''."""
    for file in SQL.rglob("*.sql"):
        text = re.sub(r"--.*", "", file.read_text(encoding="utf-8"))
        text = re.sub(r"\bE'(''|[^'])*'", "", text)
        assert "\\" not in text, file.name


@pytest.fixture(scope="module")
def lone_primary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server whose commits can be made to wait for a standby that is not there."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("pg")) as server:
        Holdfast(server.dsn()).migrate()
        yield server


def test_connections_do_not_pile_up_while_a_synchronous_standby_is_away(lone_primary: EmbeddedPostgres) -> None:
    callers = 2
    with (
        psycopg.connect(lone_primary.dsn("postgres"), autocommit=True) as admin,
        Holdfast(lone_primary.dsn(), call_timeout=0.4, connect_timeout=0.5, pool_size=callers) as hf,
    ):

        @hf.task(name="one")
        async def one() -> None: ...

        def backends() -> int:
            row = admin.execute("select count(*) from pg_stat_activity where application_name like 'holdfast %'")
            return int(row.fetchone()[0])

        def call() -> None:
            while len(errors) < 8 and not over.is_set():
                try:
                    one.enqueue()
                except DatabaseUnavailable as error:
                    if "no further connection is opened" in str(error):
                        errors.append(str(error))

        one.enqueue()
        errors: list[str] = []
        over = threading.Event()
        threads = [threading.Thread(target=call, daemon=True) for _ in range(callers)]
        _set_standby(admin, "absent")
        try:
            for thread in threads:
                thread.start()
            wait_until(lambda: len(errors) >= 8)
            assert backends() <= MOST_ABANDONED + 2 * callers
            assert "is the synchronous standby away" in errors[0]
        finally:
            over.set()
            _set_standby(admin, "")
        for thread in threads:
            thread.join(40)
        one.enqueue()
        wait_until(lambda: backends() <= callers)


def _set_standby(admin: psycopg.Connection[Any], name: str) -> None:
    admin.execute(f"alter system set synchronous_standby_names = '{name}'")
    admin.execute("select pg_reload_conf()")
    wait_until(lambda: admin.execute("show synchronous_standby_names").fetchone() == (name,))


def test_lines_of_the_pool_do_not_reach_the_log(dsn: str, sql: Sql, caplog: pytest.LogCaptureFixture) -> None:
    with Holdfast(dsn) as hf:

        @hf.task(name="one")
        async def one() -> None: ...

        one.enqueue()
        sql(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and application_name = 'holdfast client'"
        )
        one.enqueue()
    assert [each.getMessage() for each in caplog.records if each.name == "psycopg.pool"] == []
