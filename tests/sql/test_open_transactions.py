"""No caller's open transaction can delay another job's end, a claim or upkeep.

Each operation that any role may call is left open in a transaction. Beside it everything else must go on: unrelated
jobs, also those of the same claim and of the same call to finish(). A function that is granted
and has no case here fails the test. The one exception is a claim that holds the ring's lock: other claims of tenants'
jobs and of jobs under limits wait until the server has ended its session, for a second.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from tests.support import sql_core as core
from tests.support.mutants import mutant
from tests.support.sql_core import Sql

ROLES = ("enqueue", "worker", "reader", "service", "admin")
ONCE = {"kind": "fixed", "delay": 0}
ENDPOINT = "00000000-0000-7000-8000-00000000000e"
TOKEN = "00000000-0000-7000-8000-00000000000f"
OPEN_BATCH, BATCH = "00000000-0000-7000-8000-0000000000b1", "00000000-0000-7000-8000-0000000000b2"
MINUTELY = {"task": "t", "cron": "* * * * *", "zone": "UTC", "missed": "once", "payload": {}, "options": {}}
RULE = {"template": "domain:{domain}", "pattern": "domain:%", "code": {"concurrency": 2}}
TASK = {"name": "t", "queue": "default", "max_attempts": 5, "retry": {}, "timeout": None}
FIRE = """select jsonb_agg(jsonb_build_object('name', name, 'cron', cron, 'zone', zone, 'next_at', next_at,
    'slots', jsonb_build_array(next_at), 'then', next_at + interval '1 hour')) from schedules where name = any (%s)"""

# The statement of each operation, on the jobs of the scene: %(running)s and so on.
CASES: dict[str, str] = {
    # enqueue, in all its forms
    "enqueue": "select enqueue('t')",
    "enqueue, with a key": "select enqueue('t', p_dedupe_key => 'new')",
    "enqueue, existing": "select enqueue('t', p_dedupe_key => 'held')",
    "enqueue, replacing a waiting job": "select enqueue('t', p_dedupe_key => 'held', p_on_conflict => 'replace')",
    "enqueue, replacing a later job": "select enqueue('t', p_dedupe_key => 'later', p_on_conflict => 'replace')",
    "enqueue, of a running job's key": "select enqueue('t', p_dedupe_key => 'running', p_on_conflict => 'replace')",
    "enqueue, an id again": "select enqueue('t', p_id => %(running)s)",
    "enqueue, delayed": "select enqueue('t', p_delay => '1 hour')",
    "enqueue, into a batch": "select enqueue('t', p_batch => %(open_batch)s)",
    "enqueue, under limits": "select enqueue('t', p_tenant => 'acme', p_keys => '{domain:a,domain:b}')",
    "enqueue, in order": "select emit('mail', '{}', 'k1', p_order => 'o')",
    "enqueue_many": """select enqueue_many('[{"task": "t", "dedupe_key": "a"}, {"task": "t", "delay": 60}]')""",
    "emit": "select emit('mail', '{}', 'k2')",
    "publish_event": "select publish_event('order.paid', '{}', 'acme', p_key => 'k')",
    "announce_lanes": """select announce_lanes('default', 2, 'acme', '[["domain:a"], null]', 2)""",
    "lane_of": "select lane_of('acme', '{k}')",
    "fit_keys": "select fit_keys('{k}')",
    "wake": "select wake('default')",
    "signal": "select signal('approved', '1')",
    "signal, of a parked job": "select signal('parked', '1')",
    "open_batch": "select open_batch(gen_random_uuid(), 'new')",
    "add_to_batch": "select add_to_batch(%(open_batch)s, 3)",
    "close_batch": "select close_batch(%(open_batch)s)",
    "enqueue, after a running job": "select enqueue('t', p_after => array[%(running)s]::uuid[])",
    "enqueue, after a later job": "select enqueue('t', p_after => array[%(later)s]::uuid[])",
    # workers' calls
    "claim": "select claim('open', '{mine}', 10, p_asleep => true)",
    "claim, from the ring": "select claim('open', '{ring}', 10)",
    "sleep": "select sleep('open', '{default}')",
    "finish": "select finish(array[%(running)s]::uuid[], array[%(token)s]::bigint[], null, '{}')",
    "finish, closing its claim": "select finish(array[%(alone)s]::uuid[], array[%(alone_token)s]::bigint[])",
    "fail": "select fail(%(running)s, %(token)s)",
    "fail, dead": """select fail(%(running)s, %(token)s, '{"block": "b"}', p_outcome => 'dead')""",
    "snooze": "select snooze(%(running)s, %(token)s, '1 hour')",
    "release": "select release(array[%(running)s]::uuid[], array[%(token)s]::bigint[])",
    "renew": "select renew('w', array[%(token)s]::bigint[], '1 minute')",
    "held_jobs": "select held_jobs(array[%(running)s]::uuid[], array[%(token)s]::bigint[])",
    "report_progress": """select report_progress(jsonb_build_array(jsonb_build_object(
        'id', %(running)s::uuid, 'token', %(token)s, 'done', 1)))""",
    "report_log": """select report_log(jsonb_build_array(jsonb_build_object('id', %(running)s::uuid, 'token', %(token)s,
        'attempt', 1, 'seconds', 1, 'lines', jsonb_build_array(jsonb_build_object('n', 1, 'text', 'x')))))""",
    "store_steps": """select store_steps(json_build_array(json_build_object(
        'id', %(running)s::uuid, 'token', %(token)s, 'name', 'a', 'result', 1)))""",
    "read_steps": "select read_steps(array[%(running)s]::uuid[], array[%(token)s]::bigint[])",
    "store_step_result": "select store_step_result(%(running)s, %(token)s, 'a', '1')",
    "start_child": """select start_child(%(running)s, %(token)s, 'c', '{"task": "t"}')""",
    "start_batch": "select start_batch(%(running)s, %(token)s, 'b', gen_random_uuid(), null, null)",
    "wanted_cancels": "select wanted_cancels(array[%(token)s]::bigint[])",
    "keep_result": "select keep_result(%(history)s, '1')",
    "mark_started": "select mark_started(array[%(running)s]::uuid[], array[%(token)s]::bigint[], '{1}')",
    "reclaim": "select reclaim()",
    "reclaim_worker": "select reclaim_worker('nobody')",
    "promote": "select promote()",
    "expire": "select expire()",
    "complete_batches": "select complete_batches()",
    "take_lead": "select take_lead('upkeep', 'open', '1 minute')",
    "upkeep": "select upkeep('open', '1 minute')",
    "take_snapshot": "select take_snapshot('0 s')",
    "prune": "select prune()",
    "make_partitions": "select make_partitions()",
    "record_tick": "select record_tick('open', '{default}', 1, 0, 0, 0, 0, 0, 0, '{}')",
    "count_waiting": "select count_waiting('{default}')",
    "count_jobs": "select count_jobs()",
    "register_worker": "select register_worker('open', 'h', 1, '1', '{default}', 1, %(changed_task)s)",
    "unregister_worker": "select unregister_worker('w')",
    "register_limits": "select register_limits(%(new_rule)s)",
    "register_schedules": "select register_schedules(%(changed_schedules)s)",
    "next_schedules": "select next_schedules()",
    "fire_schedules": "select fire_schedules(%(fire)s)",
    "fire_schedules, of a problem": """select fire_schedules('[{"name": "mine", "problem": "odd"}]')""",
    "read_endpoint": "select read_endpoint(%(endpoint)s)",
    "read_body": "select read_body(gen_random_uuid(), 'acme')",
    "webhooks_wanted": "select webhooks_wanted()",
    # operators' calls
    "cancel": "select cancel(array[%(waiting)s, %(later)s, %(dead)s, %(history)s]::uuid[])",
    "cancel, of a running job": "select cancel(array[%(running)s]::uuid[])",
    "cancel, of a job whose worker is gone": "select cancel(array[%(expired)s]::uuid[])",
    "cancel_batch": "select cancel_batch(%(open_batch)s)",
    "retry_dead": "select retry_dead(array[%(dead)s]::uuid[])",
    "discard_dead": "select discard_dead(array[%(dead)s]::uuid[])",
    "pause_schedule": "select pause_schedule('mine')",
    "run_schedule": "select run_schedule('mine')",
    "remove_schedule": "select remove_schedule('mine')",
    "pause": "select pause('domain:known')",
    "pause, of a queue": "select pause('queue:elsewhere')",
    "pause, of a new key": "select pause('domain:new')",
    "resume": "select resume('domain:paused')",
    "set_limit": """select set_limit('domain:known', '{"concurrency": 1}')""",
    "set_limit, of a rule": """select set_limit('domain:{domain}', '{"concurrency": 1}')""",
    "set_limit, of a new key": """select set_limit('domain:new', '{"concurrency": 1}')""",
    "clear_limit": "select clear_limit('domain:known')",
    "reset_breaker": "select reset_breaker('domain:known')",
    "reconcile_limits": "select reconcile_limits()",
    "after_restore": "select after_restore()",
    "stop_worker": "select stop_worker('w', true)",
    # actions
    "start_action": """select start_action('retry', '{"task": "t"}')""",
    "preview_action": """select preview_action('retry', '{"task": "t"}')""",
    "work_actions": "select work_actions()",
    "abort_action": "select abort_action(%(action)s)",
    "act_on_jobs": "select act_on_jobs('cancel', array[%(waiting)s, %(later)s]::uuid[])",
    "act_on_jobs, of a dead job": "select act_on_jobs('retry', array[%(dead)s]::uuid[])",
    "act_on_jobs, moving": """select act_on_jobs('move', array[%(waiting)s, %(later)s]::uuid[], '{"queue": "new"}')""",
    "act_on_jobs, putting off": """select act_on_jobs('reschedule', array[%(waiting)s]::uuid[],
        '{"run_at": "2999-01-01T00:00:00Z"}')""",
    "edit_job": """select edit_job(%(waiting)s, '{"a": 1}')""",
    "edit_job, of a dead job": """select edit_job(%(dead)s, '{"a": 1}')""",
    "compensate": "select compensate(%(history)s)",
    "rerun": "select rerun(%(history)s, p_keys => '{}')",
    "rerun, of a dead job": "select rerun(%(dead)s)",
    # webhooks and the service
    "add_endpoint": "select add_endpoint(gen_random_uuid(), 'https://example.org', 'plain:s')",
    "change_endpoint": """select change_endpoint(%(endpoint)s, '{"url": "https://example.com"}')""",
    "change_endpoint, enabled": """select change_endpoint(%(endpoint)s, '{"enabled": true}')""",
    "disable_endpoint": "select disable_endpoint(%(endpoint)s)",
    "rotate_secret": "select rotate_secret(%(endpoint)s, 'plain:new')",
    "remove_endpoint": "select remove_endpoint(%(endpoint)s)",
    "test_endpoint": "select test_endpoint(%(endpoint)s, '{}')",
    "redeliver": "select redeliver(array[%(dead)s, %(later)s]::uuid[])",
    "create_token": "select create_token(gen_random_uuid(), 'n', sha256('x'), 'x', null, '{jobs:read}')",
    "use_token": "select use_token(sha256('token'))",
    "revoke_token": "select revoke_token(%(api_token)s)",
    "begin_response": "select begin_response('acme', 'k', '1')",
    "store_response": "select store_response('acme', 'k', 200::smallint, '{}')",
    # reads
    "clock": "select clock()",
    "figures": "select figures()",
    "wanted_workers": "select wanted_workers('default')",
    "wait_at": "select wait_at('{1}', '{1}', 0.5)",
    "rule_of": "select rule_of('domain:known')",
    "idempotency_key": "select idempotency_key('mail', null, 'k')",
    "why": "select why(%(running)s)",
    "claimed_jobs": "select claimed_jobs()",
    "is_alive": "select is_alive('w', now())",
    "level_of": "select level_of('queue_depth', 1)",
    "may_see": "select may_see(true, null, 'acme')",
    "seen_jobs": "select seen_jobs(true, null, true, array[%(running)s, %(dead)s]::uuid[])",
    "look_at": "select look_at(array[%(running)s]::uuid[], array[true], array[null]::text[], array[true])",
    "page_floor": "select page_floor(null, 10)",
    "has_args": """select has_args('{"a": 1}', '{"a": 1}')""",
    "job_marks": "select job_marks(array[%(running)s, %(history)s]::uuid[])",
}
# What roles may do without a function.
BY_HAND: dict[str, str] = {
    "insert into live": "insert into live (id, task) values (gen_random_uuid(), 't')",
    "settings": "update settings set value = value where name = 'history_retention_days'",
    "blocks": "delete from blocks",
    "a look at everything": "select count(*), (select count(*) from history) from jobs",
}
# Claims that hold the ring's lock; and all whose sessions the server ends, since they hold it.
RING = ("claim, from the ring",)
ENDED = (*RING, "upkeep", "prune")
# Left open together, each in a transaction of its own: they take no lock that another one of the group needs.
GROUPS: dict[str, tuple[str, ...]] = {
    "all ways to enqueue": tuple(CASES)[: tuple(CASES).index("close_batch")],
    "calls of a worker that change no job": (
        "sleep",
        "held_jobs",
        "wanted_cancels",
        "keep_result",
        "record_tick",
        "count_waiting",
        "count_jobs",
        "read_body",
        "next_schedules",
        "read_endpoint",
        "webhooks_wanted",
        "unregister_worker",
    ),
    "endpoints and tokens": (
        "add_endpoint",
        "change_endpoint",
        "test_endpoint",
        "create_token",
        "use_token",
        "begin_response",
        "store_response",
    ),
    "all looks, and what roles may do by hand": (*tuple(CASES)[tuple(CASES).index("clock") :], *BY_HAND),
}


@dataclass
class Scene:
    """Jobs of every kind: those the operation is about, and those that must go on."""

    sql: Sql
    names: dict[str, Any] = field(default_factory=dict)
    together: list[core.Claimed] = field(default_factory=list)  # of one claim: the first is the operation's

    def build(self) -> None:
        sql = self.sql
        sql("select register_worker('w', 'h', 1, '1', '{default}', 1, %s)", [json.dumps([TASK])])
        sql("select register_limits(%s)", [json.dumps([RULE])])
        sql("select register_schedules(%s)", [json.dumps([{"name": n, **MINUTELY} for n in ("mine", "same")])])
        sql("update schedules set next_at = date_trunc('minute', clock()) - interval '1 minute'")
        for key in ("domain:known", "domain:paused"):
            core.put(sql, keys=[key])
            sql("select pause(%s)", ["domain:paused"])
        sql("update limits set failure_streak = 1")
        core.finish(sql, *core.claim(sql, queues=("default",)))
        sql("delete from live")
        sql("select open_batch(%s, 'open')", [OPEN_BATCH])
        made = core.one_job_in_every_place(sql)
        sql("delete from live where id = %s", [made["running"]])
        sql("delete from claims")
        first = core.put(sql, queue="together", dedupe_key="running", batch=OPEN_BATCH)
        for _ in range(4):
            core.put(sql, queue="together", retry=ONCE)
        self.together = core.claim(sql, queues=("together",))
        core.put(sql, queue="parked")
        (parked,) = core.claim(sql, queues=("parked",))
        wait = {"kind": "signal", "name": "parked", "seconds": None}
        waits = {"id": str(parked.id), "token": parked.token, "outcome": "parked", "wait": wait}
        sql("select finish('{}', '{}', %s::jsonb)", [json.dumps([waits])])
        alone = core.put(sql, queue="alone")
        (lonely,) = core.claim(sql, queues=("alone",))
        expired = [core.put(sql, queue="gone", retry=ONCE) for _ in range(2)]
        (claim, _) = core.claim(sql, "gone", queues=("gone",))
        sql("update claims set expires_at = '2000-01-01' where token = %s", [claim.token])
        core.put(sql, queue="ring", tenant="acme", keys=["domain:known"])
        core.put(sql, queue="ended", keys=["domain:known"])
        core.finish(sql, *core.claim(sql, queues=("ended",)))  # and no claim has folded it
        waiting = core.put(sql, queue="mine", dedupe_key="held", batch=OPEN_BATCH)
        later = core.put(sql, queue="mine", dedupe_key="later", delay="1 hour")
        sql("select add_endpoint(%s, 'https://example.org', 'plain:s', 'acme')", [ENDPOINT])
        sql("select create_token(%s, 'n', sha256('token'), 'x', null, '{jobs:read}')", [TOKEN])
        sql("insert into blocks values ('old', 'r', 1, clock(), clock(), %s)", [first])
        ((action,),) = sql("""select start_action('discard', '{"status": "dead"}')""")
        due = sql(FIRE, [["mine"]])[0][0]
        changed = [{"name": name, **MINUTELY, "cron": "* * * * *"} for name in ("mine", "new")]
        self.names = {
            "running": first,
            "token": self.together[0].token,
            "alone": alone,
            "alone_token": lonely.token,
            "expired": expired[0],
            "waiting": waiting,
            "later": later,
            "dead": made["dead"],
            "history": made["history"],
            "open_batch": OPEN_BATCH,
            "endpoint": ENDPOINT,
            "action": action,
            "api_token": TOKEN,
            "fire": json.dumps(due),
            "new_rule": json.dumps([{**RULE, "template": "k:{a}", "pattern": "k:%"}]),
            "changed_task": json.dumps([{**TASK, "max_attempts": 7}, {**TASK, "name": "new"}]),
            "changed_schedules": json.dumps(changed),
            "beside": expired[1],
        }


@contextmanager
def left_open(dsn: str, schema: str, case: str, names: dict[str, Any]) -> Iterator[psycopg.Connection[Any]]:
    """Run the operation in a transaction that is committed at the end, unless the server has ended its session."""
    statement = (CASES | BY_HAND)[case]
    with core.session(dsn, schema, autocommit=False) as conn:
        conn.execute(statement, names if "%(" in statement else None)
        yield conn
        if case in ENDED:
            with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
                conn.execute("select 1")
        else:
            conn.commit()


def go_on(sql: Sql, scene: Scene, case: str) -> None:
    """Do everything that must work beside the open transaction, on unrelated jobs."""
    sql("set lock_timeout = '1s'")  # a wait for the transaction would never end
    if case not in RING:
        _work(sql, case)
    _end(sql, scene)
    _keep_up(sql, scene, case)
    _start_worker(sql)
    if case in RING:
        _work_beside_a_claim(sql)


def _work_beside_a_claim(sql: Sql) -> None:
    """Claim plain jobs at once, and all others when the server has ended the claim's session."""
    plain, tenants = core.put(sql, queue="busy"), core.put(sql, queue="busy", tenant="acme")
    limited = core.put(sql, queue="busy", keys=["domain:other"])
    began = time.monotonic()
    found = {job.id for job in core.claim(sql, "other", queues=("busy",))}
    assert plain in found
    while found != {plain, tenants, limited}:
        found |= {job.id for job in core.claim(sql, "other", queues=("busy",))}
        assert time.monotonic() - began < 2.0, "claims go on after a second"
    assert {job.id for job in core.claim(sql, "other", queues=("ring",))}, "the open claim's jobs are free again"


