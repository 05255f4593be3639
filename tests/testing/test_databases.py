"""The database of a test: an application is pointed at it and back, it is empty, and it is never the wrong one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest

from holdfast import ConfigurationError, Context, Holdfast, UsageError
from holdfast.store.dev.embedded import EmbeddedPostgres
from holdfast.testing import Databases, Kit, bind, scratch_database, scratch_server
from holdfast.testing.databases import refuse_production
from tests.conftest import wait_until
from tests.support.pace import slower

TABLES = """
    select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and not c.relispartition and n.nspname in ('holdfast', 'public')
      and c.relname !~ '^test_' order by 1"""


def sizes(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as connection:
        names = [name for (name,) in connection.execute(TABLES).fetchall()]
        return {name: connection.execute(f"select count(*) from {name}").fetchone()[0] for name in names}


def test_an_application_is_pointed_at_the_test_database_and_back(kit_dsn: str, opened: Databases) -> None:
    hf = Holdfast("postgresql://nowhere/production", lease=300)
    before = dict(hf.__dict__)
    with bind(hf, kit_dsn, opened) as kit:

        @hf.task()
        async def nothing() -> None: ...

        nothing.enqueue()
        assert len(kit.drain()) == 1
        assert (hf.settings.dsn, hf.settings.lease) == (kit_dsn, 300)
        assert Holdfast().settings.dsn == kit_dsn  # and so are processes and applications made meanwhile
    assert hf.__dict__ == before
    assert hf.settings.dsn == "postgresql://nowhere/production"
    assert Holdfast().settings.dsn == ""


def test_an_application_is_itself_again_after_a_test_that_failed(kit_dsn: str, opened: Databases) -> None:
    hf = Holdfast("postgresql://nowhere/production")
    with pytest.raises(ZeroDivisionError), bind(hf, kit_dsn, opened):
        raise ZeroDivisionError
    assert hf.settings.dsn == "postgresql://nowhere/production"
    assert "sync_pool" not in hf.__dict__


def test_connections_are_closed_with_the_block(pg18: str) -> None:
    mine = "select count(*) from pg_stat_activity where datname = %s and application_name like 'holdfast%%'"
    with scratch_database(pg18) as dsn, psycopg.connect(pg18, autocommit=True) as admin:
        name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
        with bind(Holdfast(), dsn) as kit:
            assert kit.hf.jobs.list() == []
            assert admin.execute(mine, [name]).fetchone()[0] >= 2
        wait_until(lambda: admin.execute(mine, [name]).fetchone() == (0,))  # a server process takes a moment to end


def test_async_connections_are_closed_too_on_any_loop(kit_dsn: str, opened: Databases) -> None:
    loop = asyncio.new_event_loop()
    with bind(Holdfast(), kit_dsn, opened) as kit:
        assert loop.run_until_complete(kit.hf.jobs.aget("00000000-0000-7000-8000-000000000001")) is None
        ((pool,),) = (pools.values() for pools in kit.hf.database.async_pool._pools.values())
        assert not pool.closed
    assert pool.closed
    loop.close()


def test_each_test_finds_the_database_as_migrations_left_it(kit_dsn: str, opened: Databases, pg18: str) -> None:
    with scratch_database(pg18) as fresh:
        untouched = sizes(fresh)
    with bind(Holdfast(), kit_dsn, opened) as kit, psycopg.connect(kit_dsn) as conn:

        @kit.hf.task()
        async def any_way(how: str) -> None:
            if how == "dies":
                raise UsageError(how)

        for how in ("succeeds", "dies", "waits"):
            any_way.using(dedupe=how, max_attempts=1, delay=60 if how == "waits" else None).enqueue(how)
        kit.drain(raise_errors=False)
        any_way.enqueue("is queued")
        conn.execute("update holdfast.settings set value = '99'")
        conn.commit()
        assert sizes(kit_dsn) != untouched
    with bind(Holdfast(), kit_dsn, opened):
        assert sizes(kit_dsn) == untouched
        with psycopg.connect(kit_dsn) as conn:
            kept = conn.execute("select value from holdfast.settings where name = 'history_retention_days'").fetchone()
        assert kept == (7,)


def test_the_applications_own_tables_are_emptied_and_what_migrations_put_there_stays(pg18: str) -> None:
    setup = """
        create table countries (code text primary key);
        insert into countries values ('de'), ('fr');
        create table customers (id serial primary key, country text references countries);
        create table orders (customer integer references customers)"""
    with scratch_database(pg18) as dsn, Databases() as databases, psycopg.connect(dsn, autocommit=True) as conn:
        databases.made(dsn)
        conn.execute(setup)
        for _ in range(2):
            with bind(Holdfast(), dsn, databases):
                counts = "select (select count(*) from countries), (select count(*) from orders)"
                assert conn.execute(counts).fetchone() == (2, 0)
                added = conn.execute("insert into customers (country) values ('de') returning id").fetchone()
                assert added == (1,)  # from the start again: tests may rely on it
                conn.execute("insert into orders values (1)")


@pytest.mark.parametrize("why", ["large", "guarded"])
def test_a_table_that_cannot_be_emptied_by_deleting_is_truncated(pg18: str, why: str) -> None:
    guard = """
        create function refuse() returns trigger language plpgsql as $$ begin raise 'never deleted'; end $$;
        create trigger refuse before delete on ledger for each row execute function refuse()"""
    with scratch_database(pg18) as dsn, Databases() as databases, psycopg.connect(dsn, autocommit=True) as conn:
        databases.made(dsn)
        conn.execute("create table ledger (id integer primary key, text text)")
        conn.execute("create table entries (ledger integer references ledger)")
        conn.execute(guard if why == "guarded" else "select 1")
        for _ in range(2):
            with bind(Holdfast(), dsn, databases) as kit:
                assert conn.execute("select count(*) from ledger").fetchone() == (0,)
                rows = 3000 if why == "large" else 1
                conn.execute(f"insert into ledger select n, repeat('x', 500) from generate_series(1, {rows}) n")
                conn.execute("insert into entries values (1)")
                kit.hf.task(name="any")(lambda: None).enqueue()
                assert len(kit.waiting()) == 1


def test_in_a_database_that_was_given_only_holdfasts_tables_are_emptied(pg18: str) -> None:
    with scratch_database(pg18) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create table orders (n integer)")
        for n in range(2):
            with bind(Holdfast(), dsn) as kit:
                kit.hf.task(name="any")(lambda: None).enqueue()
                conn.execute("insert into orders values (1)")
                assert len(kit.waiting()) == 1
                assert conn.execute("select count(*) from orders").fetchone() == (n + 1,)


def test_a_schema_of_another_name_is_made_where_it_is_missing(kit_dsn: str) -> None:
    with bind(Holdfast(schema="other_jobs"), kit_dsn) as kit:
        kit.clock.travel(60)
        task = kit.hf.task(name="any")(lambda: 3)
        task.enqueue()
        assert [each.result for each in kit.drain()] == [3]


def test_two_applications_may_share_a_tests_database(kit: Kit) -> None:
    caller, server = Holdfast("postgresql://nowhere/a"), Holdfast("postgresql://nowhere/b")
    server.task(name="greet")(lambda who: f"hello {who}")
    task = caller.task(name="greet")(lambda who: None)
    with kit.bind(caller):
        task.enqueue("ada")
        with kit.bind(server) as serving:
            assert [each.result for each in serving.drain()] == ["hello ada"]


def test_a_database_whose_name_does_not_say_test_is_refused(pg18: str) -> None:
    with psycopg.connect(pg18, autocommit=True) as admin:
        admin.execute("drop database if exists shop_production")
        admin.execute("create database shop_production")
        try:
            dsn = pg18.replace("/postgres?", "/shop_production?")
            with pytest.raises(ConfigurationError, match="tests would empty the database 'shop_production'"):
                bind(Holdfast(), dsn).__enter__()
            with psycopg.connect(dsn) as conn:
                assert conn.execute("select to_regnamespace('holdfast')").fetchone() == (None,)
        finally:
            admin.execute("drop database shop_production with (force)")


@pytest.mark.parametrize(
    ("tests", "production", "refused"),
    [
        ("postgresql://db.example/shop", "postgresql://app@db.example:5432/shop", True),
        ("host=db.example dbname=shop", "postgresql://db.example/shop", True),
        ("embedded:./.holdfast", "embedded:./.holdfast", True),
        ("postgresql://db.example/postgres", "postgresql://db.example/shop", False),
        ("postgresql://db.example/shop_test", "postgresql://db.example/shop_test", False),
        ("postgresql://127.0.0.1/shop", "postgresql://db.example/shop", False),
        ("postgresql://127.0.0.1/shop", "", False),
    ],
)
def test_the_applications_own_database_is_no_server_for_tests(tests: str, production: str, refused: bool) -> None:
    if refused:
        with pytest.raises(ConfigurationError, match="names the same database as HOLDFAST_DSN"):
            refuse_production(tests, production)
    else:
        refuse_production(tests, production)


def test_a_server_is_named_by_the_environment_or_embedded(
    pg18: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_DSN", pg18)
    with scratch_server(tmp_path) as server:
        assert server == pg18
    monkeypatch.setenv("HOLDFAST_DSN", pg18)
    with pytest.raises(ConfigurationError, match="names the same database"):
        scratch_server(tmp_path).__enter__()


def test_processes_take_databases_of_their_own_and_leave_none_behind(pg18: str) -> None:
    by_name = "select oid from pg_database where datname = any(%s)"
    with psycopg.connect(pg18, autocommit=True) as admin:
        with scratch_database(pg18) as one, scratch_database(pg18) as other:
            names = [psycopg.conninfo.conninfo_to_dict(dsn)["dbname"] for dsn in (one, other)]
            assert one != other
            made = {oid for (oid,) in admin.execute(by_name, [names])}
            assert len(made) == 2
        # By their oids: another process may have made databases of the same names by now.
        assert not made & {oid for (oid,) in admin.execute(by_name, [names])}


def test_a_killed_run_leaves_its_database_to_the_next(tmp_path: Path) -> None:
    """On a server where no other test takes it."""
    code = (
        "import os, sys\nfrom holdfast.testing import scratch_database\n"
        "with scratch_database(sys.argv[1]) as dsn:\n    print(dsn, flush=True)\n    os._exit(9)"
    )
    with EmbeddedPostgres(tmp_path / "pg") as server:
        command = [sys.executable, "-c", code, server.dsn("postgres")]
        first, second = (subprocess.run(command, capture_output=True, text=True, check=False).stdout for _ in range(2))
    assert first == second != ""


def test_a_transaction_left_open_is_named_when_it_is_in_the_way(pg18: str) -> None:
    with scratch_database(pg18) as dsn, Databases() as databases:
        databases.made(dsn)
        with psycopg.connect(dsn, application_name="left open") as conn:
            conn.execute("create table orders (n integer)")
            conn.commit()
            with bind(Holdfast(), dsn, databases):
                conn.execute("insert into orders values (1)")
                conn.commit()
                conn.execute("update orders set n = 2")
            began = time.monotonic()
            with pytest.raises(UsageError, match=r"a transaction open.*'left open' is idle in transaction"):
                bind(Holdfast(), dsn, databases).__enter__()
            assert time.monotonic() - began < 30
        with bind(Holdfast(), dsn, databases):
            pass


def test_a_context_for_calling_a_handler_by_hand(kit: Kit) -> None:
    @kit.hf.task(queue="mail", priority=1)
    def attempt_of(to: str, *, ctx: Context) -> str:
        return f"{to} {ctx.attempt}/{ctx.max_attempts} {ctx.tenant} {ctx.queue} {ctx.priority} {ctx.task}"

    context = kit.context(attempt_of, attempt=2, tenant="acme")
    assert attempt_of("ada", ctx=context) == f"ada 2/5 acme mail 1 {attempt_of.name}"
    assert kit.context(attempt_of).job_id != context.job_id


def test_emptying_takes_milliseconds(kit_dsn: str, opened: Databases) -> None:
    """Measured 1 to 3 ms on two busy cores (decision 014)."""
    costs = []
    for _ in range(10):
        with bind(Holdfast(), kit_dsn, opened) as kit:
            kit.hf.task(name="any")(lambda n: None).enqueue_many(range(20))
        began = time.perf_counter()
        with bind(Holdfast(), kit_dsn, opened):
            costs.append(time.perf_counter() - began)
    assert min(costs) < 0.05 * slower()


def test_binding_leaves_no_threads_running(kit_dsn: str, opened: Databases) -> None:
    def jobs_threads() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name.startswith("holdfast-job")]

    with bind(Holdfast(), kit_dsn, opened) as kit:
        kit.hf.task(name="any")(lambda: None).enqueue()
        kit.drain()
        wait_until(lambda: not jobs_threads())
    assert os.environ.get("HOLDFAST_DSN") is None


@pytest.mark.parametrize("server", ["pg18", "pg16", "pg_local"])
def test_the_kit_is_at_home_and_quick_on_each_server(request: pytest.FixtureRequest, server: str) -> None:
    hf = Holdfast()
    task = hf.task(name="any")(lambda n: 2 * n)
    costs = []
    with scratch_database(request.getfixturevalue(server)) as dsn, Databases() as databases:
        databases.made(dsn)
        for _ in range(5):
            with bind(hf, dsn, databases) as kit:
                task.using(delay=3600).enqueue(4)
                assert kit.drain() == ()
                kit.clock.travel(3600)
                began = time.perf_counter()
                assert [each.result for each in kit.drain()] == [8]
                costs.append(time.perf_counter() - began)
    assert min(costs) < 0.15 * slower()
