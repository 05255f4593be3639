"""Periodic jobs from `task.schedule` to the handler: what is registered, fired, missed, and what cannot be fired."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import ConfigurationError, Cron, Dedupe, Holdfast, InvalidPayload, Retry, UnknownSchedule, UsageError
from holdfast.store.wire.session import Session
from tests.support.pace import slower
from tests.support.running import until, working

Sql = Callable[..., list[tuple[Any, ...]]]
EVERY_SECOND = "* * * * * *"
SECOND = timedelta(seconds=1)


def fired(sql: Sql, task: str = "%") -> list[datetime]:
    """Return the slots of all jobs, or of a task's, in UTC."""
    query = "select run_at from jobs where task like %s order by run_at"
    return [row[0].astimezone(UTC) for row in sql(query, [task])]


async def test_a_worker_fires_every_second_and_in_time(hf: Holdfast, sql: Sql) -> None:
    ran: list[str] = []

    @hf.task()
    async def tick(word: str, times: int = 1) -> None:
        ran.append(word * times)

    tick.schedule("ticks", Cron(EVERY_SECOND, zone="Europe/Berlin", missed="all"), "tick", times=2)
    async with working(hf, poll=30.0, upkeep=2.0):
        await until(lambda: len(ran) >= 4)
    slots = fired(sql)
    assert slots == [slots[0] + n * SECOND for n in range(len(slots))]
    assert ran[0] == "ticktick"
    # The first may come with the leader's next round; then the leader waits for the slot. The decision has the figures.
    rows = sql(
        "select extract(epoch from started_at - run_at)::float8 from jobs where started_at is not null order by run_at"
    )
    assert sorted(late for (late,) in rows[1:])[1] < 0.5 * slower(), rows


async def test_each_job_has_the_options_of_using(hf: Holdfast, sql: Sql) -> None:
    @hf.task(queue="mail", retry=Retry.fixed(9, max_attempts=4))
    async def report(tenant: str) -> None: ...

    report.schedule("plain", EVERY_SECOND, "a")
    given = report.using(tenant="acme", queue="reports", priority=0, retry=Retry.fixed(3), max_attempts=7)
    given.schedule("given", EVERY_SECOND, "b")
    async with working(hf, queues="none"):
        await until(lambda: len(sql("select distinct payload::text from jobs")) == 2)
    rows = sql(
        "select distinct payload ->> 'tenant', queue, tenant, priority, max_attempts, retry ->> 'delay' from live "
        "order by 1"
    )
    assert rows == [("a", "mail", None, 2, 4, None), ("b", "reports", "acme", 0, 7, "3.0")]


async def test_a_task_with_a_dedupe_policy_keeps_it(hf: Holdfast, sql: Sql) -> None:
    @hf.task(dedupe=Dedupe(on_conflict="raise"))
    async def report(n: int) -> None: ...

    report.schedule("r", EVERY_SECOND, 1)
    async with working(hf, queues="none"):
        await until(lambda: sql("select last_at - (select min(run_at) from jobs) >= '2 s' from schedules") == [(True,)])
    assert sql("select count(*) from jobs") == [(1,)]


