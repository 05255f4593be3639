"""Migrations: from nothing, twice, at once, from an older release, and into a schema of another name."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from conftest import DATABASE, drop_database

from holdfast import ConfigurationError, Holdfast, SchemaError
from holdfast.store import migrate


@pytest.fixture
def empty(pg18: str) -> Iterator[str]:
    """A database without Holdfast."""
    name = f"{DATABASE}_empty"
    drop_database(pg18, name)
    with psycopg.connect(pg18, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    yield psycopg.conninfo.make_conninfo(pg18, dbname=name)
    drop_database(pg18, name)


def test_the_first_run_applies_everything_and_the_second_nothing(empty: str) -> None:
    hf = Holdfast(empty)
    first, second = hf.migrate(), hf.migrate()
    assert first.migrations == ["0001_engine.sql"]
    assert "functions/claim.sql" in first.functions
    assert (second.migrations, second.functions) == ([], [])


def test_many_processes_may_migrate_at_once(empty: str) -> None:
    applied: list[int] = []
    threads = [
        threading.Thread(target=lambda: applied.append(len(Holdfast(empty).migrate().migrations))) for _ in "12345"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(applied) == [0, 0, 0, 0, 1]


def test_a_changed_function_is_replaced_and_a_vanished_one_dropped(empty: str) -> None:
    hf = Holdfast(empty)
    hf.migrate()
    with psycopg.connect(empty, autocommit=True, options="-c search_path=holdfast") as conn:
        conn.execute("create function uncle() returns int language sql return 1")
        conn.execute("insert into schema_files values ('functions/uncle.sql', 'x')")
        conn.execute("update schema_files set checksum = 'old' where name = 'functions/fail.sql'")
        conn.execute("drop function fail; create function fail(int) returns int language sql return 1")
        done = hf.migrate()
        assert "functions/fail.sql" in done.functions
        assert conn.execute("select to_regproc('uncle')").fetchone() == (None,)
        arguments = "select pronargs from pg_proc where proname = 'fail' and pronamespace = 'holdfast'::regnamespace"
        assert conn.execute(arguments).fetchall() == [(5,)]
        fail = "holdfast.fail(uuid,bigint,jsonb,interval,text)"
        granted = "select has_function_privilege('holdfast_worker', %s, 'execute')"
        assert conn.execute(granted, [fail]).fetchone() == (True,)


def test_jobs_live_in_the_schema_that_was_asked_for(empty: str) -> None:
    with Holdfast(empty, schema="other_jobs") as hf:
        hf.migrate()

        @hf.task()
        async def quick() -> None: ...

        job = quick.enqueue()
        assert job.info() is not None
    with psycopg.connect(empty) as conn:
        assert conn.execute("select count(*) from other_jobs.jobs").fetchone() == (1,)
        assert conn.execute("select to_regnamespace('holdfast')").fetchone() == (None,)


def test_a_schema_that_is_not_set_up_is_named_with_the_remedy(empty: str) -> None:
    with pytest.raises(SchemaError, match=r"schema 'holdfast' is not set up .*run: holdfast migrate"):
        Holdfast(empty).get("01890000-0000-7000-8000-000000000000")


def test_a_newer_schema_is_refused_by_client_and_migrate(empty: str) -> None:
    hf = Holdfast(empty)
    hf.migrate()
    newer = migrate.expected_version() + 1
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("insert into holdfast.schema_info values (%s, now())", [newer])
    for use in (hf.migrate, hf.list_jobs):
        with pytest.raises(SchemaError, match=rf"at version {newer}, newer than .*upgrade holdfast"):
            use()


def test_an_older_schema_asks_for_migrate(empty: str) -> None:
    hf = Holdfast(empty)
    hf.migrate()
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("update holdfast.schema_info set version = 0")
    with pytest.raises(SchemaError, match=r"at version 0, this release needs .*run: holdfast migrate"):
        hf.list_jobs()


def test_a_user_who_may_not_create_the_schema_is_told_what_to_grant(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("drop role if exists hf_nobody")
        conn.execute("create role hf_nobody login")
    try:
        with pytest.raises(ConfigurationError, match="GRANT CREATE ON DATABASE"):
            Holdfast(psycopg.conninfo.make_conninfo(empty, user="hf_nobody")).migrate()
    finally:
        with psycopg.connect(empty, autocommit=True) as conn:
            conn.execute("drop role hf_nobody")


def test_a_user_who_may_not_create_roles_still_gets_a_working_schema(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("drop role if exists hf_owner")
        conn.execute("create role hf_owner login")
        conn.execute("grant create on database " + psycopg.conninfo.conninfo_to_dict(empty)["dbname"] + " to hf_owner")
    with Holdfast(psycopg.conninfo.make_conninfo(empty, user="hf_owner"), schema="unprivileged") as hf:
        hf.migrate()

        @hf.task()
        async def quick() -> None: ...

        assert quick.enqueue().info() is not None
