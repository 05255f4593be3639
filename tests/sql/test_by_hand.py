"""Jobs by plain SQL, as psql or any language would (R29): the whole life of a job without a line of Python."""

from __future__ import annotations

import re
import subprocess
import uuid
from pathlib import Path

import psycopg
import pytest

from holdfast.store.dev.embedded import EmbeddedPostgres
from tests.support import sql_core as core
from tests.support.sql_core import Sql

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "sql.md"
PSQL = """
set search_path to holdfast;
\\set QUIET on
select id as job from enqueue('mail.send', '{"to": "a@b.c"}') \\gset
select status, attempts from jobs where id = :'job';
select id, token, task, payload, attempt from claim('psql') \\gset claimed_
select :'claimed_task', :'claimed_payload', :'claimed_attempt', :'claimed_id' = :'job';
select status, locked_by from jobs where id = :'job';
select count(*) as refused from finish(array[:'claimed_id'::uuid], array[:claimed_token::bigint]);
select status, attempts, locked_by from jobs where id = :'job';
select count(*) as refused from finish(array[:'claimed_id'::uuid], array[:claimed_token::bigint]);
"""


def test_the_session_in_the_guide_does_what_it_says(each_sql: Sql) -> None:
    """Every statement of docs/guides/sql.md, with the ids and tokens that the claim returned."""
    session = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)[0]
    session = re.sub(r"--.*", "", session).replace("\\gset", ";")  # filled() substitutes variables as psql does
    enqueue, claim, renew, finish, fail = (text.strip() for text in session.split(";") if text.strip())

    def filled(statement: str, id_: uuid.UUID, token: int) -> str:
        return statement.replace(":'id'", f"'{id_}'").replace(":token", str(token))

    jobs = []
    for _ in range(2):
        ((id_, _outcome),) = each_sql(enqueue)
        ((claimed, token, payload, attempt),) = each_sql(claim)
        assert (claimed, payload, attempt) == (id_, {"name": "Ada"}, 1)
        jobs.append((id_, token))
    (first, its), (second, other) = jobs
    assert each_sql(filled(renew, first, its)) == [(its,)]
    assert each_sql(filled(finish, first, its)) == []
    assert each_sql(filled(finish, first, its)) == [(first,)]
    assert each_sql(filled(fail, second, other)) == [(True,)]
    assert each_sql(filled(fail, second, other)) == [(False,)]
    assert [core.status(each_sql, each) for each in (first, second)] == ["succeeded", "retrying"]


def test_a_job_is_enqueued_claimed_and_finished_by_hand(each_sql: Sql) -> None:
    sql = each_sql
    ((id_, outcome),) = sql("select id, outcome from enqueue('mail.send', '{\"to\": \"a@b.c\"}')")
    assert outcome == "created"
    assert sql("select status::text, attempts, queue, priority from jobs") == [("queued", 0, "default", 2)]
    ((claimed, token, task, payload, attempt),) = sql("select id, token, task, payload, attempt from claim('me')")
    assert (claimed, task, payload, attempt) == (id_, "mail.send", {"to": "a@b.c"}, 1)
    assert sql("select status::text, locked_by from jobs") == [("running", "me")]
    assert sql("select renew('me', array[%s]::bigint[], '5 minutes')", [token]) == [(token,)]
    assert sql(f"select finish('{{{id_}}}', '{{{token}}}')") == []
    assert sql("select status::text, attempts, locked_by from jobs") == [("succeeded", 1, "me")]
    assert sql(f"select finish('{{{id_}}}', '{{{token}}}')") == [(id_,)]
    assert core.count(sql, "claims") == 0


def test_the_same_in_psql(each_dsn: str, tmp_path: Path) -> None:
    psql = EmbeddedPostgres(tmp_path).bin / "psql"  # the embedded server brings one
    done = subprocess.run(
        [psql, "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", each_dsn],
        input=PSQL,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "queued|0",
        'mail.send|{"to": "a@b.c"}|1|t',
        "running|psql",
        "0",
        "succeeded|1|psql",
        "1",
    ]


def test_a_failure_by_hand_is_retried_and_then_dead(each_sql: Sql) -> None:
    sql = each_sql
    ((id_,),) = sql('select id from enqueue(\'t\', p_max_attempts => 2, p_retry => \'{"kind": "fixed", "delay": 0}\')')
    for expected in ("retrying", "dead"):
        ((token,),) = sql("select token from claim('me')")
        assert sql('select fail(%s, %s, \'{"type": "Timeout", "message": "slow"}\')', [id_, token]) == [(True,)]
        assert sql("select status::text, last_error ->> 'message' from jobs") == [(expected, "slow")]
    assert sql("select retry_dead(array[%s])", [id_]) == [(id_,)]
    assert sql("select status::text, attempts from jobs") == [("retrying", 0)]


def test_snooze_and_release_by_hand_refund_the_attempt(each_sql: Sql) -> None:
    sql = each_sql
    id_ = core.put(sql)
    ((token,),) = sql("select token from claim('me')")
    assert sql("select snooze(%s, %s, '1 hour')", [id_, token]) == [(True,)]
    assert sql("select status::text, attempts, run_at > now() + interval '50 minutes' from jobs") == [
        ("queued", 0, True)
    ]
    sql("update later set run_at = now()")
    ((token,),) = sql("select token from claim('me')")
    assert sql("select release(array[%s]::uuid[], array[%s]::bigint[])", [id_, token]) == []
    assert sql("select status::text, attempts from jobs") == [("queued", 0)]


