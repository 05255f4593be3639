"""Least privilege: what each of the four roles may do, and what it may not."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import InsufficientPrivilege

from holdfast import Holdfast, Limit, Retry
from holdfast.client.database import Database
from tests.support import sql_core as core
from tests.support.sql_core import Sql

Become = Callable[[str], Sql]
TABLES = (
    "live",
    "later",
    "dead",
    "history",
    "claims",
    "workers",
    "dedupe",
    "tasks",
    "leader",
    "token_clock",
    "settings",
    "schedules",
    "cancels",
    "progress",
    "batches",
    "batch_counts",
    "blocks",
    "limits",
    "limit_rules",
    "limit_settings",
    "lanes",
    "flows",
    "rings",
    "arrivals",
    "releases",
    "folds",
    "reopenings",
    "throttled",
    "ticks",
    "usage_counts",
    "actions",
    "steps",
    "signals",
    "follows",
    "endings",
)
VIEWS = (
    "jobs",
    "queue_depth",
    "stuck_jobs",
    "batch_progress",
    "limit_drift",
    "limit_state",
    "limit_use",
    "tenant_shares",
    "outbox",
    "worker_tick_metrics",
    "worker_health_summary",
    "health_levels",
    "usage",
    "audit",
)
WRITES = [
    "update live set priority = 0",
    "update live set token = null, claimed_at = null",
    "update live set attempt = 0",
    "delete from live",
    "insert into live (id, task, run_at) values (gen_random_uuid(), 't', '2000-01-01')",
    "insert into live (id, task, token, claimed_at, attempt) values (gen_random_uuid(), 't', 1, now(), 1)",
    "insert into live (id, task, dedupe_key) values (gen_random_uuid(), 't', 'k')",
    "insert into dedupe values ('k', gen_random_uuid(), 'running')",
    "delete from dedupe",
    "delete from dead",
    "update dead set status = 'failed'",
    "delete from later",
    "delete from history",
    "delete from claims",
    "update claims set expires_at = now() + interval '1 day'",
    "delete from leader",
    "update tasks set max_attempts = 1",
    "update schedules set next_at = now()",
    "delete from schedules",
    "insert into live (id, task, deadline) values (gen_random_uuid(), 't', now())",
    "insert into live (id, task, last_error) values (gen_random_uuid(), 't', '{}')",
    "insert into cancels values (gen_random_uuid(), 1, now())",
    "delete from cancels",
    "update progress set done = 1",
    "update batches set finished_at = null",
    "insert into batches (id, name, open, created_at) values (gen_random_uuid(), 'b', true, now())",
    "update batch_counts set added = 0",
    "insert into batch_counts (batch, backend) values (gen_random_uuid(), 1)",
    "update blocks set count = 0",
    "update limit_rules set override = '{}'",
    "insert into limit_settings (key, kind, paused) values ('k', 'key', true)",
    "delete from limit_settings",
    "update lanes set open = true",
    "update flows set tag = 0",
    "update rings set front = 0",
    "insert into arrivals (queue, priority, lane, run_at) values ('q', 2, 7, now())",
    "insert into releases (ended) values ('{}')",
    "delete from releases",
    "update folds set token = 0",
    "delete from throttled",
    "delete from ticks",
    "update steps set result = null",
    "delete from signals",
    "delete from follows",
    "insert into endings (job, status, durable, followed) values (gen_random_uuid(), 'succeeded', true, true)",
    "update usage_counts set runs = 0",
    "update limits set running = 0",
    "insert into limits (key) values ('k')",
    "update limit_rules set code = '{}'",
    "delete from limit_rules",
    "insert into live (id, task, held) values (gen_random_uuid(), 't', '{k}')",
    "truncate live",
    "truncate arrivals",
    "select nextval('rule_version')",
    "drop table live",
    "select nextval('claim_number')",
    "create table mine (a int)",
]
INTERNAL = [
    "select next_token()",
    "select clock_lead()",
    "select current_timeline()",
    "select note_timeline()",
    "select unsent_jobs(now(), 1)",
    "select forget_sleepers()",
    "select reclaim_orphans()",
    "select settle('[]', 'w')",
    "select park('[]', '{}')",
    "select end_wait(null)",
    "select batch_result(gen_random_uuid())",
    "select child_result(gen_random_uuid())",
    "select signal_key('', 's')",
    "select resume_jobs('{}', '{}')",
    "select process_endings()",
    "select end_job_waits(gen_random_uuid(), 'dead', 1)",
    "select end_parent_waits(gen_random_uuid(), '{}')",
    "select undo_steps(gen_random_uuid())",
    "select undo_ended(gen_random_uuid())",
    "select hold_ended(gen_random_uuid())",
    "select is_followed(gen_random_uuid())",
    "select reopen_waits('{}')",
    "select requeue_dead('{}')",
    "select lock_predecessors('{}')",
    "select follow(gen_random_uuid(), '{}', '{}', 'run')",
    "select check_after(gen_random_uuid(), '{}', 'run', null)",
    "select begin_step(gen_random_uuid(), 1, 's', 'call', null, null)",
    "select prune_steps(1)",
    "select why_parked(gen_random_uuid(), 'after', now())",
    "select count_usage('{}')",
    "select fingerprint_of('t', '{}')",
    "select lock_errors()",
    "select fold_errors()",
    "select make_error_groups('{}')",
    "select other_errors('t')",
    "select fold_usage(1)",
    "select prune_errors(1, now())",
    "select release_limits('{}')",
    "select prune_limits(1, now())",
    "select free_keys('{a}', '{b}')",
    "select orders_of('{a}')",
    "select walk_batches()",
    "select sample_jobs('live')",
    "select sample_names('live')",
    "select close_minute(now())",
    "select count_attempts('{}')",
    "select wait_step(1)",
    "select take_outbox_key('email', null, 'k', gen_random_uuid())",
    "select take_dedupe_key('k', gen_random_uuid(), 'running', null)",
    "select free_dedupe_keys('{}', '{}', true)",
    "select resolve_duplicate('k', gen_random_uuid(), 't', null, '{}', 'existing')",
    "select check_dedupe_key('k', 't', null)",
    "select close_claims('{}')",
    "select times_accepted(gen_random_uuid())",
    "select count_batch(gen_random_uuid(), 1, 0, 0, 0)",
    "select locked_blocks('{k}')",
    "select note_block('k', 'r', gen_random_uuid())",
    "select cancel_waiting('{}')",
    "select retry_delay('{}', 1)",
    "select check_keys('{}')",
    "select check_job('t', 'q', null, 2, 1, '{}', now())",
    "select uuid7()",
    "select next_token()",
    "select take_back_keys('{}', '{}')",
    "select check_limit('k', '{}')",
    "select check_limit_key('k')",
    "select change_override('{}', '{}', '{}', 'me')",
    "select in_words(interval '1 s')",
    "select error_in_words('{}')",
    "select why_started(gen_random_uuid())",
    "select why_waiting(gen_random_uuid())",
    "select why_limits('q', 't', null, '{}', false)",
    "select why_behind(gen_random_uuid(), 'q', 2, 0, now())",
]
OPERATE = [
    "select cancel('{}')",
    "select cancel_batch(gen_random_uuid())",
    "select retry_dead('{}')",
    "select discard_dead('{}')",
    "select pause_schedule('s')",
    "select run_schedule('s')",
    "select remove_schedule('s')",
    "select set_limit('k', '{\"concurrency\": 1}')",
    "select clear_limit('k')",
    "select pause('k')",
    "select resume('k')",
    "select reset_breaker('k')",
    "select reconcile_limits()",
    "select stop_worker('nobody')",
]
LOOK = [
    "select clock()",
    "select why(gen_random_uuid())",
    "select claimed_jobs()",
    "select count_jobs()",
    "select figures()",
    "select wanted_workers('q')",
    "select wait_at('{1}', '{1}', 0.5)",
    "select is_alive('w', now())",
    "select level_of('queue_depth', 1)",
    "select idempotency_key('email', null, 'k')",
    "select rule_of('k')",
]
WORK = [
    "select claim('w')",
    "select finish('{}', '{}')",
    "select fail(gen_random_uuid(), 1)",
    "select snooze(gen_random_uuid(), 1, '1 s')",
    "select release('{}', '{}')",
    "select renew('w', '{}', '1 s')",
    "select reclaim()",
    "select promote()",
    "select sleep('w', '{}')",
    "select take_lead('x', 'w', '1 s')",
    "select take_snapshot()",
    "select upkeep('w', '1 s')",
    "select record_tick('w', '{q}', 1, 0, 0, 0, 0, 0, 0, '{}')",
    "select count_waiting('{q}')",
    "select register_worker('w', 'h', 1, '1', '{}', 1, '[]')",
    """select register_limits('[{"template": "a", "pattern": "a", "code": {"rate": 1}}]')""",
    "select unregister_worker('w')",
    "select make_partitions()",
    "select prune()",
    "select expire()",
    "select complete_batches()",
    "select report_progress('[]')",
    "select report_log('[]')",
    "select wanted_cancels('{}')",
    "select reclaim_worker('w')",
    "select mark_started('{}', '{}', '{}')",
    "select held_jobs('{}', '{}')",
    "select store_steps('[]')",
    "select read_steps('{}', '{}')",
    "select store_step_result(gen_random_uuid(), 1, 's', '1')",
    "select start_child(gen_random_uuid(), 1, 's', '{}')",
    "select start_batch(gen_random_uuid(), 1, 's', gen_random_uuid(), null, null)",
    "select keep_result(gen_random_uuid(), '1')",
    "select register_schedules('[]')",
    "select next_schedules()",
    "select fire_schedules('[]')",
]
READ = [*(f"select {name}::text from {name}" for name in (*TABLES, *VIEWS)), *LOOK]
ENQUEUE = [
    "select enqueue('t')",
    "select enqueue('t', p_delay => '1 s', p_dedupe_key => 'k')",
    'select enqueue_many(\'[{"task": "t"}]\')',
    "select wake('default')",
    "select signal('approved')",
    "select open_batch('00000000-0000-7000-8000-000000000001', 'b')",
    "select add_to_batch('00000000-0000-7000-8000-000000000001', 1)",
    "select enqueue('t', p_batch => '00000000-0000-7000-8000-000000000001', p_deadline => '1 h', p_headers => '{}')",
    "insert into live (id, task, batch, headers) "
    "values (gen_random_uuid(), 't', '00000000-0000-7000-8000-000000000001', '{}')",
    "select close_batch('00000000-0000-7000-8000-000000000001')",
    "insert into live (id, queue, priority, task, tenant, payload, max_attempts, retry) "
    "values (gen_random_uuid(), 'default', 2, 't', null, '{}', 5, null)",
    "select enqueue('t', p_keys => '{k}')",
    "select emit('email', '{}', 'k', 'acme', 'o', p_keys => '{k}')",
    "select lane_of('a', '{k}')",
    "select fit_keys('{k}')",
    "select announce_lanes('q', 2, 'a', '[null, [\"k\"]]', 2)",
    "insert into live (id, task, tenant, keys, lane) values (gen_random_uuid(), 't', 'a', '{k}', lane_of('a', '{k}'))",
]

# The ring of lanes, and the limits that claims go by
INTERNAL += [
    "select announce_lane()",
    "select announce_strays()",
    "select claim_found(null, null, null, null, 0, false)",
    "select claim_round(null, 'q', 2, false, 1, false, 2, 1, 1)",
    "select claim_plain(null, 'q', 2)",
    "select claim_ring(null, 'q', 2)",
    "select claim_rings('{q}', 1, null, null, null, null, false, false)",
    "select end_under_limits('{}')",
    "select first_of_order('q', 7, now(), gen_random_uuid())",
    "select fold_arrivals('q', 1)",
    "select fold_releases(1)",
    "select has_plain(null, 'q', 2)",
    "select kind_of('k')",
    "select limited_tasks()",
    "select lock_ring()",
    "select make_limits('{}')",
    "select note_capped('{}', null, null)",
    "select move_fold('q', '1', '{}', 1, 1, 1)",
    "select move_jobs('{}', '{}')",
    "select open_flows('[]', 1)",
    "select reopen_lanes('{}', 1)",
    "select ring_has_work('{}')",
    "select touch_limit('k')",
]

# Webhooks
READ += [
    "select * from webhook_deliveries",
    "select * from webhook_endpoint_state",
    "select url from webhook_endpoints",
]
ENQUEUE += ["select publish_event('order.paid', '{}', p_key => 'k')"]
WORK += [
    "select read_endpoint('00000000-0000-7000-8000-000000000001')",
    "select read_body('00000000-0000-7000-8000-000000000001', null)",
    "select webhooks_wanted()",
    "select disable_endpoint('00000000-0000-7000-8000-000000000001')",
]
OPERATE += [
    "select add_endpoint(gen_random_uuid(), 'https://example.org', 'plain:s')",
    "select change_endpoint(gen_random_uuid(), '{}')",
    "select rotate_secret(gen_random_uuid(), 'plain:s')",
    "select remove_endpoint(gen_random_uuid())",
    "select test_endpoint(gen_random_uuid(), '{}')",
    "select redeliver('{}')",
]
INTERNAL += [
    "select add_deliveries(gen_random_uuid(), 't', '{}', null, '{}', false, 2)",
    "select check_endpoint(null)",
    "select delivery_id(gen_random_uuid(), gen_random_uuid())",
    "select delivery_keys(gen_random_uuid())",
]
WRITES += [
    "insert into webhook_endpoints (id, url, secrets, created_at, updated_at) "
    "values (gen_random_uuid(), 'https://example.org', '[{}]', now(), now())",
    "update webhook_endpoints set url = 'https://example.com'",
    "delete from webhook_endpoints",
    "update webhook_bodies set body = '{}'",
    "delete from webhook_bodies",
]
# The service
READ += ["select id, name, tenant, scopes, last_used_at from api_tokens"]
SEE = [
    "select may_see(true, null, 'a')",
    "select seen_jobs(false, 'a', true, '{}')",
    "select look_at('{}', '{}', '{}', '{}')",
    "select page_floor(null, 1)",
    "select job_marks('{}')",
]
LOOK += SEE
READ += SEE
SERVE = [
    "select use_token('\\x00')",
    "select begin_response('o', 'k', '\\x00')",
    "select store_response('o', 'k', 200::smallint, '')",
]
OPERATE += SERVE
# Actions
INTERNAL += [
    "select read_filter('{}')",
    "select check_filter_value('task', '1')",
    "select check_action('retry', '{}', '{}', null)",
    "select is_time('1')",
    "select last_job(true)",
    "select scan_jobs(null, now(), null, null, null, 1, null, true)",
    "select next_jobs(null, null, null, null, 1)",
    "select matching_jobs(null, now(), null, null, true)",
    "select step_action(null, now())",
    "select change_matching(null, '{}', now())",
    "select apply_action('retry', '{}', '{}')",
    "select apply_singly('retry', '{}', '{}', now())",
    "select make_change('retry', '{}', '{}')",
    "select change_jobs('{}')",
    "select reschedule_jobs('{}', now())",
    "select free_jobs('{}', true)",
    "select record_action('k', 't')",
    "select record_breakers('{}')",
    "select shown_endpoint(null)",
]
OPERATE += [
    "select start_action('retry', '{\"task\": \"t\"}')",
    "select preview_action('retry', '{\"task\": \"t\"}')",
    "select abort_action(gen_random_uuid())",
    "select act_on_jobs('retry', '{}')",
    "select edit_job(gen_random_uuid(), '{}') where random() < 0",
    "select compensate(gen_random_uuid()) where random() < 0",
    "select rerun(gen_random_uuid()) where random() < 0",
]
WORK += ["select work_actions()"]
LOOK += ["select has_args('{}', '{\"a\": 1}')"]
READ += ["select has_args('{}', '{\"a\": 1}')"]
WRITES += [
    "update actions set state = 'done'",
    "delete from actions",
    "insert into actions (id, kind) values (gen_random_uuid(), 'k')",
]
ADMINISTER = [
    "select create_token(gen_random_uuid(), 'n', sha256(gen_random_uuid()::text::bytea), 'hf_', 'acme', '{jobs:read}')",
    "select revoke_token(gen_random_uuid())",
    "select reconcile_limits()",
    "select after_restore()",
    "select run_schedule('s')",
]
OPERATE += ADMINISTER
WRITES += [
    "update api_tokens set tenant = null",
    "delete from api_tokens",
    "insert into responses values ('o', 'k', '\\x00', 200, '', now())",
]
SECRETS = [
    "select digest from api_tokens",
    "select * from api_tokens",
    "select * from responses",
    "select * from webhook_endpoints",
    "select secrets from webhook_endpoints",
    "select e from webhook_endpoints e",
    "select to_jsonb(e) from webhook_endpoints e",
    "select url from webhook_endpoints where secrets::text like '%s%'",
    "copy webhook_endpoints to stdout",
]


@pytest.fixture
def become(each_dsn: str) -> Iterator[Become]:
    """become("worker") returns a runner of SQL with that role's rights only."""
    with core.session(each_dsn) as conn:
        run = core.runner(conn)

        def switch(role: str) -> Sql:
            run("reset role")
            run(f"set role holdfast_{role}")
            return run

        yield switch