async def test_an_idle_fleet_with_schedules_far_away_makes_no_query_more(
    hf: Holdfast, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    run = Session.run
    monkeypatch.setattr(Session, "run", lambda self, call: made.append(call.sql) or run(self, call))

    @hf.task()
    async def yearly() -> None: ...

    month = 1 + datetime.now(UTC).month % 12
    yearly.schedule("yearly", f"0 0 1 {month} *")
    async with working(hf):
        await until(lambda: sql("select next_at > now() + interval '12 hours' from schedules") == [(True,)])
        await until(lambda: sum("upkeep" in call for call in made) >= 3)  # the last look is over
        looks = [call for call in made if "_schedule" in call]
        made.clear()
        await until(lambda: sum("upkeep" in call for call in made) >= 3)
    assert len(looks) <= 5, "register, look, move on, look when the next one comes"
    assert not any("_schedule" in call for call in made)


# -- missed slots


@pytest.mark.parametrize("missed", ["all", "once", "skip"])
async def test_slots_missed_while_no_worker_ran_are_fired_by_policy(hf: Holdfast, sql: Sql, missed: Any) -> None:
    """1,201 slots: more than one transaction takes."""

    @hf.task()
    async def tick() -> None: ...

    tick.schedule("ticks", Cron("0,30 * * * * *", missed=missed))
    hf.database.sync_pool.run(hf.database.calls.schedules.register(hf.registry.schedules.values()))
    sql("update schedules set next_at = to_timestamp(trunc(extract(epoch from now()) / 30) * 30 - 36000)")
    ((first,),) = sql("select next_at from schedules")
    async with working(hf):
        await until(lambda: sql("select next_at > now() from schedules") == [(True,)])
    slots, missed_slots = fired(sql), [first + n * 30 * SECOND for n in range(1201)]
    came = [slot for slot in slots if slot > missed_slots[-1]]  # while we looked, before or after the leader did
    if missed == "all":
        assert slots == missed_slots + came
    else:  # to skip, the latest is missed too unless it was a moment ago
        assert slots in (missed_slots[-1:] + came, came) and (slots or missed == "skip")


async def test_a_paused_schedule_rests_and_goes_on(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="tick")
    async def tick() -> None: ...

    @hf.task(name="other")
    async def other() -> None: ...

    tick.schedule("ticks", Cron(EVERY_SECOND, missed="all"))
    other.schedule("others", Cron(EVERY_SECOND))
    async with working(hf):
        await until(lambda: fired(sql, "tick"))
        hf.schedules.pause("ticks")
        before, others = fired(sql, "tick"), len(fired(sql, "other"))
        assert [s.paused for s in hf.schedules.list()] == [False, True]
        await until(lambda: len(fired(sql, "other")) > others + 1)  # two slots have passed
        assert fired(sql, "tick") == before
        hf.schedules.resume("ticks")
        ((resumed,),) = sql("select now()")
        await until(lambda: len(fired(sql, "tick")) > len(before) + 1)
    after = fired(sql, "tick")[len(before) :]
    assert after[0] >= resumed - SECOND
    assert after == [after[0] + n * SECOND for n in range(len(after))]


# -- what cannot be fired


async def test_one_that_cannot_be_read_here_stops_no_other_and_is_logged_once(
    hf: Holdfast, sql: Sql, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    @hf.task()
    async def tick() -> None: ...

    def read(text: str, zone: str, missed: Any) -> Cron:
        if text == "0 0 1 1 *":
            raise RuntimeError("a mistake of ours")
        return Cron(text, zone, missed)

    monkeypatch.setattr("holdfast.upkeep.timetable.ASIDE", 0.1)
    monkeypatch.setattr("holdfast.upkeep.timetable.read_cron", read)
    tick.schedule("good", EVERY_SECOND)
    for name, cron, zone in (
        ("text of tomorrow", "@every 5s", "UTC"),
        ("zone of tomorrow", "* * * * *", "Mars/Base"),
        ("odd", "0 0 1 1 *", "UTC"),
    ):
        sql(
            "insert into schedules (name, task, cron, zone, missed, payload, options, next_at, registered_at) "
            "values (%s, 't', %s, %s, 'all', '{}', '{}', now() - interval '1 day', now())",
            [name, cron, zone],
        )
    sql(
        "insert into schedules (name, task, cron, zone, missed, payload, options, next_at, registered_at) values "
        "('refused', 't', '* * * * *', 'UTC', 'once', '{}', '{\"queue\": \"a/b\"}', now() - interval '1 hour', now())"
    )
    with caplog.at_level(logging.ERROR, "holdfast.timetable"):
        async with working(hf):
            await until(lambda: len(fired(sql)) >= 3)
    problems = {s.name: s.problem for s in hf.schedules.list()}
    assert problems["good"] is None
    assert "'@every 5s'" in problems["text of tomorrow"]
    assert "'Mars/Base'" in problems["zone of tomorrow"]
    assert "queue" in problems["refused"]
    assert problems["odd"] == "a mistake of ours"
    names = [getattr(record, "fields", {})["schedule"] for record in caplog.records]
    assert sorted(names) == ["odd", "refused", "text of tomorrow", "zone of tomorrow"], (
        "each once, though tried again and again"
    )


async def test_a_leader_fires_schedules_of_tasks_it_does_not_know(hf: Holdfast, sql: Sql, dsn: str) -> None:
    with Holdfast(dsn) as other:

        @other.task(name="theirs", queue="theirs")
        async def theirs() -> None: ...

        theirs.schedule("theirs", EVERY_SECOND)
        other.database.sync_pool.run(other.database.calls.schedules.register(other.registry.schedules.values()))
    async with working(hf):
        await until(lambda: fired(sql))
    assert sql("select distinct task, status::text from jobs") == [("theirs", "queued")]
    assert [s.live for s in hf.schedules.list()] == [False]


async def test_a_schedule_whose_row_is_locked_keeps_no_other_from_firing(hf: Holdfast, sql: Sql, dsn: str) -> None:
    import psycopg

    @hf.task()
    async def tick(n: int) -> None: ...

    for name in ("free", "held"):
        tick.schedule(name, EVERY_SECOND, len(name))
    hf.database.sync_pool.run(hf.database.calls.schedules.register(hf.registry.schedules.values()))
    hf.registry.schedules.clear()  # a worker that starts would wait for the row
    with psycopg.connect(dsn) as conn:
        conn.execute("select 1 from holdfast.schedules where name = 'held' for update")
        async with working(hf):
            await until(lambda: len(fired(sql)) >= 3)
            assert sql("select last_at from schedules where name = 'held'") == [(None,)]
            conn.rollback()
            await until(lambda: sql("select last_at from schedules where name = 'held'") != [(None,)])


# -- registration


def test_registration_refuses_what_an_enqueue_would(hf: Holdfast) -> None:
    @hf.task()
    async def report(n: int) -> None: ...

    with pytest.raises(InvalidPayload, match="Expected `int`"):
        report.schedule("r", EVERY_SECOND, "three")  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload):
        report.schedule("r", EVERY_SECOND)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="cron expression 'daily'"):
        report.schedule("r", "daily", 3)
    with pytest.raises(UsageError, match="a schedule's name must have 1 to 200"):
        report.schedule("", EVERY_SECOND, 3)
    assert hf.registry.schedules == {}
    report.schedule("r", EVERY_SECOND, 3)
    with pytest.raises(ConfigurationError, match="two schedules are named 'r'"):
        report.schedule("r", EVERY_SECOND, 4)


