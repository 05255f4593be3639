-- What an operator watches: what workers did, a row for each window, and what tenants used, a row for each minute.

-- A continuous worker writes one row for each window in which it did something, beside those of bounded passes.
alter table ticks
    add kind text not null default 'tick' check (kind in ('tick', 'window')),
    add depth_at_start bigint;

-- What was used, one row for each database connection that counts (as batch_counts): no two transactions ever wait for each
-- other here, and the sum is exact as soon as they have committed. '' is work without a tenant.
create table usage_counts (
    minute        timestamptz      not null,
    tenant        text             not null,
    task          text             not null,
    backend       integer          not null,
    runs          bigint           not null,
    failures      bigint           not null,
    run_seconds   double precision not null,
    queue_seconds double precision not null,
    primary key (minute, tenant, task, backend)
) with (fillfactor = 50);

-- What the parts of an end tell count_usage.
create type used as (
    tenant text, task text, runs bigint, failures bigint, run_seconds double precision, queue_seconds double precision);

-- From warning on it is a warning, above critical it is critical.
insert into settings (name, value) values
    ('usage_retention_days', '35'),
    ('thresholds', '{"tick_duration": {"warning": 30, "critical": 50}, "lock_contentions": {"warning": 1},
                     "jobs_per_tick": {"warning": 51, "critical": 100}, "queue_depth": {"warning": 100, "critical": 500}}');
