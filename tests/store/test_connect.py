"""Wrong addresses, missing rights, old servers: each a message that says what to do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import ConfigurationError, DatabaseUnavailable, Holdfast, HoldfastError, SchemaError
from holdfast.settings import Settings
from holdfast.store.call import Call
from holdfast.store.dev.embedded import EmbeddedPostgres
from holdfast.store.migrations import SchemaState
from holdfast.store.wire import connect
from holdfast.store.wire.session import ThreadSession
from tests.conftest import wait_until

ID = "01890000-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("dsn", "kind", "message"),
    [
        ("", ConfigurationError, "set HOLDFAST_DSN"),
        ("nonsense", ConfigurationError, "is not a PostgreSQL address"),
        ("postgresql://nobody@127.0.0.1:1/x", DatabaseUnavailable, "is it running"),
        ("postgresql://u:secret@127.0.0.1:1/x", DatabaseUnavailable, r"u:\*\*\*@127"),
        ("postgresql://u@no-such-host.invalid/x", HoldfastError, "no-such-host.invalid"),
    ],
)
def test_an_address_that_cannot_work_is_reported_in_one_line(dsn: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        Holdfast(dsn, connect_timeout=2).jobs.get(ID)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_address_in_a_variable_that_is_not_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:secret@127.0.0.1/shop")
    with pytest.raises(ConfigurationError, match=r"DATABASE_URL is set, but not read: pass --dsn") as caught:
        Holdfast("").jobs.get(ID)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("DATABASE_URL", "")
    with pytest.raises(ConfigurationError, match=r"Holdfast's own$"):
        Holdfast("").jobs.get(ID)


def test_a_database_that_does_not_exist_is_a_configuration_error(pg18: str) -> None:
    with pytest.raises(ConfigurationError, match=r'database "absent" does not exist.*check HOLDFAST_DSN'):
        Holdfast(psycopg.conninfo.make_conninfo(pg18, dbname="absent")).jobs.get(ID)


def test_a_role_without_rights_learns_which_role_to_grant(hf: Holdfast, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("drop role if exists hf_stranger")
        conn.execute("create role hf_stranger login")
        conn.execute("grant usage on schema holdfast to hf_stranger")
        conn.execute("grant select on holdfast.schema_info to hf_stranger")
    stranger = Holdfast(psycopg.conninfo.make_conninfo(dsn, user="hf_stranger"))

    @stranger.task()
    async def quick() -> None: ...

    try:
        with pytest.raises(ConfigurationError, match="GRANT holdfast_worker TO"):
            quick.enqueue()
    finally:
        stranger.close()
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("drop owned by hf_stranger")
            conn.execute("drop role hf_stranger")


def test_an_old_server_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="runs PostgreSQL 14, but Holdfast needs 15"):
        connect.check_server(140012)


def test_a_missing_schema_is_reported_with_the_database_that_lacks_it() -> None:
    with pytest.raises(SchemaError, match=r"not set up in postgresql://u:\*\*\*@h/d; run: holdfast migrate"):
        connect.check_schema(SchemaState(None, None), "holdfast", ("postgresql://u:secret@h/d", "holdfast"))


def test_a_missing_schema_on_the_callers_connection_is_reported_without_the_statement(hf: Holdfast, dsn: str) -> None:
    @hf.task()
    async def quick() -> None: ...

    with psycopg.connect(dsn) as conn:
        conn.execute("drop schema holdfast cascade")  # rolled back below
        with pytest.raises(SchemaError, match=r"holdfast\.\w+\S* does not exist\); run: holdfast migrate"):
            quick.using(conn=conn).enqueue()
        conn.rollback()


def test_the_callers_own_connection_options_are_kept() -> None:
    info = connect.conninfo(Settings(dsn="postgresql://u@h/d?options=-csearch_path%3Dmine&keepalives=0"), "x")
    given = psycopg.conninfo.conninfo_to_dict(info)
    assert given["keepalives"] == "0"
    assert "-csearch_path=mine" in given["options"]
    assert "statement_timeout" in given["options"]


def test_only_our_own_calls_are_never_compiled() -> None:
    settings = Settings(dsn="postgresql://u@h/d")
    assert "jit=off" in connect.conninfo(settings, "x")
    assert "jit" not in connect.conninfo(settings, "x", lent=True)


def test_behind_a_pooler_no_start_up_options_and_no_prepared_statements() -> None:
    settings = Settings(dsn="postgresql://u@h/d", pooler=True)
    assert "options" not in psycopg.conninfo.conninfo_to_dict(connect.conninfo(settings, "x"))
    assert connect.options(settings)["prepare_threshold"] is None


def test_an_enqueue_in_the_callers_transaction_rolls_back_with_it(hf: Holdfast, dsn: str, tmp_path: Path) -> None:
    @hf.task()
    async def quick(n: int) -> None: ...

    with psycopg.connect(dsn) as conn:
        one = quick.using(conn=conn).enqueue(1)
        keyed = quick.using(conn=conn, dedupe="k").enqueue(2)
        many = quick.using(conn=conn).enqueue_many(range(3)).ids
        assert hf.jobs.get(one.id) is None
        conn.rollback()
    assert [hf.jobs.get(each) for each in (one.id, keyed.id, *many)] == [None] * 5
    with psycopg.connect(dsn) as conn:
        again = quick.using(conn=conn, dedupe="k").enqueue(2)
    assert hf.jobs.get(again.id) is not None
    assert not again.existing


async def test_the_same_with_an_async_connection(hf: Holdfast, dsn: str) -> None:
    @hf.task()
    async def quick(n: int) -> None: ...

    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        one = await quick.using(conn=conn).aenqueue(1)
        many = (await quick.using(conn=conn).aenqueue_many(range(3))).ids
        await conn.rollback()
        kept = await quick.using(conn=conn).aenqueue(2)
        await conn.commit()
    assert [await hf.jobs.aget(each) for each in (one.id, *many)] == [None] * 4
    assert await hf.jobs.aget(kept.id) is not None
    await hf.aclose()


def test_text_is_copied_as_it_is_whatever_the_callers_encoding(hf: Holdfast, dsn: str) -> None:
    @hf.task()
    async def say(text: str) -> None: ...

    with psycopg.connect(dsn, autocommit=True, client_encoding="latin1") as conn:
        [one] = say.using(conn=conn).enqueue_many([("caf\u00e9",)]).ids
    info = hf.jobs.get(one)
    assert info is not None
    assert info.payload == {"text": "caf\u00e9"}


def test_errors_of_the_callers_own_transaction_are_psycopgs(hf: Holdfast, dsn: str) -> None:
    @hf.task()
    async def quick() -> None: ...

    with psycopg.connect(dsn) as conn:
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("select 1/0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            quick.using(conn=conn).enqueue()
        conn.rollback()


def test_a_long_key_in_any_script_fits_the_index(hf: Holdfast) -> None:
    @hf.task()
    async def quick() -> None: ...

    key = "\u4e2d" * 950
    first = quick.using(dedupe=key, tenant="\u4e2d" * 200).enqueue()
    assert quick.using(dedupe=key, tenant="\u4e2d" * 200).enqueue().id == first.id


def test_a_name_server_that_is_silent_for_a_moment_is_no_wrong_address() -> None:
    error = psycopg.OperationalError("failed to resolve host 'db': [Errno -3] Temporary failure in name resolution")
    settings = Settings(dsn="postgresql://u@db/x")
    assert isinstance(connect.explain(error, settings), ConfigurationError)
    assert isinstance(connect.explain(error, settings, known_good=True), DatabaseUnavailable)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("53100", "has no space left on its disk: .*; free space there"),
        ("53200", "is out of memory"),
        ("53300", "has no free connection"),
        ("25006", "is read-only"),
        ("57014", "has canceled the call"),
        ("XX000", r"failed: .* \(SQLSTATE XX000\)"),
    ],
)
def test_what_a_server_that_runs_cannot_do_is_reported_as_that(
    hf: Holdfast, dsn: str, sql: Any, state: str, message: str
) -> None:
    hf = Holdfast(dsn, connect_timeout=0.3)  # so long a call waits for another primary

    @hf.task()
    async def quick() -> None: ...

    sql(
        "create function refuse() returns trigger language plpgsql as "
        f"$$ begin raise exception 'as it was' using errcode = '{state}'; end $$"
    )
    sql("create trigger refuse before insert on live execute function refuse()")
    try:
        with pytest.raises(DatabaseUnavailable, match=message) as caught:
            quick.enqueue()
    finally:
        sql("drop function refuse cascade")
        hf.close()
    assert "as it was" in str(caught.value)
    assert "is it running" not in str(caught.value)
    assert "CONTEXT" not in str(caught.value)


def test_a_statement_timeout_is_reported_as_that(dsn: str) -> None:
    with Holdfast(dsn, call_timeout=0.3) as hf, psycopg.connect(dsn) as other:

        @hf.task()
        async def quick() -> None: ...

        hf.jobs.get(ID)
        other.execute("lock table holdfast.live")
        with pytest.raises(DatabaseUnavailable, match=r"ended a call that took too long .*call_timeout is 0\.3 s"):
            quick.enqueue()


def test_our_own_deadline_is_reported_as_that(dsn: str) -> None:
    # Without startup options the server itself has no limit.
    session = ThreadSession(Settings(dsn=dsn, call_timeout=0.3, pooler=True), "test")
    with pytest.raises(DatabaseUnavailable, match=r"did not reply in time .*call_timeout is 0\.3 s") as caught:
        session.run(Call("SELECT pg_sleep(20)", (), lambda rows: rows))
    assert "is it running" not in str(caught.value)


def test_a_pool_without_a_free_connection_says_so(dsn: str, sql: Any) -> None:
    waits = Call("SELECT pg_advisory_xact_lock(7)", (), lambda rows: rows)
    with Holdfast(dsn, pool_size=1, connect_timeout=0.3) as hf, ThreadPoolExecutor(1) as threads:
        sql("select pg_advisory_lock(7)")
        try:
            held = threads.submit(hf.database.sync_pool.run, waits)
            wait_until(lambda: sql("select 1 from pg_locks where locktype = 'advisory' and objid = 7 and not granted"))
            with pytest.raises(DatabaseUnavailable, match=r"all 1 of this process are in use; raise HOLDFAST_POOL_S"):
                hf.jobs.get(ID)
        finally:
            sql("select pg_advisory_unlock(7)")
        held.result(40)


def test_a_pool_that_cannot_connect_says_why(dsn: str, sql: Any) -> None:
    sql("drop role if exists hf_leaver")
    sql("create role hf_leaver login in role holdfast_admin")
    try:
        with Holdfast(psycopg.conninfo.make_conninfo(dsn, user="hf_leaver"), connect_timeout=0.5) as hf:
            hf.jobs.get(ID)
            sql("alter role hf_leaver nologin")
            sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'hf_leaver'")
            with pytest.raises(DatabaseUnavailable, match='role "hf_leaver" is not permitted to log in'):
                hf.jobs.get(ID)
    finally:
        sql("drop role hf_leaver")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("postgresql://shop:x@localhost/shop", "host=127.0.0.1 port=5432 dbname=shop user=other", True),
        ("postgresql://shop@h/shop?application_name=a", "postgresql://h/shop", True),
        ("postgresql://shop@h", "postgresql://h/shop", True),
        ("postgresql://h/shop", "postgresql://h/other", False),
        ("postgresql://h/shop", "postgresql://h:5433/shop", False),
        ("postgresql://h/shop", "embedded:./.holdfast", False),
        ("postgresql://a,b/shop", "host=b dbname=shop", True),
        ("postgresql://a:1,b:2/shop", "host=a,b port=2 dbname=shop", True),
        ("postgresql://a:1,b:2/shop", "host=a,b port=3 dbname=shop", False),
        ("postgresql://a,b/shop", "postgresql://a,b/other", False),
    ],
)
def test_the_same_database_is_known_however_it_is_written(one: str, other: str, same: bool) -> None:
    assert connect.same_database(one, other) is same
    assert connect.same_database(other, one) is same


def test_an_embedded_server_is_the_database_that_its_url_names(tmp_path: Path) -> None:
    url = EmbeddedPostgres(tmp_path).dsn()
    host = psycopg.conninfo.conninfo_to_dict(url)["host"]
    assert connect.same_database(f"embedded:{tmp_path}", f"host={host} port=5432 dbname=holdfast user=postgres")
    assert not connect.same_database(f"embedded:{tmp_path}/other", url)


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u:secret@a:1,b:2/d", "postgresql://u:***@a:1,b:2/d"),
        ("postgresql://u@a:1,b:2/d", "postgresql://u@a:1,b:2/d"),
        (
            "postgresql://a,b/d?user=u&password=secret&sslmode=require",
            "postgresql://a,b/d?user=u&password=***&sslmode=require",
        ),
        ("host=a,b password='my secret' port=1,2", "host=a,b password=*** port=1,2"),
        ("host=a,b password = sec\\ ret port=1", "host=a,b password = *** port=1"),
    ],
)
def test_no_password_is_shown(dsn: str, shown: str) -> None:
    assert connect.hide_password(dsn) == shown
