"""A schema and releases that are not of the same version: who works with what, and what a migration does meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from holdfast import ConfigurationError, DatabaseUnavailable, Holdfast, SchemaError, UsageError
from holdfast.settings import Settings
from holdfast.store import migrate, migrations
from holdfast.store.call import Call
from holdfast.store.plan import make_plan
from holdfast.store.wire.pools_async import AsyncPool
from holdfast.store.wire.pools_sync import SyncPool
from holdfast.store.wire.session import Session
from tests.conftest import wait_until
from tests.support.next_release import ADD, COLOUR, INDEX, LESS, TERMS, next_release

EXPAND = {"0003_colour.sql": COLOUR}
CONTRACT = EXPAND | {"0004_less.sql": LESS}
FOUND = "select version, works_with, steps, applied_at is not null from holdfast.schema_info order by 1"
SEARCH = "-c search_path=holdfast"
OURS = [(1, 1, 1, True), (2, 1, 3, True)]  # the migrations of this release


def enqueue(dsn: str) -> None:
    """Enqueue a job as a process that has just started."""
    with Holdfast(dsn) as hf:
        assert hf.task(name="greet")(lambda: None).enqueue().info() is not None


def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True, options=SEARCH) as conn:
        return conn.execute(query).fetchall()


def do(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True, options=SEARCH) as conn:
        conn.execute(statement)


def test_an_older_release_works_on_a_schema_that_works_with_it(empty: str) -> None:
    Holdfast(empty).migrate()
    with next_release(EXPAND, {"why.sql": lambda text: text + "-- newer"}):
        assert Holdfast(empty).migrate().version == 3
        known = rows(empty, "select * from schema_files")
    assert rows(empty, FOUND) == [*OURS, (3, 1, 2, True)]
    enqueue(empty)
    done = Holdfast(empty).migrate()
    assert (done.version, done.migrations, done.functions) == (3, [], [])
    assert rows(empty, "select * from schema_files") == known, "it leaves the functions of the later release"


def test_a_contract_ends_what_works_with_the_schema(empty: str) -> None:
    Holdfast(empty).migrate()
    with next_release(CONTRACT):
        Holdfast(empty).migrate()
        enqueue(empty)
    for use in (enqueue, lambda dsn: Holdfast(dsn).migrate()):
        with pytest.raises(
            SchemaError, match=r"at version 4, newer than the 2 .* works with 3 and later only; upgrade"
        ):
            use(empty)
    with next_release(EXPAND):
        enqueue(empty)


@pytest.mark.parametrize("needed", ["yes", "no"])
def test_a_new_process_on_an_old_schema_works_or_says_what_to_do(empty: str, needed: str) -> None:
    Holdfast(empty).migrate()
    with next_release({"0003_colour.sql": TERMS.format(1, needed) + INDEX}):
        if needed == "no":
            enqueue(empty)
        else:
            with pytest.raises(SchemaError, match="at version 2, this release needs 3; run: holdfast migrate"):
                enqueue(empty)


def test_a_function_with_another_signature_is_found_by_callers_of_the_old_one_until_the_next_change(empty: str) -> None:
    Holdfast(empty).migrate()
    do(empty, "create view public.mine as select why(id) from jobs")
    with psycopg.connect(empty, autocommit=True, options=SEARCH, prepare_threshold=0) as caller:
        old = caller.execute("select 'why'::regproc::oid::int").fetchone()[0]
        assert caller.execute("select why(gen_random_uuid()) ->> 'status'").fetchone() == (None,)
        with next_release(EXPAND, {"why.sql": lambda text: text.replace("p_id uuid", "p_id uuid, p_n int default 1")}):
            Holdfast(empty).migrate()
        assert caller.execute("select why(gen_random_uuid()) ->> 'status'").fetchone() == (None,)
        assert caller.execute("select proname, pronargs from pg_proc where oid = %s", [old]).fetchone() == (
            f"old_why_{old}",
            1,
        )
        assert caller.execute("select pronargs from pg_proc where oid = 'why'::regproc").fetchone() == (2,)
        assert caller.execute("select * from public.mine").fetchall() == []
        assert caller.execute(
            "select has_function_privilege('holdfast_reader', 'why'::regproc, 'execute')"
        ).fetchone() == (True,)
        do(empty, "update schema_files set checksum = 'old' where name = 'functions/fail.sql'")
        with next_release(EXPAND, {"why.sql": lambda text: text.replace("p_id uuid", "p_id uuid, p_n int default 1")}):
            Holdfast(empty).migrate()
        assert caller.execute("select proname from pg_proc where oid = %s", [old]).fetchone() is None


def test_a_view_with_more_columns_stays_the_same_view_and_its_readers_go_on(empty: str) -> None:
    Holdfast(empty).migrate()
    do(empty, "create view public.mine as select count(*) from audit")
    before = "select 'audit'::regclass::oid, 'public.mine'::regclass::oid"
    oids = rows(empty, before)
    with psycopg.connect(empty, autocommit=True, options=SEARCH, prepare_threshold=0) as reader:
        reader.execute("select by from audit")
        with next_release(EXPAND, {"audit.sql": lambda text: text.replace("\nfrom ", ", 1 as colour\nfrom ", 1)}):
            Holdfast(empty).migrate()
        assert reader.execute("select by from audit").fetchall() == []
    assert rows(empty, "select colour from audit") == []
    assert rows(empty, before) == oids


def test_a_concurrent_index_that_a_crash_left_invalid_is_built_anew(empty: str) -> None:
    Holdfast(empty).migrate()
    enqueue(empty)
    enqueue(empty)
    with psycopg.connect(empty, autocommit=True, options=SEARCH) as conn, pytest.raises(psycopg.errors.UniqueViolation):
        conn.execute("create unique index concurrently live_colour on live (task)")
    valid = "select indisvalid, indisunique from pg_index where indexrelid = 'live_colour'::regclass"
    assert rows(empty, valid) == [(False, True)]
    with next_release(EXPAND):
        Holdfast(empty).migrate()
    assert rows(empty, valid) == [(True, False)]


def test_a_run_that_was_interrupted_is_continued(empty: str) -> None:
    Holdfast(empty).migrate()
    broken = TERMS.format(1, "yes") + ADD + "-- Step: fail\n-- Locks: none\nselect 1 / 0;\n"
    with next_release({"0003_colour.sql": broken}):
        with pytest.raises(psycopg.errors.DivisionByZero):
            Holdfast(empty).migrate()
        assert rows(empty, FOUND) == [*OURS, (3, 1, 1, False)]
        with pytest.raises(SchemaError, match="at version 2, this release needs 3"):
            enqueue(empty)
    enqueue(empty)
    with next_release({"0003_colour.sql": broken.replace("1 / 0", "1")}):
        assert [each.title for each in plan(empty).parts()] == ["0003_colour.sql: fail"]
        Holdfast(empty).migrate()
        enqueue(empty)
    assert rows(empty, FOUND) == [*OURS, (3, 1, 2, True)]


def plan(dsn: str, to: int | None = None) -> Any:
    with psycopg.connect(dsn) as conn:
        return make_plan(lambda sql: conn.execute(sql.encode()).fetchall(), "holdfast", to)


def test_what_is_removed_goes_last_and_what_locks_is_shown(empty: str) -> None:
    Holdfast(empty).migrate()
    with next_release(CONTRACT, {"audit.sql": lambda text: text + "--", "why.sql": lambda text: text + "--"}):
        parts = [(each.title, each.locks, each.at_most) for each in plan(empty).parts()]
        assert plan(empty).works_with == 3
    exclusive = "access exclusive"
    assert parts == [
        ("0003_colour.sql: add the colour", {"live": exclusive, "later": exclusive}, 5),
        ("0003_colour.sql: index live by colour", {"live": "share update exclusive"}, None),
        ("replace functions (1) and views (1)", {"all views": exclusive}, 5),
        ("0004_less.sql: drop what schema 1 called", {}, 5),
    ]


def test_a_new_schema_is_made_in_one_transaction_with_every_migration(empty: str) -> None:
    with next_release(CONTRACT):
        done = Holdfast(empty).migrate()
        assert (done.version, len(done.migrations)) == (4, 4)
        assert plan(empty).up_to_date
    assert rows(empty, "select count(distinct applied_at) from schema_info") == [(1,)]
    assert rows(empty, "select indisvalid from pg_index where indexrelid = 'live_colour'::regclass") == [(True,)]


def test_a_version_may_be_chosen_but_not_one_that_would_lose_data(empty: str) -> None:
    Holdfast(empty).migrate()
    with next_release(CONTRACT):
        hf = Holdfast(empty)
        with pytest.raises(UsageError, match="this release needs schema 3 or later, not 2"):
            hf.migrate(2)
        assert hf.migrate(3).version == 3
        assert rows(empty, FOUND)[-1] == (3, 1, 2, True)
        assert hf.migrate(4).migrations == ["0004_less.sql"]
        with pytest.raises(UsageError, match=r"at version 4, and going back to 3 would lose .* schema 3 or later work"):
            hf.migrate(3)
        with pytest.raises(UsageError, match="knows schema versions up to 4, not 5; upgrade holdfast"):
            hf.migrate(5)


def test_a_statement_holds_its_locks_for_a_bounded_time(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Holdfast(empty).migrate()
    monkeypatch.setattr(migrate, "HOLD", 0.1)
    slow = (
        TERMS.format(1, "yes") + "-- Step: hold\n-- Locks: live (access exclusive)\nlock live; select pg_sleep(30);\n"
    )
    with (
        next_release({"0003_slow.sql": slow}),
        pytest.raises(DatabaseUnavailable, match=r"for longer than 0.1 s with locks"),
    ):
        Holdfast(empty).migrate()
    enqueue(empty)


def test_a_step_outside_a_transaction_is_refused_behind_a_pooler(empty: str) -> None:
    Holdfast(empty).migrate()
    with next_release(EXPAND), pytest.raises(ConfigurationError, match="unset HOLDFAST_POOLER"):
        Holdfast(empty, pooler=True).migrate()


def test_a_call_that_holds_one_table_and_needs_another_never_waits_for_migrate(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_WAIT", 30.0)
    Holdfast(empty).migrate()
    with psycopg.connect(empty, options=SEARCH) as caller, next_release(EXPAND):
        caller.execute("lock table later in row exclusive mode")
        running = threading.Thread(target=Holdfast(empty).migrate)
        running.start()
        for _ in range(20):
            caller.execute("select pg_sleep(0.02)")
            caller.execute("update live set attempt = attempt")
        caller.rollback()
        running.join(40)
        assert plan(empty).up_to_date


def test_a_long_transaction_delays_a_concurrent_index_and_nothing_else(empty: str) -> None:
    hf = Holdfast(empty)
    hf.migrate()
    greet = hf.task(name="greet")(lambda: None)
    greet.enqueue()
    with hf, psycopg.connect(empty, options=SEARCH) as caller, next_release(EXPAND):
        running = threading.Thread(target=Holdfast(empty).migrate)
        do(empty, "set lock_timeout = '5s'; " + ADD)  # so that only the index waits
        do(empty, "insert into schema_info values (3, null, 1, 1)")
        caller.execute("lock table live in row exclusive mode")  # as a caller that enqueues
        running.start()
        waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query ilike '%index concurrently%'"
        wait_until(lambda: rows(empty, waits))
        do(empty, "set lock_timeout = '2s'; update live set attempt = attempt")
        greet.enqueue()
        assert running.is_alive()
        caller.rollback()
        running.join(40)
        assert plan(empty).up_to_date


@pytest.mark.parametrize("kind", ["pool", "async pool", "session"])
async def test_a_call_that_was_prepared_before_a_migration_is_repeated(hf: Holdfast, sql: Any, kind: str) -> None:
    settings = Settings.load(dsn=hf.settings.dsn, pool_size=1)
    made = {"pool": SyncPool, "async pool": AsyncPool}.get(kind, lambda settings: Session(settings, "test"))(settings)
    call = Call("select * from holdfast.audit_then", (), len)

    async def run() -> int:
        result = made.run(call)
        return result if kind == "pool" else await result

    sql("create table audit_then as select 1 as n")
    try:
        assert [await run(), await run()] == [1, 1]
        sql("alter table audit_then add colour text")
        assert await run() == 1
    finally:
        sql("drop table audit_then")
        closed = made.close()
        if kind != "pool":
            await closed


def declared_and_taken(dsn: str, step: migrations.MigrationStep) -> tuple[dict[str, str], dict[str, str]]:
    """Return the locks that a step declares, and those that it takes on tables that others can see."""
    modes = {"AccessExclusiveLock": "access exclusive", "ShareUpdateExclusiveLock": "share update exclusive"}
    strong = {
        "ShareLock": "share",
        "ShareRowExclusiveLock": "share row exclusive",
        "ExclusiveLock": "exclusive",
        **modes,
    }
    with psycopg.connect(dsn, options=SEARCH) as conn, psycopg.connect(dsn, autocommit=True, options=SEARCH) as other:
        seen = {name for (name,) in other.execute("select relname from pg_class where relkind in ('r', 'p', 'v')")}
        conn.execute(step.text.encode())
        held = conn.execute(
            "select c.relname, l.mode from pg_locks l join pg_class c on c.oid = l.relation "
            "where l.pid = pg_backend_pid() and c.relnamespace = 'holdfast'::regnamespace and l.mode = any (%s)",
            [list(strong)],
        ).fetchall()
        taken = {name: strong[mode] for name, mode in held if name in seen}
        conn.rollback()
    return step.locks, taken


def test_every_step_locks_what_it_declares(empty: str) -> None:
    """The real migrations, on the schema of those before them."""
    steps = [step for each in migrations.read_migrations() for step in each.steps]
    do(empty, "create schema holdfast")
    for step in steps:
        if not step.alone:
            declared, taken = declared_and_taken(empty, step)
            assert declared == taken, f"{step.migration}, step {step.number}"
        do(empty, step.text)


@pytest.mark.parametrize("locks", ["none", "live (access exclusive)", "live, later (share)"])
def test_a_step_that_declares_other_locks_is_found(empty: str, locks: str) -> None:
    Holdfast(empty).migrate()
    text = TERMS.format(1, "yes") + ADD.replace("live, later (access exclusive)", locks)
    (step,) = migrations.read_migration("0003_colour.sql", text, 1).steps
    declared, taken = declared_and_taken(empty, step)
    assert taken == {"live": "access exclusive", "later": "access exclusive"} != declared