def _work(sql: Sql, case: str) -> None:
    """Enqueue and claim. A job that the operation's limits hold is at the head of the queue."""
    core.put(sql, queue="busy", keys=["domain:new"])
    core.put(sql, queue="busy", keys=["domain:known"])
    plain = [core.put(sql, queue="busy"), core.put(sql, queue="busy", dedupe_key="other", keys=["domain:other"])]
    sql("""select enqueue_many('[{"task": "t", "queue": "busy"}, {"task": "t", "delay": 60, "queue": "busy"}]')""")
    sql("insert into live (id, task, queue) values (gen_random_uuid(), 't', 'busy')")
    found = {job.id for job in core.claim(sql, "other", queues=("busy",))}
    assert found >= set(plain), f"claims go on while {case} is open"
    assert len(found) >= 4


def _end(sql: Sql, scene: Scene) -> None:
    """End its other jobs in one call to finish(), as succeeded or failed, though it holds the operation's job too."""
    mine, well, badly, both, _ = scene.together
    results = [
        {"id": str(job.id), "token": job.token, "outcome": how}
        for job, how in ((badly, "error"), (both, "succeeded"), (mine, "error"))
    ]
    reports = [{"id": str(job.id), "token": job.token, "done": 1} for job in (mine, well)]
    sql("select report_progress(%s::jsonb)", [json.dumps(reports)])
    logs = [{**each, "attempt": 1, "seconds": 1, "lines": [{"n": 1, "text": "x"}]} for each in reports]
    sql("select report_log(%s::jsonb)", [json.dumps(logs)])
    sql("select finish('{}', '{}', %s::jsonb, '{}', 'skip')", [json.dumps(results)])
    sql("select finish(%s::uuid[], %s::bigint[], null, '{}', 'skip')", [[mine.id, well.id], [mine.token, well.token]])
    ended = {str(id_): status for id_, status in sql("select id, status::text from jobs where queue = 'together'")}
    assert [ended[str(job.id)] for job in (well, badly, both)] == ["succeeded", "retrying", "succeeded"]