def check_allowed(sql: Sql, statements: list[str]) -> None:
    for statement in statements:
        sql(statement)


def check_forbidden(sql: Sql, statements: list[str]) -> None:
    for statement in statements:
        try:
            sql(statement)
        except InsufficientPrivilege:
            continue
        pytest.fail(f"allowed: {statement}")


def test_the_enqueue_role_adds_jobs_and_does_nothing_else(become: Become) -> None:
    sql = become("enqueue")
    check_allowed(sql, ENQUEUE)
    check_forbidden(sql, [*READ, *WORK, *OPERATE, *INTERNAL, *WRITES])
    check_forbidden(sql, ["insert into live (id, task) values (gen_random_uuid(), 't') returning task"])


def test_the_enqueue_role_may_copy_the_columns_of_a_plain_job_and_no_others(each_dsn: str, each_sql: Sql) -> None:
    def copy(conn: psycopg.Connection, columns: str, line: str) -> None:
        with conn.cursor() as cursor, cursor.copy(f"copy live ({columns}) from stdin") as rows:
            rows.write(line)

    with core.session(each_dsn) as conn:
        conn.execute("set role holdfast_enqueue")
        columns = "id, queue, priority, task, tenant, payload, max_attempts, retry, lane, keys"
        copy(conn, columns, f"{uuid.uuid4()}\tdefault\t1\tt\tacme\t{{}}\t3\t\\N\t1\t{{k}}\n")
        for forbidden in ("attempt", "token", "claimed_at", "run_at", "created_at", "held", "dedupe_key", "last_error"):
            with pytest.raises(InsufficientPrivilege):
                copy(conn, f"id, task, {forbidden}", "")
        check_forbidden(core.runner(conn), ["copy live to stdout"])
    assert each_sql("select tenant, attempts, status::text from jobs") == [("acme", 0, "queued")]


