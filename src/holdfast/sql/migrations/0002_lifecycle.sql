-- Deadlines, batches, cancel requests, progress and blocks.

-- headers belong to middleware (a trace id, for example); handlers do not get them as arguments.
alter table live add deadline timestamptz, add batch uuid, add headers json;
alter table later add deadline timestamptz, add batch uuid, add headers json;
alter table dead add batch uuid, add headers json;
alter table history add batch uuid;
-- Partial, so that jobs without a batch or a deadline, the majority, cost nothing. A claim changes neither column.
create index live_batch on live (batch) where batch is not null;
create index later_batch on later (batch) where batch is not null;
create index live_deadline on live (deadline) where deadline is not null;
create index later_deadline on later (deadline) where deadline is not null;

-- Cancel requests for running jobs. The job's row is not changed: its worker is notified, and settle checks this table before
-- the job waits for another attempt.
create table cancels (
    id           uuid        primary key,
    token        bigint      not null,
    requested_at timestamptz not null
);
create index cancels_by_token on cancels (token);

-- The last progress reported by handlers. Kept as long as history, so that it can be read after the end.
create table progress (
    id         uuid             primary key,
    done       double precision not null,
    total      double precision,
    message    text,
    updated_at timestamptz      not null
);
create index progress_by_time on progress (updated_at);

create table batches (
    id          uuid        primary key,
    name        text        not null check (length(name) between 1 and 200),
    tenant      tenant_name,
    open        boolean     not null,
    canceled    boolean     not null default false,
    on_done     jsonb,
    created_at  timestamptz not null,
    finished_at timestamptz
);
create index batches_under_way on batches (id) where finished_at is null;
create index batches_ended on batches (finished_at) where finished_at is not null;
create index batches_by_tenant on batches (tenant, id);

-- A batch's counters, one row per database connection, so that transactions never wait for each other here. The sum is exact
-- once they have committed.
create table batch_counts (
    batch     uuid        not null,
    backend   integer     not null,
    added     bigint      not null default 0,
    succeeded bigint      not null default 0,
    failed    bigint      not null default 0,
    canceled  bigint      not null default 0,
    first_at  timestamptz,
    primary key (batch, backend)
) with (fillfactor = 50);

-- Keys (a domain, an account) that handlers found blocked: Dead(..., block=KEY). For operators to act on.
create table blocks (
    key        text        primary key,
    reason     text,
    count      bigint      not null,
    first_seen timestamptz not null,
    last_seen  timestamptz not null,
    last_job   uuid        not null
);