def _keep_up(sql: Sql, scene: Scene, case: str) -> None:
    """Run one round of upkeep, which does all that is due."""
    lost = core.put(sql, queue="lost", retry=ONCE)
    (claim,) = core.claim(sql, "lost", queues=("lost",))
    sql("update claims set expires_at = '2000-01-01' where token = %s", [claim.token])
    due, late = core.put(sql, delay="1 hour"), core.put(sql, delay="1 hour", queue="late")
    sql("update later set run_at = clock() - interval '20 s' where id = %s", [due])
    sql("update later set deadline = clock() - interval '1 s' where id = %s", [late])
    sql("select open_batch(%s, 'other', p_on_done => %s)", [BATCH, json.dumps({"task": "done", "queue": "done"})])
    sql("update batches set open = false where id = %s", [BATCH])
    ((term,),) = sql("select term from upkeep('other', '10 seconds')")
    assert term is not None, "the lead can be had"
    sql("select work_actions()")
    places = {place: [core.status(sql, job)] for place, job in (("lost", lost), ("due", due), ("late", late))}
    assert places == {"lost": ["retrying"], "due": ["queued"], "late": ["canceled"]}
    assert core.count(sql, "live where task = 'done'") == 1, "batches end"
    if case not in ("reclaim", "reclaim_worker", "upkeep", "after_restore"):  # which have it themselves
        assert core.status(sql, scene.names["beside"]) == "retrying", "so is the other job of the lost claim"
    sql("select register_schedules(%s)", [json.dumps([{"name": "other", **MINUTELY}])])
    sql("update schedules set next_at = date_trunc('minute', clock()) - interval '1 minute' where name = 'other'")
    fires = json.dumps(sql(FIRE, [["mine", "other"]])[0][0])
    fired = dict(sql("select name, ids from fire_schedules(%s::jsonb)", [fires]))
    assert fired["other"], "cron goes on"
    sql("select prune()")


