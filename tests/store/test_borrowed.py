"""Jobs enqueued on the caller's connections, with each real library: they commit or roll back with its transaction."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import psycopg
import psycopg.rows
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import ConfigurationError, DuplicateJob, Holdfast, Limit, Retry, SchemaError, Task, UsageError
from tests.support import django_site
from tests.support.lent import (
    KINDS,
    Alchemy,
    AlchemyAsyncpg,
    AlchemySession2,
    Asyncpg,
    Django,
    Lent,
    Psycopg,
    PsycopgAsync,
    undone,
    url,
)

Sql = Callable[..., list[tuple[Any, ...]]]
NASTY = "'; drop table x; -- %s %(a)s %% $1 :name ? \\ \" \n\t é 漢 🙂 {0}"


@pytest.fixture(params=KINDS)
def lent(request: pytest.FixtureRequest, dsn: str, sql: Sql) -> Iterator[Lent]:
    """A connection of each kind, beside a table of the caller's own."""
    sql("create table if not exists public.purchases (id integer)")
    sql("truncate public.purchases")
    given = KINDS[request.param](dsn)
    yield given
    given.clear_away()


@pytest.fixture
def task(hf: Holdfast) -> Task[Any, None]:
    @hf.task(name="t", retry=Retry.fixed(3, max_attempts=4))
    def handler(n: int = 0, text: str = "") -> None: ...

    return handler


def counts(sql: Sql) -> tuple[int, int]:
    """Return how many orders and how many jobs other sessions can see."""
    return sql("select (select count(*) from public.purchases), (select count(*) from jobs)")[0]


def order(lent: Lent) -> None:
    lent.execute("insert into public.purchases values (1)")


def test_a_job_is_there_when_the_callers_transaction_commits(lent: Lent, task: Any, sql: Sql) -> None:
    with lent.transaction():
        order(lent)
        job = lent.enqueue(task, 7)
        delayed = lent.enqueue(task.using(delay=60), 8)
        assert counts(sql) == (0, 0)
    assert counts(sql) == (1, 2)
    assert not job.existing
    assert sql("select id::text, payload from jobs where status = 'queued' order by id") == [
        (job.id, {"n": 7}),
        (delayed.id, {"n": 8}),
    ]


def test_a_job_is_never_queued_when_the_callers_transaction_rolls_back(lent: Lent, task: Any, sql: Sql) -> None:
    with undone(lent.transaction()):
        order(lent)
        lent.enqueue(task, 7)
        lent.enqueue(task.using(delay=60, dedupe="k"), 8)
        lent.enqueue_many(task, [1, 2])
    assert counts(sql) == (0, 0)
    assert sql("select count(*) from dedupe") == [(0,)]


def test_a_savepoint_rolled_back_takes_its_jobs_along_and_no_others(lent: Lent, task: Any, sql: Sql) -> None:
    with lent.transaction():
        order(lent)
        kept = lent.enqueue(task, 1)
        with undone(lent.savepoint()):
            order(lent)
            lent.enqueue(task, 2)
            lent.enqueue_many(task, [3, 4])
    assert counts(sql) == (1, 1)
    assert sql("select id::text from jobs") == [(kept.id,)]


def test_the_limits_of_a_job_arrive(lent: Lent, hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="limited", limits=[Limit("a:{text}", concurrency=1), Limit('"{{b\\":{tenant}', rate=1)])
    def limited(text: str) -> None: ...

    of_tenant = limited.using(tenant=NASTY)
    with lent.transaction():
        for using in (limited, of_tenant, of_tenant.using(delay=60)):
            lent.enqueue(using, NASTY)
            lent.enqueue_many(using, [NASTY, "b"])
    alone, both = [f"a:{NASTY}"], [f"a:{NASTY}", f'"{{b\\":{NASTY}']
    b = (["a:b"], ["a:b", both[1]])
    found = sql(
        "select tenant is null, keys, lane = lane_of(tenant, keys) "
        "from (select id, tenant, keys, lane from live union all select id, tenant, keys, lane from later) j "
        "order by id"
    )
    assert found == [
        (True, alone, True),
        (True, alone, True),
        (True, b[0], True),
        (False, both, True),
        (False, both, True),
        (False, b[1], True),
        (False, both, True),
        (False, both, True),
        (False, b[1], True),
    ]