def test_every_parameter_of_enqueue_is_kept(each_sql: Sql) -> None:
    sql, id_ = each_sql, uuid.uuid4()
    sql(
        """select enqueue(p_task => 't', p_payload => '{"a": 1}', p_queue => 'q', p_id => %s, p_tenant => 'acme',
                          p_priority => 0, p_run_at => '2020-01-02 03:04:05+00', p_max_attempts => 9,
                          p_retry => '{"kind": "none"}', p_dedupe_key => 'k')""",
        [id_],
    )
    job = core.look(sql, id_)
    assert (job.task, job.payload, job.queue, job.tenant, job.priority) == ("t", {"a": 1}, "q", "acme", 0)
    assert (job.run_at.isoformat()[:19], job.max_attempts, job.dedupe_key) == ("2020-01-02T03:04:05", 9, "k")
    (claimed,) = core.claim(sql, queues=["q"])
    assert (claimed.id, claimed.tenant, claimed.priority, claimed.dedupe_key) == (id_, "acme", 0, "k")


def test_results_of_many_jobs_by_hand_are_in_the_order_given(each_sql: Sql) -> None:
    given = """[{"task": "a", "dedupe_key": "z"}, {"task": "b", "delay": 60}, {"task": "c", "dedupe_key": "y"},
                {"task": "d", "priority": 0, "tenant": "acme", "payload": {"n": 1}, "max_attempts": 2,
                 "retry": {"kind": "none"}, "queue": "q", "run_at": "2020-01-01T00:00:00Z"}]"""
    rows = each_sql(
        "select j.task, j.status::text from enqueue_many(%s::jsonb) with ordinality e(id, outcome, place) "
        "left join jobs j on j.id = e.id order by e.place",
        [given],
    )
    assert rows == [(None, None)] * 4  # the view does not see what the same statement inserts
    assert each_sql("select task from jobs order by task") == [("a",), ("b",), ("c",), ("d",)]
    assert each_sql("select queue, priority, tenant, max_attempts, payload from jobs where task = 'd'") == [
        ("q", 0, "acme", 2, {"n": 1})
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("enqueue('')", "a task name must have 1 to 200 characters, got "),
        ("enqueue(null)", "a task name must have 1 to 200 characters, got null"),
        ("enqueue(repeat('x', 201))", "a task name must have 1 to 200 characters, got xxx"),
        ("enqueue('t', p_queue => '')", "a queue's name must have 1 to 100 characters, no slash"),
        ("enqueue('t', p_queue => 'a/b')", "no space at its start or end, got 'a/b'"),
        ("enqueue('t', p_queue => 'mail,eu')", "no space at its start or end, got 'mail,eu'"),
        ("enqueue('t', p_queue => ' mail')", "no space at its start or end, got ' mail'"),
        ("enqueue('t', p_queue => E'mail\\t')", "no space at its start or end, got 'mail\t'"),
        ("enqueue('t', p_queue => null)", "no space at its start or end, got null"),
        ("enqueue('t', p_tenant => '')", "a tenant must have 1 to 200 characters, got "),
        (
            "enqueue('t', p_priority => 4)",
            r"priority must be 0 \(critical\), 1 \(high\), 2 \(normal\) or 3 \(low\), got 4",
        ),
        ("enqueue('t', p_priority => null)", "priority must be .* got null"),
        ("enqueue('t', p_max_attempts => 0)", "max_attempts must be from 1 to 32000, got 0"),
        ("enqueue('t', p_max_attempts => 32001)", "max_attempts must be from 1 to 32000, got 32001"),
        ("enqueue('t', '[1]')", "a payload must be a JSON object of the task's arguments, got array"),
        ("enqueue('t', '5')", "a payload must be a JSON object of the task's arguments, got number"),
        ("enqueue('t', null)", "a payload must be a JSON object of the task's arguments, got null"),
        ('enqueue_many(\'[{"task": "t"}, {"task": "t", "priority": 9}]\')', "priority must be .* got 9"),
        ("finish('{00000000-0000-0000-0000-000000000001}', '{}')", "one token for each id, got 1 ids and 0 tokens"),
    ],
)
def test_a_job_that_no_worker_could_run_is_refused_by_name(sql: Sql, call: str, message: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=message):
        sql(f"select {call}")
    assert core.count(sql, "jobs") == 0


def test_enqueue_gives_out_time_ordered_ids(sql: Sql) -> None:
    ids = [core.put(sql) for _ in range(20)]
    assert {id_.version for id_ in ids} == {7}
    assert {id_.variant for id_ in ids} == {uuid.RFC_4122}
    stamps = [id_.int >> 80 for id_ in ids]
    assert stamps == sorted(stamps)
    ((now,),) = sql("select extract(epoch from clock_timestamp()) * 1000")
    assert abs(stamps[-1] - float(now)) < 5000


def test_the_queue_depth_view_counts_what_is_where(each_sql: Sql) -> None:
    sql = each_sql
    for _ in range(4):
        core.put(sql)
    core.claim(sql, limit=1)
    core.put(sql, delay="1 hour")
    core.put(sql, queue="mail", priority=0)
    core.fail(sql, core.claim_one(sql, queues=["mail"]), outcome="failed")
    rows = sql("select queue, ready, running, later, dead from queue_depth order by queue")
    assert rows == [("default", 3, 1, 1, 0), ("mail", 0, 0, 0, 1)]