def _start_worker(sql: Sql) -> None:
    """Start a worker that has the same tasks, rules and schedules, and one more of each."""
    tasks = [TASK, {**TASK, "name": "new"}, {**TASK, "name": "newer"}]
    schedules = [{"name": name, **MINUTELY} for name in ("mine", "new", "same", "newer")]
    sql("select register_worker('starts', 'h', 1, '1', '{default}', 1, %s)", [json.dumps(tasks)])
    sql("select register_limits(%s)", [json.dumps([RULE])])
    sql("select register_schedules(%s)", [json.dumps(schedules)])
    assert core.count(sql, "workers where id = 'starts'") == 1


def settle_down(sql: Sql, scene: Scene) -> None:
    """End the rest by the same calls, once, after the transaction is over."""
    mine = scene.together[0]
    results = json.dumps([{"id": str(mine.id), "token": mine.token, "outcome": "error"}])
    sql("select finish('{}', '{}', %s::jsonb, null, 'skip')", [results])
    core.lose(sql)
    assert core.count(sql, "live where token is not null") == 0, "nothing is left running"
    assert core.count(sql, "claims") == 0
    assert sql(f"select id from ({core.PLACES}) p group by id having count(*) > 1") == []


def check(dsn: str, sql: Sql, case: str, schema: str = "holdfast") -> None:
    scene = Scene(sql)
    scene.build()
    with ExitStack() as stack:
        for each in GROUPS.get(case, (case,)):
            stack.enter_context(left_open(dsn, schema, each, scene.names))
        go_on(sql, scene, case)
    settle_down(sql, scene)