def test_every_option_of_a_job_arrives(lent: Lent, task: Any, sql: Sql) -> None:
    at = datetime.now(UTC) + timedelta(hours=2)
    mine = str(uuid.uuid4())
    with lent.transaction():
        lent.enqueue(task.using(tenant="acme", priority=0, queue="mail", retry=Retry.none()), 1)
        lent.enqueue(task.using(run_at=at, tenant="acme", priority=1, retry=Retry.fixed(9, max_attempts=2)), 2)
        lent.enqueue(task.using(delay=0.5, max_attempts=7), 3)
        lent.enqueue(task.using(id=mine), 4)
        assert lent.enqueue(task.using(id=mine), 4).existing
    rows = sql(
        "select payload ->> 'n', tenant, queue, priority, max_attempts, "
        "coalesce(run_at = %s, false), run_at > created_at, id::text = %s from jobs order by payload ->> 'n'",
        [at, mine],
    )
    assert rows == [
        ("1", "acme", "mail", 0, 1, False, False, False),
        ("2", "acme", "default", 1, 2, True, True, False),
        ("3", None, "default", 2, 7, False, True, False),
        ("4", None, "default", 2, 4, False, False, True),
    ]
    kinds = sql("select retry ->> 'kind' from live where queue = 'mail' union select retry ->> 'kind' from later")
    assert set(kinds) == {("none",), ("fixed",), (None,)}


def test_text_arrives_as_it_was_given(lent: Lent, task: Any, sql: Sql) -> None:
    with lent.transaction():
        lent.enqueue(task.using(tenant=NASTY), 1, NASTY)
        lent.enqueue(task.using(tenant=NASTY, delay=9, dedupe=NASTY), 1, NASTY)
        lent.enqueue_many(task.using(tenant=NASTY), [(1, NASTY)])
        lent.enqueue_many(task.using(tenant=NASTY, delay=9), [(1, NASTY)])
    assert sql("select payload, tenant from jobs") == [({"n": 1, "text": NASTY}, NASTY)] * 4


def test_a_held_dedupe_key_returns_its_holder(lent: Lent, task: Any, sql: Sql) -> None:
    with lent.transaction():
        first = lent.enqueue(task.using(dedupe="k"), 1)
    with lent.transaction():
        order(lent)
        second = lent.enqueue(task.using(dedupe="k", on_conflict="replace"), 2)
    assert (second.id, second.outcome) == (first.id, "replaced")
    assert counts(sql) == (1, 1)
    assert sql("select payload from jobs") == [({"n": 2},)]


def test_a_duplicate_that_raises_aborts_the_transaction_like_any_error(lent: Lent, task: Any, sql: Sql) -> None:
    with lent.transaction():
        lent.enqueue(task.using(dedupe="k"), 1)
    with undone(lent.transaction()):
        order(lent)
        with pytest.raises(
            DuplicateJob, match=r"already holds dedupe key t::global::k; nothing was enqueued"
        ) as exc_info:
            lent.enqueue(task.using(dedupe="k", on_conflict="raise"), 2)
        assert exc_info.value.key == "t::global::k"
        with pytest.raises(Exception, match="current transaction is aborted"):
            order(lent)
    assert counts(sql) == (0, 1)


def test_a_duplicate_that_raises_inside_a_savepoint_costs_that_alone(lent: Lent, task: Any, sql: Sql) -> None:
    with lent.transaction():
        order(lent)
        lent.enqueue(task.using(dedupe="k"), 1)
        with pytest.raises(DuplicateJob), lent.savepoint():
            lent.enqueue(task.using(dedupe="k", on_conflict="raise"), 2)
        lent.enqueue(task, 3)
    assert counts(sql) == (1, 2)


def test_many_jobs_are_added_in_the_callers_transaction(lent: Lent, task: Any, sql: Sql) -> None:
    with lent.transaction():
        order(lent)
        ids = lent.enqueue_many(task, list(range(100)))
        later = lent.enqueue_many(task.using(delay=60, tenant="acme"), [{"n": n} for n in range(100, 200)])
        assert counts(sql) == (0, 0)
    assert sql("select id::text, (payload ->> 'n')::int from jobs order by id") == list(
        zip(ids + later, range(200), strict=True)
    )
    assert sql("select count(*) from later where tenant = 'acme'") == [(100,)]


def test_a_batch_is_filled_in_the_callers_transaction(lent: Lent, hf: Holdfast, task: Any, sql: Sql) -> None:
    for ended in (undone, lambda block: block):
        with ended(lent.transaction()):
            batch = hf.batch("import", conn=lent.conn)
            with lent.block(batch):
                lent.enqueue_many(task.using(batch=batch), [1, 2])
                lent.enqueue(task.using(batch=batch, deadline=60), 3)
            assert counts(sql) == (0, 0)
    assert sql("select id::text, total from batch_progress") == [(batch.id, 3)]
    assert counts(sql) == (0, 3)


