-- What a job may meet on its way: a deadline, a batch it belongs to, a request to stop, progress, a block.

-- headers travel with a job and belong to middleware (a trace's id, say); handlers never see them as arguments.
alter table live add deadline timestamptz, add batch uuid, add headers json;
alter table later add deadline timestamptz, add batch uuid, add headers json;
alter table dead add batch uuid, add headers json;
alter table history add batch uuid;
-- Partial: jobs without a batch or a deadline, which are most, pay nothing. A claim changes neither column.
create index live_batch on live (batch) where batch is not null;
create index later_batch on later (batch) where batch is not null;
create index live_deadline on live (deadline) where deadline is not null;
create index later_deadline on later (deadline) where deadline is not null;

-- Running jobs that somebody wants canceled. The job's row is not touched: its worker is told, and settle looks here
-- before it lets the job wait for another attempt.
create table cancels (
    id           uuid        primary key,
    token        bigint      not null,
    requested_at timestamptz not null
);
create index cancels_by_token on cancels (token);

-- What handlers last said of their progress. Kept until history's retention, so that it can be read after the end.
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

-- A batch's counters, one row for each database connection that counts: no two transactions ever wait for each other
-- here, and the sum is exact as soon as they have committed.
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

-- Keys (a domain, an account) that handlers found blocked: Dead(..., block=KEY). For people to act on.
create table blocks (
    key        text        primary key,
    reason     text,
    count      bigint      not null,
    first_seen timestamptz not null,
    last_seen  timestamptz not null,
    last_job   uuid        not null
);