def _all_cases() -> list[str]:
    """Return each group, and each case that is in none."""
    grouped = {case for group in GROUPS.values() for case in group}
    return [*GROUPS, *(case for case in (CASES | BY_HAND) if case not in grouped)]


@pytest.fixture(scope="module")
def kept(database: str) -> Iterator[Sql]:
    """One connection for all cases: a new one would plan every function again."""
    with core.session(database) as conn:
        yield core.runner(conn)


@pytest.mark.parametrize("case", _all_cases())
def test_an_operation_left_open_holds_up_no_other_job(dsn: str, kept: Sql, case: str) -> None:
    check(dsn, kept, case)


@pytest.mark.xfail(
    strict=True,
    raises=psycopg.errors.LockNotAvailable,
    reason=(
        "KNOWN EXCEPTION: a worker whose code has a new or changed limit waits for an open set_limit() or "
        "clear_limit() of a rule, because its jobs must not start without their limit"
    ),
)
def test_a_worker_with_a_new_limit_starts_beside_an_open_change_of_another_rule(dsn: str, kept: Sql) -> None:
    kept("select register_limits(%s)", [json.dumps([RULE])])
    with left_open(dsn, "holdfast", "set_limit, of a rule", {}):
        kept("set lock_timeout = '200ms'")
        kept("select register_limits(%s)", [json.dumps([{**RULE, "template": "k:{a}", "pattern": "k:%"}])])