def test_a_sleeping_worker_is_woken_when_the_transaction_commits_and_not_before(
    lent: Lent, task: Any, sql: Sql, dsn: str
) -> None:
    sql("insert into sleepers values ('default', 'sleeper')")
    with psycopg.connect(dsn, autocommit=True) as ear:
        ear.execute("listen holdfast_wake")

        def payloads() -> list[str]:
            return [each.payload for each in ear.notifies(timeout=40, stop_after=1)]

        for enqueue in (lambda: lent.enqueue(task, 1), lambda: lent.enqueue_many(task, [1, 2])):
            with lent.transaction():
                enqueue()
                sql("select pg_notify('holdfast_wake', 'before the commit')")
                assert payloads() == ["before the commit"]
            assert payloads() == ["sleeper"]


def test_the_role_for_enqueueing_is_enough(lent: Lent, task: Any, sql: Sql) -> None:
    with lent.transaction():
        lent.execute("set local role holdfast_enqueue")
        lent.enqueue(task, 1)
        lent.enqueue(task.using(delay=60, dedupe="k", tenant="acme"), 2)
        lent.enqueue_many(task, [3, 4])
        lent.enqueue_many(task.using(delay=60), [5, 6])
    assert counts(sql) == (0, 6)


def test_the_wrong_kind_of_enqueue_is_an_error_that_names_the_right_one(lent: Lent, task: Any, sql: Sql) -> None:
    using = task.using(conn=lent.conn)
    wanted = "await aenqueue" if lent.is_async else "sync_to_async" if isinstance(lent, Django) else "use enqueue"
    with pytest.raises(UsageError, match=wanted):
        using.enqueue(1) if lent.is_async else asyncio.run(using.aenqueue(1))
    with pytest.raises(UsageError, match=wanted):
        using.enqueue_many([1]) if lent.is_async else asyncio.run(using.aenqueue_many([1]))
    assert counts(sql) == (0, 0)


def test_a_closed_connection_fails_as_its_library_says(lent: Lent, task: Any, sql: Sql) -> None:
    lent.close()
    if lent.closed_error is not None:
        with pytest.raises(lent.closed_error, match=r"closed|released"):
            lent.enqueue(task, 1)
        with pytest.raises(lent.closed_error, match=r"closed|released"):
            lent.enqueue_many(task, [1])
        assert counts(sql) == (0, 0)
    else:  # sessions and Django's connections open again by themselves
        with lent.transaction():
            lent.enqueue(task, 1)
        assert counts(sql) == (0, 1)


def test_an_aborted_transaction_raises_the_librarys_own_error(lent: Lent, task: Any) -> None:
    with undone(lent.transaction()):
        with pytest.raises(Exception, match="division by zero"):
            lent.execute("select 1 / 0")
        with pytest.raises(Exception, match="current transaction is aborted") as exc_info:
            lent.enqueue(task, 1)
    assert type(exc_info.value).__module__.split(".")[0] in ("psycopg", "asyncpg", "sqlalchemy", "django")


def test_an_invalid_job_raises_our_own_error(lent: Lent, task: Any) -> None:
    with pytest.raises(UsageError, match="run_at must be a time from the year 1970"), lent.transaction():
        lent.enqueue(task.using(run_at=datetime(1960, 1, 1, tzinfo=UTC)), 1)


def test_a_missing_schema_or_right_raises_our_own_error(lent: Lent, dsn: str, task: Any) -> None:
    with Holdfast(dsn, schema="nowhere") as elsewhere:

        @elsewhere.task(name="t")
        def handler() -> None: ...

        with pytest.raises(SchemaError, match=r"the connection's database .*run: holdfast migrate"), lent.transaction():
            lent.enqueue(handler)
    with undone(lent.transaction()):
        lent.execute("set local role holdfast_reader")
        with pytest.raises(ConfigurationError, match="GRANT holdfast_worker TO"):
            lent.enqueue(task, 1)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Psycopg, {"autocommit": True}),
        (PsycopgAsync, {"autocommit": True}),
        (Asyncpg, {}),
        (Alchemy, {"isolation_level": "AUTOCOMMIT"}),
        (AlchemySession2, {"isolation_level": "AUTOCOMMIT"}),
        (AlchemyAsyncpg, {"isolation_level": "AUTOCOMMIT"}),
        (Django, {}),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_a_connection_that_commits_each_statement_commits_the_job(
    kind: type[Lent], options: dict[str, Any], dsn: str, task: Any, sql: Sql
) -> None:
    lent = kind(dsn, **options)
    try:
        lent.enqueue(task, 1)
        assert sql("select count(*) from jobs") == [(1,)]
        lent.enqueue(task.using(delay=60), 2)
        lent.enqueue_many(task, [3, 4])
        assert sql("select count(*) from jobs") == [(4,)]
    finally:
        lent.clear_away()


