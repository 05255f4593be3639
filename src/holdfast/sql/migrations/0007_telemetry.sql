-- Telemetry: the activity of workers, a row per window, and the usage of tenants, a row per minute.

-- A continuous worker writes one row for each window in which it did something; a bounded pass writes one of kind 'tick'.
alter table ticks
    add kind text not null default 'tick' check (kind in ('tick', 'window')),
    add depth_at_start bigint;

-- Usage, one row per database connection as in batch_counts, so that transactions never wait for each other here. The sum is
-- exact once they have committed. '' is work without a tenant.
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

-- The argument of count_usage.
create type used as (
    tenant text, task text, runs bigint, failures bigint, run_seconds double precision, queue_seconds double precision);

-- A value is a warning from `warning` on, and critical above `critical`.
insert into settings (name, value) values
    ('usage_retention_days', '35'),
    ('thresholds', '{"tick_duration": {"warning": 30, "critical": 50}, "lock_contentions": {"warning": 1},
                     "jobs_per_tick": {"warning": 51, "critical": 100}, "queue_depth": {"warning": 100, "critical": 500}}');