def test_a_claim_that_came_in_one_message_with_its_begin_is_ended_too(dsn: str, kept: Sql) -> None:
    """Then the transaction begins with the statement, as one does that commits by itself."""
    job = core.put(kept, tenant="acme")
    with core.session(dsn, "holdfast") as open_:
        open_.execute("begin; select claim('open', '{default}', 10)")
        began = time.monotonic()
        while not (found := core.claim(kept, "other")):
            assert time.monotonic() - began < 2.0
        assert [each.id for each in found] == [job]
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            open_.execute("select 1")


def test_a_leader_row_left_locked_keeps_no_leader_from_noting_its_place(dsn: str, kept: Sql) -> None:
    """With many batches a round ends in the middle of them, and upkeep() notes where."""
    kept(
        "insert into batches (id, name, open, created_at) select gen_random_uuid(), 'b', true, clock() "
        "from generate_series(1, 20000)"
    )
    kept("select take_lead('upkeep', 'leads', '1 second')")
    kept("update leader set expires_at = clock() - interval '1 minute'")
    with left_open(dsn, "holdfast", "take_lead", {}):
        kept("set lock_timeout = '1s'")
        kept("select walk_batches('0 seconds')")
        ((term,),) = kept("select term from upkeep('other', '10 seconds')")
        assert term is not None
        kept("select reclaim_worker('leads')")