def test_the_client_enqueues_in_every_way_with_the_enqueue_role_alone(dsn: str, hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="t", limits=[Limit("n:{n}", concurrency=1)])
    def handler(n: int) -> None: ...

    with core.session(dsn) as conn:
        conn.execute("set role holdfast_enqueue")
        given = handler.using(conn=conn)
        given.enqueue(1)
        given.using(delay=60).enqueue(2)
        given.using(dedupe="k").enqueue(3)
        given.using(id=str(uuid.uuid4()), retry=Retry.fixed(3)).enqueue(4)
        given.enqueue_many([5, 6])
        given.using(delay=5).enqueue_many([7, 8])
        assert hf.outbox.emit(conn, "email", 9, key="k") != hf.outbox.emit(conn, "email", 9, key="k")
    assert core.count(sql, "jobs") == 9


async def test_jobs_are_enqueued_together_with_the_enqueue_role_alone(dsn: str, hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="t", limits=[Limit("n:{n}", concurrency=1)])
    def handler(n: int) -> None: ...

    options = conninfo_to_dict(dsn).get("options") or ""
    hf.database = Database(hf.settings.with_(dsn=make_conninfo(dsn, options=f"{options} -c role=holdfast_enqueue")))
    await asyncio.gather(*(handler.aenqueue(n) for n in range(20)))
    await hf.aclose()
    assert core.count(sql, "jobs") == 20