def test_codecs_that_the_caller_has_set_on_asyncpg_do_not_matter(dsn: str, task: Any, sql: Sql) -> None:
    async def enqueue() -> None:
        conn = await asyncpg.connect(url(dsn))
        for name in ("json", "jsonb"):
            await conn.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        await conn.set_type_codec("uuid", schema="pg_catalog", encoder=lambda u: u.hex, decoder=uuid.UUID)
        await task.using(conn=conn, retry=Retry.fixed(1)).aenqueue(1)
        await task.using(conn=conn, retry=Retry.fixed(1), delay=60).aenqueue(2)
        await task.using(conn=conn).aenqueue_many([3])
        await conn.close()

    asyncio.run(enqueue())
    assert sorted(row[0]["n"] for row in sql("select payload from jobs")) == [1, 2, 3]
    assert sql("select jsonb_typeof(retry) from later") == [("object",)]


def test_sessions_of_a_registry_are_taken_too(dsn: str, task: Any, sql: Sql) -> None:
    class OurSession(Session):
        """As SQLModel and others derive them."""

    engine = sqlalchemy.create_engine(url(dsn, "+psycopg"))
    registry = scoped_session(sessionmaker(engine, class_=OurSession))
    task.using(conn=registry).enqueue(1)
    registry.rollback()
    task.using(conn=registry).enqueue(2)
    task.using(conn=registry()).enqueue(3)
    registry.commit()
    registry.remove()
    engine.dispose()
    assert sorted(row[0]["n"] for row in sql("select payload from jobs")) == [2, 3]


async def test_async_sessions_of_a_registry_and_sync_code_below_them_are_taken_too(
    dsn: str, task: Any, sql: Sql
) -> None:
    engine = create_async_engine(url(dsn, "+asyncpg"))
    registry = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    await task.using(conn=registry).aenqueue(1)
    # What run_sync calls is sync code, and gets the sync session inside.
    await registry().run_sync(lambda session: task.using(conn=session).enqueue(2))
    assert sql("select count(*) from jobs") == [(0,)]
    await registry.commit()
    await registry.remove()
    await engine.dispose()
    assert sorted(row[0]["n"] for row in sql("select payload from jobs")) == [1, 2]


def test_djangos_connection_may_be_given_by_its_alias(dsn: str, task: Any, sql: Sql) -> None:
    django_site.set_up(dsn)
    from django.db import connections, transaction

    with undone(transaction.atomic()):
        task.using(conn=connections["default"]).enqueue(1)
    task.using(conn=connections["default"]).enqueue(2)
    connections.close_all()
    assert sql("select payload from jobs") == [({"n": 2},)]


def test_what_is_no_connection_is_refused_by_name(dsn: str, task: Any) -> None:
    engine = sqlalchemy.create_engine(url(dsn, "+psycopg"))
    with pytest.raises(
        UsageError,
        match=r"conn is of type sqlalchemy\.engine\.base\.Engine; it may be one of: psycopg Connection, psycopg "
        r"AsyncConnection, asyncpg Connection, SQLAlchemy Connection, SQLAlchemy Session, SQLAlchemy AsyncConnection, "
        r"SQLAlchemy AsyncSession, Django connection",
    ):
        task.using(conn=engine).enqueue(1)
    with pytest.raises(UsageError, match=r"conn is of type builtins\.str"):
        task.using(conn=dsn).enqueue_many([1])
    with pytest.raises(UsageError, match=r"conn is of type sqlite3\.Connection"):
        asyncio.run(task.using(conn=sqlite3.Connection(":memory:")).aenqueue(1))


def test_another_database_than_postgresql_is_refused_by_name(dsn: str, task: Any) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as conn, pytest.raises(UsageError, match="SQLAlchemy connection to sqlite"):
        task.using(conn=conn).enqueue(1)
    engine.dispose()
    django_site.set_up(dsn)
    from django.core.cache import cache
    from django.db import connections

    with pytest.raises(UsageError, match="Django connection to sqlite"):
        task.using(conn=connections["sqlite"]).enqueue(1)
    with pytest.raises(UsageError, match="Django connection to no database"):
        task.using(conn=cache).enqueue(1)