def test_one_transaction_that_adds_to_many_batches_delays_upkeep_once(dsn: str, kept: Sql) -> None:
    made = "select gen_random_uuid(), 'b', false, clock() from generate_series(1, 50) returning id"
    batches = core.firsts(kept(f"insert into batches (id, name, open, created_at) {made}"))
    with core.session(dsn, "holdfast", autocommit=False) as caller:
        caller.execute("select add_to_batch(b) from unnest(%s::uuid[]) b", [batches])
        kept("set statement_timeout = '3s'")  # each for 100 ms would take five
        assert kept("select complete_batches(%s::uuid[])", [batches]) == []
        kept("set statement_timeout = 0")
        caller.rollback()
    assert len(kept("select complete_batches(%s::uuid[])", [batches])) == 50


def test_every_function_that_a_role_may_call_has_a_case(sql: Sql) -> None:
    query = """select distinct p.proname from pg_proc p, unnest(%s::text[]) r
        where p.pronamespace = 'holdfast'::regnamespace and has_function_privilege(r, p.oid, 'execute')"""
    granted = set(core.firsts(sql(query, [[f"holdfast_{role}" for role in ROLES]])))
    assert {case.partition(",")[0] for case in CASES} == granted


# The waits that this test found, put back, and more.
NEW_KEY, IN_LIMITS = (
    "    insert into limit_settings (key",
    "    insert into limits (key) values (p_key) on conflict do nothing;",
)
TRY, AFTER_THE_RING = "if not pg_try_advisory_xact_lock(", "if not lock_ring() or not pg_try_advisory_xact_lock("
HANDLED = ("exception when lock_not_available then", "exception when division_by_zero then")
MUTANTS: dict[str, tuple[dict[str, list[tuple[str, str]]], str]] = {
    "finish": ({"finish": [("for update skip locked) l);", "for update) l);")]}, "cancel, of a running job"),
    "settle": ({"settle": [("for update skip locked)", "for update)")]}, "cancel, of a running job"),
    "reclaim": ({"settle": [("for update skip locked)", "for update)")]}, "cancel, of a job whose worker is gone"),
    "a start": (
        {"register_schedules": [("order by l.name for update skip locked", "order by l.name"), HANDLED]},
        "pause_schedule",
    ),
    "the lead": ({"take_lead": [HANDLED]}, "take_lead"),
    "a claim": ({"pause": [(NEW_KEY, IN_LIMITS + NEW_KEY)]}, "pause, of a new key"),
    "the ring": ({"lock_ring": [("'1s'", "'0'")]}, "claim, from the ring"),
    "upkeep": ({"upkeep": [("'10ms'", "'1s'")]}, "upkeep"),
    "prune": ({"prune_limits": [("'10ms'", "'1s'")]}, "prune"),
    "a repair": ({"reconcile_limits": [(TRY, AFTER_THE_RING)]}, "reconcile_limits"),
    "progress": ({"report_progress": [HANDLED]}, "report_progress"),
    "logs": ({"report_log": [HANDLED]}, "report_log"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_check_finds_what_waits_for_an_open_transaction(dsn: str, name: str) -> None:
    changes, case = MUTANTS[name]
    with mutant(dsn, changes) as sql, pytest.raises((psycopg.errors.LockNotAvailable, AssertionError)):
        check(dsn, sql, case, "mutant")