def test_the_worker_role_runs_jobs_through_functions_and_touches_no_table(become: Become) -> None:
    sql = become("worker")
    check_allowed(sql, [*ENQUEUE, *WORK])
    check_forbidden(sql, [*READ, *OPERATE, *INTERNAL, *WRITES])
    check_forbidden(sql, ["update settings set value = '0'", "insert into settings values ('a', '1')"])


def test_the_worker_role_takes_a_job_through_its_whole_life(become: Become, each_sql: Sql) -> None:
    sql = become("worker")
    id_ = core.put(sql, max_attempts=2, retry={"kind": "fixed", "delay": 0}, dedupe_key="k")
    assert core.fail(sql, core.claim_one(sql))
    job = core.claim_one(sql)
    assert core.renew(sql, "w", job.token) == [job.token]
    assert core.finish(sql, job) == []
    assert core.status(each_sql, id_) == "succeeded"
    assert sql("select make_partitions()") == [(0,)]


def test_the_reader_role_only_reads(become: Become) -> None:
    sql = become("reader")
    check_allowed(sql, READ)
    check_forbidden(sql, [*ENQUEUE, *WORK, *OPERATE, *INTERNAL, *WRITES])


def test_the_service_role_adds_reads_and_operates_and_never_claims(become: Become) -> None:
    sql = become("service")
    check_allowed(sql, [*ENQUEUE, *READ, *SERVE, "select cancel('{}')", "select retry_dead('{}')", "select pause('k')"])
    worked = [each for each in WORK if "disable_endpoint" not in each and "work_actions" not in each]
    check_forbidden(sql, [*worked, *ADMINISTER, *INTERNAL, *WRITES])


