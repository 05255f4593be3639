-- The engine's tables. Applied with search_path set to the product's schema, so no name here carries one.
--
-- A job lives in exactly one of four tables, and moves between them in one statement:
--   live     due or running       (claimed when token is set)
--   later    delayed or retrying  (ordered by run_at, promoted into live when due)
--   history  succeeded, canceled or discarded (partitioned by day, dropped by retention)
--   dead     failed or dead       (kept until a person acts)
-- Status is where a job is, so an illegal status cannot be stored.

create type job_status as enum ('queued', 'running', 'retrying', 'succeeded', 'failed', 'dead', 'canceled');
create type dedupe_scope as enum ('queued', 'running', 'success');

-- The names of jobs. Domains are checked when a value is inserted (enqueue, INSERT, COPY), but unlike a table constraint not
-- again when a claim updates the row. Characters are counted only if there are too many bytes: counting costs as much as the
-- rest of the check.
-- Queue names have no comma, which separates the queues of a worker, and no slash: claims use "queue/priority".
create domain queue_name as text check (
    value <> '' and (octet_length(value) <= 100 or length(value) <= 100) and strpos(value, '/') = 0 and strpos(value, ',') = 0
    and value = btrim(value, E' \t\n\r\f\v'));
create domain task_name as text check (value <> '' and (octet_length(value) <= 200 or length(value) <= 200));
create domain tenant_name as text check (value <> '' and (octet_length(value) <= 200 or length(value) <= 200));
create domain priority_level as smallint check (value between 0 and 3);
create domain attempt_limit as smallint check (value between 1 and 32000);

-- JSON that every reader can decode. The type json accepts "\u0000" and lone surrogates, on which ->> and clients fail: one such
-- row would break the lists of all tenants. The cheapest test is first: a search for a backslash, which most payloads do not
-- have (60 ns a row). Only values with a \u escape are parsed.
create domain readable_json as json check (
    strpos(value::text, E'\\') = 0 or strpos(value::text, E'\\u') = 0 or value::jsonb is not null);

-- Distinguishes claims of the same microsecond: the lower ten bits of their tokens (next_token).
create sequence claim_number minvalue 0 maxvalue 1023 cycle;

-- payload is json, not jsonb: it is written once and read once, and jsonb costs both ways (decision 003).
-- fillfactor 45: a claim writes only unindexed columns, and every page has room for a second version of each of
-- its rows, so each claim is a HOT update (decision 002). Never index token, claimed_at or attempt.
create table live (
    id           uuid        primary key,
    queue        queue_name     not null default 'default',
    priority     priority_level not null default 2,
    lane         bigint      not null default 0,
    -- The time of the statement, not of its transaction: jobs of callers that lock a row before they enqueue are then in the
    -- order of the locks. Not clock_timestamp() either: COPY would insert row by row.
    run_at       timestamptz not null default statement_timestamp(),
    created_at   timestamptz not null default statement_timestamp(),
    token        bigint,
    claimed_at   timestamptz,
    attempt      smallint    not null default 0,
    max_attempts attempt_limit  not null default 5,
    task         task_name      not null,
    tenant       tenant_name,
    payload      readable_json  not null default '{}',
    dedupe_key   text,
    retry        jsonb,
    last_error   jsonb,
    constraint live_is_sound check (
        attempt between 0 and max_attempts
        and (token is null) = (claimed_at is null) and (token is null or attempt > 0))
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 5000);
create index live_fetch on live (queue, priority, lane, run_at, id);

create table later (
    id           uuid        primary key,
    queue        queue_name     not null,
    priority     priority_level not null,
    lane         bigint      not null,
    run_at       timestamptz not null,
    created_at   timestamptz not null,
    attempt      smallint    not null,
    max_attempts attempt_limit  not null,
    task         task_name      not null,
    tenant       tenant_name,
    payload      readable_json  not null,
    dedupe_key   text,
    retry        jsonb,
    last_error   jsonb,
    constraint later_is_sound check (attempt between 0 and max_attempts)
);
create index later_due on later (run_at, id);

