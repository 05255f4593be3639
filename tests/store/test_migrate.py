"""Migrations: from nothing, twice, at once, from an older release, and into a schema of another name."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest

from holdfast import ConfigurationError, DatabaseUnavailable, Holdfast, SchemaError
from holdfast.model.job import ids
from holdfast.store import migrate, migrations
from tests.conftest import wait_until
from tests.support.next_release import COLOUR, next_release

MIGRATIONS = sorted(file.name for file in (Path(migrate.__file__).parent.parent / "sql" / "migrations").glob("*.sql"))


def test_the_first_run_applies_everything_and_the_second_nothing(empty: str) -> None:
    hf = Holdfast(empty)
    first, second = hf.migrate(), hf.migrate()
    assert first.migrations == MIGRATIONS
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
    assert sorted(applied) == [0, 0, 0, 0, len(MIGRATIONS)]


def test_a_changed_function_is_replaced_and_a_vanished_one_stays(empty: str) -> None:
    hf = Holdfast(empty)
    hf.migrate()
    with psycopg.connect(empty, autocommit=True, options="-c search_path=holdfast") as conn:
        conn.execute("create function uncle() returns int language sql return 1")
        conn.execute("insert into schema_files values ('functions/uncle.sql', 'x')")
        conn.execute("update schema_files set checksum = 'old' where name = 'functions/fail.sql'")
        conn.execute("drop function fail; create function fail(int) returns int language sql return 1")
        conn.execute("update schema_files set checksum = 'old' where name = 'functions/why.sql'")
        kept = conn.execute("select 'why'::regproc::oid").fetchone()
        done = hf.migrate()
        assert "functions/fail.sql" in done.functions
        assert conn.execute("select uncle()").fetchone() == (1,), "an older release may call it"
        arguments = "select pronargs from pg_proc where proname = 'fail' and pronamespace = 'holdfast'::regnamespace"
        assert conn.execute(arguments).fetchall() == [(5,)]
        fail = "holdfast.fail(uuid,bigint,jsonb,interval,text)"
        assert conn.execute("select 'why'::regproc::oid").fetchone() == kept, "it is replaced in place"
        granted = "select has_function_privilege('holdfast_worker', %s, 'execute')"
        assert conn.execute(granted, [fail]).fetchone() == (True,)


def test_views_that_others_made_of_ours_come_back_as_they_were(empty: str) -> None:
    hf = Holdfast(empty)
    hf.migrate()
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("""
            create schema mine;
            create view mine.waiting with (security_barrier) as
                select id, task, holdfast.why(id) as why from holdfast.jobs;
            create view mine.tasks as select task, count(*) from mine.waiting group by task;
            create function mine.refuse() returns trigger language plpgsql as $$ begin raise 'not here'; end $$;
            create trigger refusing instead of delete on mine.waiting for each row execute function mine.refuse();
            grant select on mine.tasks to holdfast_reader, public;
            comment on view mine.tasks is 'how many, isn''t it';
            update holdfast.schema_files set checksum = 'old' where name in ('functions/why.sql', 'views/jobs.sql');
        """)
        query = """select c.oid::regclass, pg_get_viewdef(c.oid), reloptions, relacl::text,
                         obj_description(c.oid, 'pg_class'),
                         (select array_agg(pg_get_triggerdef(t.oid)) from pg_trigger t where tgrelid = c.oid)
                  from pg_class c where relnamespace = 'mine'::regnamespace and relkind = 'v' order by relname"""
        before = conn.execute(query).fetchall()
        assert len(hf.migrate().functions) > 1
        assert conn.execute(query).fetchall() == before
        hf.task(name="greet")(lambda: None).enqueue()
        assert conn.execute("select task from mine.waiting").fetchall() == [("greet",)]
        assert conn.execute("select * from mine.tasks").fetchall() == [("greet", 1)]


def test_objects_that_cannot_be_restored_stop_a_migration_before_they_are_lost(empty: str) -> None:
    hf = Holdfast(empty)
    hf.migrate()
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("create materialized view daily as select task from holdfast.jobs")
        conn.execute("alter view holdfast.jobs rename column task to task_then")
        conn.execute("update holdfast.schema_files set checksum = 'old' where name = 'views/jobs.sql'")
        with pytest.raises(ConfigurationError, match=r"view public.daily depends on view jobs.*drop it"):
            hf.migrate()
        assert conn.execute("select count(*) from daily").fetchall() == [(0,)]


def test_jobs_live_in_the_given_schema(empty: str) -> None:
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
        Holdfast(empty).jobs.get("01890000-0000-7000-8000-000000000000")


def test_a_newer_schema_is_refused_by_client_and_migrate(empty: str) -> None:
    hf = Holdfast(empty)
    hf.migrate()
    newer = migrations.expected_version() + 1
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("insert into holdfast.schema_info values (%s, now())", [newer])
    for use in (hf.migrate, hf.jobs.list):
        with pytest.raises(SchemaError, match=rf"at version {newer}, newer than .*upgrade holdfast"):
            use()


def test_jobs_are_still_there_after_an_upgrade(empty: str) -> None:
    waits, runs, later, dead = ids.make_many(4)
    hf = Holdfast(empty)
    hf.migrate()
    with psycopg.connect(empty, autocommit=True, options="-c search_path=holdfast") as conn:
        conn.execute("insert into live (id, task) values (%s, 'old')", [waits])
        conn.execute("insert into live (id, task, token, claimed_at, attempt) values (%s, 'old', 1, now(), 1)", [runs])
        conn.execute("insert into claims values (1, 'ada', now(), now(), now() + '1 hour', array[%s::uuid])", [runs])
        conn.execute(
            "insert into later (id, queue, priority, lane, run_at, created_at, attempt, max_attempts, task, payload) "
            "select %s, queue, priority, lane, now(), now(), 0, 5, task, payload from live where id = %s",
            [later, waits],
        )
        conn.execute(
            "insert into dead select %s, 'dead', queue, priority, lane, now(), now(), now(), now(), 5, 5, "
            "'ada', task, null, payload from live where id = %s",
            [dead, waits],
        )
        with next_release({"0003_colour.sql": COLOUR}):
            done = hf.migrate()
        assert (done.version, done.migrations) == (3, ["0003_colour.sql"])
        assert hf.dead.retry([dead]) == [dead]
        claimed = conn.execute("select id::text from claim('bob', p_limit => 10)").fetchall()
        assert {id_ for (id_,) in claimed} == {waits, later, dead}
        assert conn.execute("select finish(%s, '{1}')", [[runs]]).fetchall() == []
        statuses = {job.id: str(job.status) for job in hf.jobs.list()}
        assert statuses == {waits: "running", later: "running", dead: "running", runs: "succeeded"}


def test_an_older_schema_asks_for_migrate(empty: str) -> None:
    hf = Holdfast(empty)
    hf.migrate()
    with (
        next_release({"0003_colour.sql": COLOUR}),
        pytest.raises(SchemaError, match=r"at version 2, this release needs .*run: holdfast migrate"),
    ):
        hf.jobs.list()


def test_a_user_who_may_not_create_the_schema_learns_what_to_grant(empty: str) -> None:
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


def test_a_migration_that_cannot_get_a_lock_lets_others_pass_and_names_who_holds_it(
    empty: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(migrate, "PATIENCE", 0.0)
    with Holdfast(empty) as hf, psycopg.connect(empty, application_name="report") as report:
        hf.migrate()
        with psycopg.connect(empty, autocommit=True) as conn:
            conn.execute("update holdfast.schema_files set checksum = 'old' where name = 'views/jobs.sql'")
        report.execute("select count(*) from holdfast.jobs")
        blocked = rf"pid {report.info.backend_pid} \(report, idle in transaction\) has locked holdfast\.\w+ in a trans"
        with pytest.raises(DatabaseUnavailable, match=blocked):
            hf.migrate()
        monkeypatch.setattr(migrate, "PATIENCE", 60.0)
        monkeypatch.setattr(migrate, "_PAUSE", (0.02, 0.02))
        thread = threading.Thread(target=hf.migrate)
        thread.start()
        wait_until(lambda: "migrate waits, because pid" in caplog.text)
        assert hf.jobs.get(str(ids.make())) is None, "a lookup waits for no longer than migrate does"
        report.rollback()
        thread.join(40)
        assert hf.migrate().functions == []


@pytest.mark.parametrize("made", ["function cancel(int) returns int language sql return 1", "table orders (id int)"])
def test_a_schema_of_others_is_left_alone(empty: str, made: str) -> None:
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("create schema shop")
        conn.execute(f"create {made.replace(' ', ' shop.', 1)}".encode())
        with pytest.raises(ConfigurationError, match=r"schema 'shop' has objects that are not Holdfast's \(shop\."):
            Holdfast(empty, schema="shop").migrate()
        objects = "select count(*) from pg_class where relnamespace = 'shop'::regnamespace"
        assert conn.execute(objects).fetchone() == (int("table" in made),)


def test_an_empty_schema_is_used_and_a_reserved_word_refused(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("create schema jobs")
    assert Holdfast(empty, schema="jobs").migrate().migrations == MIGRATIONS
    with pytest.raises(ConfigurationError, match="'order' is a reserved word"):
        Holdfast(empty, schema="order").migrate()