@pytest.mark.parametrize("role", ["enqueue", "worker", "reader", "service", "admin"])
def test_no_role_reads_the_secrets_of_endpoints_or_tokens_from_their_table(
    become: Become, each_hf: Holdfast, role: str
) -> None:
    sql = become("admin")
    sql("select add_endpoint('00000000-0000-7000-8000-000000000001', 'https://example.org', 'plain:very secret')")
    for _ in range(2):
        check_forbidden(become(role), SECRETS)
        sql("reset role")
        sql("delete from schema_files where name = 'functions/clock.sql'")
        assert "functions/clock.sql" in each_hf.migrate().functions  # which grants everything once more
    shown = become("reader")("select s::text from webhook_endpoint_state s union all select j::text from jobs j")
    assert shown and "very secret" not in str(shown)


def test_the_admin_role_operates_through_functions(become: Become) -> None:
    sql = become("admin")
    check_allowed(sql, [*ENQUEUE, *WORK, *OPERATE, *READ])
    check_forbidden(sql, [*INTERNAL, *WRITES])
    check_allowed(sql, ["update settings set value = value", "insert into settings values ('a', '1')"])
    check_allowed(sql, ["delete from blocks"])
    sql("reset role")
    sql("delete from settings where name = 'a'")


def test_the_admin_role_retries_discards_and_cancels(become: Become) -> None:
    sql = become("admin")
    first, second, third = (core.put(sql) for _ in range(3))
    for job in core.claim(sql, limit=2):
        core.fail(sql, job, outcome="dead")
    assert core.retry_dead(sql, first) == [first]
    assert core.discard_dead(sql, second) == [second]
    assert core.cancel(sql, third) == ["canceled"]