create table dead (
    id           uuid        primary key,
    status       job_status  not null check (status in ('failed', 'dead')),
    queue        queue_name     not null,
    priority     priority_level not null,
    lane         bigint      not null,
    run_at       timestamptz not null,
    created_at   timestamptz not null,
    started_at   timestamptz,
    finished_at  timestamptz not null,
    attempt      smallint    not null,
    max_attempts attempt_limit  not null,
    worker       text,
    task         task_name      not null,
    tenant       tenant_name,
    payload      readable_json  not null,
    dedupe_key   text,
    dedupe_scope dedupe_scope,
    dedupe_keep  interval,
    retry        jsonb,
    last_error   jsonb
);
create index dead_by_time on dead (finished_at desc, id);

create table history (
    id           uuid        not null,
    status       job_status  not null check (status in ('succeeded', 'failed', 'dead', 'canceled')),
    priority     priority_level not null,
    attempt      smallint    not null,
    max_attempts attempt_limit  not null,
    run_at       timestamptz not null,
    created_at   timestamptz not null,
    started_at   timestamptz,
    finished_at  timestamptz not null,
    queue        queue_name     not null,
    task         task_name      not null,
    worker       text,
    tenant       tenant_name,
    payload      readable_json  not null,
    result       jsonb,
    dedupe_key   text,
    last_error   jsonb
) partition by range (finished_at);
create index history_by_id on history (id);
-- Takes rows of a day without a partition, so that finish cannot fail for lack of one.
create table history_default partition of history default;
-- Only for retention, which drops other partitions but must delete from this one.
create index history_default_by_time on history_default (finished_at);

-- One row per claim: the lease. Renewal touches this row only; live rows carry the token and every later write
-- compares it. Rows are few, and deleted when the claim's last job is finished.
create table claims (
    token        bigint      primary key,
    worker       text        not null,
    claimed_at   timestamptz not null,
    heartbeat_at timestamptz not null,
    expires_at   timestamptz not null,
    ids          uuid[]      not null
) with (fillfactor = 50);

create table workers (
    id           text        primary key,
    host         text        not null,
    pid          integer     not null,
    version      text        not null,
    queues       text[]      not null,
    tasks        text[]      not null,
    concurrency  integer     not null,
    started_at   timestamptz not null,
    heartbeat_at timestamptz not null,
    stopping     boolean     not null default false
) with (fillfactor = 50);

-- Workers that are waiting for work. Enqueue notifies only while a row is here: a NOTIFY in every enqueue takes a
-- database-wide lock at commit and halves throughput at 16 clients.
create table sleepers (
    queue         text    not null,
    worker        text    not null,
    -- the connection on which the worker claims; the worker is gone when it is (forget_sleepers)
    backend       integer not null default pg_backend_pid(),
    backend_start timestamptz,
    application   text    not null default left(current_setting('application_name'), 63),
    primary key (queue, worker)
) with (fillfactor = 50);

create table dedupe (
    key        text         primary key,
    id         uuid         not null,
    scope      dedupe_scope not null,
    keep       interval,
    expires_at timestamptz
);
create index dedupe_expiring on dedupe (expires_at) where expires_at is not null;

-- The tasks that workers have registered, so that SQL alone can settle a job whose worker is gone.
create table tasks (
    name         text        primary key,
    queue        queue_name     not null,
    max_attempts attempt_limit  not null,
    retry        jsonb       not null,
    timeout      interval,
    updated_at   timestamptz not null default now()
);

-- look_again_at: when the leader next scans all of later; batch: after which batch walk_batches continues.
create table leader (
    chore         text        primary key,
    worker        text        not null,
    term          bigint      not null,
    expires_at    timestamptz not null,
    look_again_at timestamptz,
    batch         uuid
) with (fillfactor = 50);

create table settings (
    name  text  primary key,
    value jsonb not null
);
insert into settings (name, value) values
    ('history_retention_days', '7'),
    ('partitions_ahead_days', '3');
