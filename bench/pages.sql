-- What bench/pages.py puts into the database: 10,000 tenants, each with a limit of its own. jobs(): how many jobs wait,
-- and how many are in history.

-- functions
create function pg_temp.queue(n integer) returns text language sql immutable
    return (array['mail', 'scrape', 'report', 'sync', 'import', 'export', 'push', 'bill'])[1 + n % 8];
create function pg_temp.tenant(n integer) returns text language sql immutable return 'tenant-' || n % 10000;
create function pg_temp.keys(n integer) returns text[] language sql immutable
    return array['domain:' || n % 10000 || '.example'];

-- plain jobs
insert into live (id, task, queue, payload, run_at, created_at)
    select uuid7(), 'task-' || n % 20, pg_temp.queue(n), '{"to": "ada@example.org", "n": 1}',
        now() - n * interval '1 ms', now()
    from generate_series(1, pg_temp.jobs() / 2) n;

-- jobs of tenants
insert into live (id, task, queue, tenant, keys, lane, payload, run_at, created_at)
    select uuid7(), 'task-' || n % 20, pg_temp.queue(n), l.tenant, l.keys, l.lane,
        '{"to": "ada@example.org"}', now(), now()
    from generate_series(1, pg_temp.jobs() / 2) n join (
        select n as number, pg_temp.tenant(n) as tenant, pg_temp.keys(n) as keys,
            lane_of(pg_temp.tenant(n), pg_temp.keys(n)) as lane
        from generate_series(0, 9999) n) l on l.number = n % 10000;

-- lanes
insert into arrivals (queue, priority, lane, run_at, tenant, keys)
    select pg_temp.queue(n), 2, lane_of(pg_temp.tenant(n), pg_temp.keys(n)), now(), pg_temp.tenant(n), pg_temp.keys(n)
    from generate_series(0, 9999) n;

-- limits
insert into limits (key, template, running, failure_streak, version)
    select 'domain:' || n || '.example', 'domain:{domain}', 0, n % 5, (select max(version) from limit_rules)
    from generate_series(0, 9999) n;

-- settings
insert into limit_settings (key, kind, override, paused, paused_at, paused_by)
    select 'domain:' || n * 10 || '.example', 'key', '{"concurrency": 3}', n % 10 = 0, now(), 'bench'
    from generate_series(0, 999) n;

-- partitions
do $$ declare d date; begin
    for d in select generate_series(current_date - 7, current_date - 1, '1 day') loop
        execute format('create table %I partition of history for values from (%L) to (%L)',
                       'history_' || to_char(d, 'YYYYMMDD'), d::timestamptz, (d + 1)::timestamptz);
    end loop; end $$;

-- history
insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, started_at,
        finished_at, queue, task, tenant, payload, worker)
    select uuid7(), 'succeeded', 2, 1, 5, t, t, t, t, pg_temp.queue(n), 'task-' || n % 20,
        pg_temp.tenant(n), '{"n": 1}', 'w1'
    from generate_series(1, pg_temp.jobs()) n cross join lateral (select now() - n * interval '0.1 second') as a(t);

-- dead jobs
insert into dead (id, status, queue, priority, lane, run_at, created_at, finished_at, attempt,
        max_attempts, task, tenant, payload, last_error, fingerprint)
    select uuid7(), 'dead', pg_temp.queue(n), 2, 0, t, t, t, 5, 5, 'task-' || n % 20, pg_temp.tenant(n), '{"n": 1}',
        jsonb_build_object('type', 'TimeoutError', 'message', 'no reply', 'traceback', repeat('x', 300)),
        'kind-' || n % 40
    from generate_series(1, pg_temp.jobs() / 5) n cross join lateral (select now() - n * interval '0.3 second') as a(t);

-- error groups
insert into error_groups (fingerprint, task, type, message, attempts, dead, first_at, last_at,
        example_job, example, example_at)
    select 'kind-' || n, 'task-' || n % 20,
        'TimeoutError', 'no reply', pg_temp.jobs() / 8, pg_temp.jobs() / 200, now() - interval '7 days',
        now(), (select id from dead where fingerprint = 'kind-' || n limit 1),
        '{"type": "TimeoutError", "message": "no reply", "traceback": "Traceback"}', now()
    from generate_series(0, 39) n;

-- trends
insert into error_counts select 'kind-' || n % 40, date_trunc('hour', now()) - n / 40 * interval '1 hour', 100
    from generate_series(0, 40 * 47) n;

-- minutes
insert into minutes (minute, queue, ended, failed, lost, run_seconds, p50, p95, p99, ready, running, later, dead)
    select date_trunc('minute', now()) - n / 8 * interval '1 minute', pg_temp.queue(n), 5000, 50, 0, 100, 0.01, 0.2, 1.5,
        600000, 10, 0, 125000
    from generate_series(8, 8 * 2880) n;

-- usage by hour
insert into usage_counts
    select date_trunc('hour', now()) - (2 + n / 500) * interval '1 hour',
        'tenant-' || n % 500, 'task-' || n % 20, 0, 600, 60, 210, 150
    from generate_series(0, 500 * 24 * 30) n on conflict do nothing;

-- usage by ten minutes
insert into usage_counts
    select date_bin('10 minutes', now(), '2000-01-01') - n / 500 * interval '10 minutes',
        'tenant-' || n % 500, 'task-' || n % 20, 0, 100, 10, 35, 25
    from generate_series(500, 500 * 12) n on conflict do nothing;

-- usage by minute
insert into usage_counts
    select date_trunc('minute', now()) - n / 500 * interval '1 minute',
        'tenant-' || n % 500, 'task-' || n % 20, 1, 10, 1, 3.5, 2.5
    from generate_series(0, 500 * 10) n on conflict do nothing;