def test_every_function_is_either_granted_or_internal_and_tried_above(each_sql: Sql) -> None:
    """A new function must be listed here, or it could be granted to the wrong role unnoticed."""
    tried = {
        match
        for text in (*ENQUEUE, *WORK, *OPERATE, *INTERNAL, *LOOK)
        for match in re.findall(r"^select (\w+)\(", text)
    }
    functions = each_sql("select proname from pg_proc where pronamespace = 'holdfast'::regnamespace")
    assert {name for (name,) in functions} == tried


def test_the_enqueue_role_ends_no_batch_of_others_and_learns_nothing_of_it(become: Become, each_sql: Sql) -> None:
    sql = become("enqueue")
    sql("select open_batch('00000000-0000-7000-8000-000000000002', 'b')")
    core.put(sql, batch="00000000-0000-7000-8000-000000000002")
    check_forbidden(sql, ["select cancel_batch('00000000-0000-7000-8000-000000000002')", "select complete_batches()"])
    check_forbidden(sql, ["select * from batch_progress", "select * from batches", "select * from progress"])
    assert each_sql("select status, total from batch_progress") == [("queued", 1)]


def test_a_stranger_may_do_nothing(each_dsn: str) -> None:
    name = f"stranger_{uuid.uuid4().hex[:8]}"
    with core.session(each_dsn) as conn:
        conn.execute(f"create role {name}")
        try:
            conn.execute(f"set role {name}")
            check_forbidden(core.runner(conn), ["select holdfast.enqueue('t')", "select * from holdfast.jobs"])
            check_forbidden(
                core.runner(conn), ["select holdfast.claim('w')", "insert into holdfast.live (id) values (null)"]
            )
        finally:
            conn.execute("reset role")
            conn.execute(f"drop role {name}")


def test_functions_with_the_owners_rights_look_names_up_in_the_schema_only(become: Become, each_sql: Sql) -> None:
    """A caller's search path or temporary table must not redirect a function with the owner's rights."""
    rows = each_sql(
        "select proname from pg_proc where pronamespace = 'holdfast'::regnamespace and prosecdef "
        "and array_to_string(proconfig, ' ') !~ 'search_path=\"?holdfast\"?, pg_temp'"
    )
    assert rows == []
    sql = become("worker")
    sql("create temporary table live (id uuid, task text)")
    sql("set search_path = pg_temp, holdfast")
    sql("select holdfast.enqueue('t')")
    assert len(sql("select * from holdfast.claim('w')")) == 1
