"""Actions through the client and the worker: hf.actions, edits, searches, and upkeep that works actions off."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Holdfast, InvalidPayload, Limit, UnknownAction, UsageError
from holdfast.model.action import ActionInfo
from tests.conftest import ROOT, wait_until
from tests.support import sql_core as core
from tests.support.running import until, working
from tests.support.sql_core import Sql

FILL = """insert into dead (id, status, queue, priority, lane, run_at, created_at, finished_at, attempt,
    max_attempts, task, payload, last_error) select uuid7(), 'dead', 'bulk', 2, 0, clock(), clock(), clock(), 5, 5, 't',
    jsonb_build_object('order', i)::json, '{"type": "app.Oops"}' from generate_series(1, %s) i"""
JOIN = "import sys; from holdfast import Holdfast; Holdfast(sys.argv[1]).actions.join(sys.argv[2])"


def bury(sql: Sql, number: int) -> list[str]:
    sql(FILL, [number])
    return [str(each) for each in core.firsts(sql("select id from dead order by (payload ->> 'order')::int"))]


@pytest.fixture
def arrived(sql: Sql) -> Iterator[Sql]:
    """Record each insert into live, to see which job was put there twice."""
    sql(
        "create table public.arrived (id uuid); create function public.arrive() returns trigger language plpgsql as "
        "'begin insert into public.arrived values (new.id); return null; end'; "
        "create trigger arrived after insert on live for each row execute function public.arrive()"
    )
    yield sql
    sql("drop trigger arrived on live; drop function public.arrive; drop table public.arrived")


# -- the noun


def test_a_small_action_is_done_when_start_returns(hf: Holdfast, sql: Sql) -> None:
    ids = bury(sql, 3)
    done = hf.actions.start("retry", {"task": "t", "args": {"order": 2}}, by="ada", reason="the provider is back")
    assert (done.state, done.matched, done.changed, done.preview, done.examples) == ("done", 1, 1, 1, [ids[1]])
    assert (done.by, done.reason, done.filter) == ("ada", "the provider is back", {"task": "t", "args": {"order": 2}})
    assert hf.actions.get(done.id) == done
    assert hf.actions.list(by="ada") == [done]
    assert hf.actions.list(kind="discard") == hf.actions.list(before=done.id) == []


def test_a_preview_changes_nothing(hf: Holdfast, sql: Sql) -> None:
    ids = bury(sql, 12)
    found = hf.actions.preview("discard", {"error": "Oops", "finished_until": datetime(2999, 1, 1, tzinfo=UTC)})
    assert (found.matching, found.complete, found.examples) == (12, True, sorted(ids)[:10])
    assert core.count(sql, "dead") == 12 and hf.actions.list() == []


def test_join_reports_progress_until_the_end(hf: Holdfast, sql: Sql) -> None:
    bury(sql, 6000)
    reports: list[ActionInfo] = []
    started = hf.actions.start("discard", {"task": "t"})
    ended = hf.actions.join(started.id, on_progress=reports.append)
    assert (ended.state, ended.changed) == ("done", 6000)
    assert reports[-1] == ended and [each.changed for each in reports] == sorted(each.changed for each in reports)


async def test_coroutines_do_the_same(hf: Holdfast, sql: Sql) -> None:
    ids = bury(sql, 2)
    started = await hf.actions.astart("retry", ids=ids[:1])
    assert (await hf.actions.ajoin(started.id, 30)).changed == 1
    await hf.aclose()


def test_waiting_too_long_raises_and_the_action_goes_on(hf: Holdfast, sql: Sql, dsn: str) -> None:
    (id_,) = bury(sql, 1)
    with core.session(dsn, autocommit=False) as open_:
        open_.execute("select 1 from dead where id = %s for update", [id_])
        started = hf.actions.start("retry", {"task": "t"})
        with pytest.raises(TimeoutError, match="it continues"):
            hf.actions.join(started.id, 0.1)
        assert hf.actions.get(started.id).locked == 1
    assert hf.actions.join(started.id).changed == 1


def test_an_action_is_aborted_once(hf: Holdfast, sql: Sql, dsn: str) -> None:
    (id_,) = bury(sql, 1)
    with core.session(dsn, autocommit=False) as open_:
        open_.execute("select 1 from dead where id = %s for update", [id_])
        started = hf.actions.start("retry", {"task": "t"})
    assert hf.actions.abort(started.id, by="ada", reason="a mistake") is True
    assert hf.actions.abort(started.id) is False
    assert hf.actions.join(started.id).state == "aborted"


def test_mistakes_are_refused_with_what_to_do(hf: Holdfast) -> None:
    for wrong, says in (
        (lambda: hf.actions.start("retry"), "a filter must be a JSON object"),
        (lambda: hf.actions.start("retry", {}), "the filter is empty"),
        (lambda: hf.actions.start("retry", {"taks": "t"}), "no field 'taks'"),  # type: ignore[typeddict-unknown-key]
        (lambda: hf.actions.start("retry", {"since": datetime(2026, 1, 1)}), "a time with its zone"),
        (lambda: hf.actions.start("move", {"task": "t"}), 'the parameters of move must be {"queue": VALUE}'),
        (lambda: hf.actions.start("retry", ids=[]), "a list must have 1 to 10,000 ids"),
        (lambda: hf.actions.start("retry", ids=["x"]), "is not an id"),
        (lambda: hf.actions.start("retry", {"task": "t"}, by="a\0"), "contains a NUL"),
        (lambda: hf.actions.list(by=7), "by must be a string"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError, match=says):
            wrong()
    for call in (hf.actions.get, hf.actions.abort, hf.actions.join):
        with pytest.raises(UnknownAction, match="there is no action"):
            call(str(uuid.uuid4()))


# -- upkeep and crashes


async def test_a_worker_works_actions_off(hf: Holdfast, sql: Sql) -> None:
    bury(sql, 3000)
    async with working(hf):
        sql("select start_action('discard', '{\"task\": \"t\"}')")
        await until(lambda: sql("select state from actions") == [("done",)])
    assert core.count(sql, "history") == 3000
    await hf.aclose()


def test_a_tick_works_actions_off(hf: Holdfast, sql: Sql) -> None:
    bury(sql, 600)
    sql("select start_action('discard', '{\"task\": \"t\"}')")
    hf.tick()
    assert sql("select state, changed from actions") == [("done", 600)]


def test_killed_twice_in_the_middle_each_job_is_changed_once(arrived: Sql, dsn: str, hf: Holdfast) -> None:
    jobs = 15_000
    bury(arrived, jobs)
    ((action,),) = arrived("select start_action('retry', '{\"task\": \"t\"}')")
    for share in (0.2, 0.5):
        program = subprocess.Popen([sys.executable, "-c", JOIN, dsn, str(action)], cwd=ROOT)
        try:
            least = int(share * jobs)
            wait_until(functools.partial(arrived, f"select 1 from actions where changed >= {least}"), every=0.005)
        finally:
            program.kill()
            program.wait()
    assert arrived("select state, changed < %s from actions", [jobs]) == [("running", True)]
    ended = hf.actions.join(str(action))
    assert (ended.state, ended.matched, ended.changed) == ("done", jobs, jobs)
    assert arrived("select count(*), count(distinct id) from public.arrived") == [(jobs, jobs)]


# -- recorded, edited, searched


def test_what_an_operator_does_to_jobs_is_recorded_and_what_a_program_does_is_not(hf: Holdfast, sql: Sql) -> None:
    one, two, three, four = bury(sql, 4)
    assert hf.dead.retry([one]) == [one]
    assert hf.dead.retry([two], by="ada") == [two]
    assert hf.dead.discard([three], reason="spam") == [three]
    assert hf.dead.discard([four]) == [four]
    assert hf.jobs.cancel(one) == {one: "canceled"}
    assert hf.jobs.cancel(two, by="ada") == {two: "canceled"}
    assert [(each.kind, each.target) for each in hf.actions.list()] == [
        ("cancel", two),
        ("discard", three),
        ("retry", two),
    ]


def dead_letter(hf: Holdfast, sql: Sql, task: Any, *args: Any) -> str:
    job: str = task.enqueue(*args).id
    (claimed,) = core.claim(sql)
    core.fail(sql, claimed, outcome="dead")
    return job


def test_a_dead_job_is_edited_checked_and_retried(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="pay", limits=[Limit("order:{order}")])
    def pay(order: int, note: str = "") -> None: ...

    job = dead_letter(hf, sql, pay, 41)
    with pytest.raises(InvalidPayload, match="order"):
        hf.jobs.edit(job, {"order": "many"})
    with pytest.raises(InvalidPayload, match="oder"):
        hf.jobs.edit(job, {"oder": 42})
    assert hf.jobs.edit(job, {"order": 42}, by="ada", reason="a typo") == "retried"
    info = hf.jobs.get(job)
    assert info is not None and info.payload == {"order": 42}
    assert sql("select keys from live") == [(["order:42"],)]
    (edit,) = hf.actions.list(target=job)
    assert (edit.kind, edit.by, edit.before, edit.params) == (
        "edit",
        "ada",
        {"args": {"order": 41}},
        {"args": {"order": 42}},
    )


def test_an_edit_keeps_numbers_that_python_cannot_hold(hf: Holdfast, sql: Sql) -> None:
    job = str(core.put(sql, payload={"a": 1}))
    numbers = '{"a": 123456789012345678901234567890, "b": 0.1234567890123456789012345}'
    sql("update live set payload = %s::jsonb", [numbers])
    assert hf.jobs.edit(job, {"c": 3}) == "edited"
    assert sql("select payload::jsonb - 'c' = %s::jsonb, payload ->> 'c' from live", [numbers]) == [(True, "3")]


def test_a_job_of_an_unknown_task_is_edited_unchecked(hf: Holdfast, sql: Sql) -> None:
    job = str(core.put(sql, payload={"a": 1, "b": 2}, keys=["k"]))
    assert hf.jobs.edit(job, {"a": 3}) == "edited"
    assert sql("select payload, keys from live") == [({"a": 3, "b": 2}, ["k"])]
    with pytest.raises(UsageError, match="there is no job"):
        hf.jobs.edit(str(uuid.uuid4()), {})


def test_a_search_finds_jobs_by_argument_wherever_they_are(hf: Holdfast, sql: Sql) -> None:
    ids = bury(sql, 3)
    waiting = str(core.put(sql, payload={"order": 2, "more": [1]}))
    found = hf.jobs.search({"order": 2})
    assert ([job.id for job in found.jobs], found.next) == ([waiting, ids[1]], None)
    assert [job.id for job in hf.jobs.search({"order": 2}, status="dead").jobs] == [ids[1]]
    first = hf.jobs.search({"order": 2}, limit=1)
    assert first.next == waiting
    assert [job.id for job in hf.jobs.search({"order": 2}, limit=1, before=first.next).jobs] == [ids[1]]


def test_a_search_without_time_returns_a_place_to_go_on_from(hf: Holdfast, sql: Sql) -> None:
    ids = bury(sql, 1000)
    pages = [hf.jobs.search({"order": 1}, seconds=0)]
    while pages[-1].next is not None:
        pages.append(hf.jobs.search({"order": 1}, seconds=0, before=pages[-1].next))
    assert [job.id for page in pages for job in page.jobs] == [ids[0]]
    assert len(pages) == 11


def test_a_search_among_many_jobs_ends_in_time(hf: Holdfast, sql: Sql) -> None:
    bury(sql, 20_000)
    began = time.monotonic()
    found = hf.jobs.search({"order": -1}, seconds=0.2)
    assert found.jobs == [] and time.monotonic() - began < 10


def test_every_operation_for_operators_takes_who_and_why(hf: Holdfast, sql: Sql) -> None:
    signed: dict[str, Any] = {"by": "ada", "reason": "drill"}
    hf.limits.set("k", concurrency=1, **signed)
    hf.limits.clear("k", **signed)
    hf.limits.pause("k", **signed)
    hf.limits.resume("k", **signed)
    _, token = hf.tokens.create("n", tenant="acme", scopes=["jobs:read"], **signed)
    hf.tokens.revoke(token.id, **signed)
    schedule = '[{"name": "s", "task": "t", "cron": "0 3 * * *", "zone": "UTC", "missed": "once", "payload": {}}]'
    sql("select register_schedules(%s::jsonb)", [schedule.replace("}}]", '}, "options": {}}]')])
    for call in (hf.schedules.pause, hf.schedules.resume, hf.schedules.run, hf.schedules.remove):
        call("s", **signed)
    rows = hf.actions.list(by="ada")
    assert [row.kind for row in reversed(rows)] == [
        *("limits.set", "limits.clear", "pause", "resume", "tokens.create", "tokens.revoke"),
        *("schedules.pause", "schedules.resume", "schedules.run", "schedules.remove"),
    ]
    assert {row.reason for row in rows} == {"drill"}