@pytest.mark.parametrize(
    "option",
    [
        {"delay": 3},
        {"run_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"dedupe": "k"},
        {"dedupe": Dedupe()},
        {"on_conflict": "raise"},
        {"id": "01890000-0000-7000-8000-000000000000"},
        {"conn": object()},
    ],
    ids=lambda o: next(iter(o)),
)
def test_options_that_make_no_sense_for_many_jobs_are_refused(hf: Holdfast, option: dict[str, Any]) -> None:
    @hf.task()
    async def report() -> None: ...

    with pytest.raises(UsageError, match=rf"schedule 'r' cannot have {next(iter(option))}=.*tenant, queue, priority"):
        report.using(**option).schedule("r", EVERY_SECOND)


async def test_a_worker_registers_what_the_code_says_now(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="report")
    async def report(n: int) -> None: ...

    report.using(tenant="acme").schedule("r", Cron("0 3 * * *", "Europe/Berlin", "all"), 5)
    async with working(hf):
        await until(lambda: sql("select next_at > now() from schedules") == [(True,)])
    (info,) = hf.schedules.list()
    assert (info.name, info.task, info.cron, info.zone, info.missed) == (
        "r",
        "report",
        "0 3 * * *",
        "Europe/Berlin",
        "all",
    )
    assert (info.payload, info.options["tenant"], info.paused, info.problem) == ({"n": 5}, "acme", False, None)
    assert info.next_at is not None and (info.next_at.astimezone(UTC).hour, info.last_job) in ((1, None), (2, None))


# -- operators


def test_a_schedule_is_run_paused_and_removed_by_name(hf: Holdfast) -> None:
    @hf.task(name="report")
    async def report() -> None: ...

    report.schedule("nightly", "0 3 * * *")
    hf.database.sync_pool.run(hf.database.calls.schedules.register(hf.registry.schedules.values()))
    job = hf.jobs.get(hf.schedules.run("nightly"))
    assert job is not None and job.task == "report"
    assert hf.schedules.list()[0].last_job == job.id
    hf.schedules.pause("nightly")
    hf.schedules.remove("nightly")
    assert hf.schedules.list() == []


@pytest.mark.parametrize("verb", ["pause", "resume", "run", "remove"])
def test_an_unknown_name_is_an_error_that_suggests_the_nearest(hf: Holdfast, verb: str) -> None:
    @hf.task()
    async def report() -> None: ...

    with pytest.raises(UnknownSchedule, match="no schedule named 'nightli'; workers register"):
        getattr(hf.schedules, verb)("nightli")
    report.schedule("nightly", "0 3 * * *")
    hf.database.sync_pool.run(hf.database.calls.schedules.register(hf.registry.schedules.values()))
    with pytest.raises(UnknownSchedule, match="did you mean 'nightly'"):
        getattr(hf.schedules, verb)("nightli")
