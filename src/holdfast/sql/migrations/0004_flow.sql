-- What decides whether a job may start now: limits, rates, breakers and pauses by key, and fair shares by tenant.

-- Keys that a claim can count: up to 20, each once, one order at most, none of them null, empty or too long. Clients may insert jobs themselves,
-- and one that cannot be counted would stop every claim that meets it. The function is here, not among those that are
-- replaced, because a type depends on it; and not in SQL, which every statement on live would try to inline (50 us).
create function fit_keys(p_keys text[]) returns boolean
language plpgsql immutable strict parallel safe
as $$
begin
    if cardinality(p_keys) = 1 then
        return coalesce(length(p_keys[1]) between 1 and 300, false);
    end if;
    return cardinality(p_keys) between 2 and 20 and array_ndims(p_keys) = 1 and (
        select count(distinct k) filter (where length(k) between 1 and 300) = cardinality(p_keys)
               and count(*) filter (where k like 'order:%') < 2 from unnest(p_keys) k);
end $$;
create domain limit_keys as text[] check (fit_keys(value));

-- keys are the limits a job was enqueued under. held are the limits of its queue, task and tenant that its claim counted
-- it into, if there are any: a claim writes it, so it is never indexed.
alter table live add keys limit_keys, add held text[],
    -- Lane 0 is for jobs without limits: one that has to wait there would hold up the others.
    add constraint live_keys_have_a_lane check (keys is null or lane <> 0);
alter table later add keys limit_keys;
alter table dead add keys limit_keys;

-- Limits as code declares them, by the template of their keys ("domain:{domain}"), and as operators changed them.
create table limit_rules (
    template   text        primary key,
    pattern    text        not null,
    code       jsonb       not null,
    override   jsonb       not null default '{}',
    updated_at timestamptz not null
);

-- One row for each key that was ever claimed or set. The keys "queue:NAME", "task:NAME" and "tenant:NAME" apply to all jobs of
-- that queue, task or tenant. Changed by each claim and each end of a job under the key, so nothing here is indexed
-- but the key, and its kind, which never change.
create table limits (
    key             text    collate "C" primary key check (length(key) between 1 and 300),
    kind            text    generated always as (
        case when key like 'queue:%' then 'queue' when key like 'task:%' then 'task'
             when key like 'tenant:%' then 'tenant' else 'key' end) stored,
    template        text,
    override        jsonb   not null default '{}',
    -- in force: the rule's code, the rule's override, the key's override, the last one that says something wins
    concurrency     integer,
    rate            double precision,  -- starts
    per             double precision,  -- in so many seconds
    burst           double precision,
    breaker_after   integer,           -- failures in a row
    breaker_pause   double precision,  -- seconds, doubled with each failed probe
    breaker_cap     double precision,  -- up to so many
    weight          double precision,  -- of a tenant: its share of each round, 1 when null
    lane            bigint,            -- of a tenant: where its lanes begin
    -- where it stands
    running         integer not null default 0,
    tokens          double precision not null default 0,
    tokens_at       timestamptz,
    paused          boolean not null default false,
    paused_until    timestamptz,
    paused_at       timestamptz,
    paused_by       text,
    paused_reason   text,
    failure_streak  integer not null default 0,
    last_success_at timestamptz,
    last_failure_at timestamptz,
    open_until      timestamptz,       -- the breaker: set while it is open, past when a probe may go
    opens           integer not null default 0,
    probe           uuid,              -- the job that is trying whether it works again
    created_at      timestamptz not null default now()
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000);
create index limits_by_kind on limits (kind) where kind <> 'key';
create index limits_by_lane on limits (lane) where lane is not null;
create index limits_by_template on limits (template);

-- What ended jobs give back to a key whose row somebody else held at that moment. The next claim that looks at the key
-- takes it into account: nobody who ends a job ever waits for a limit.
create table limit_owed (
    id   bigint generated always as identity primary key,
    key  text   collate "C" not null,
    ids  uuid[] not null,  -- jobs that ended
    well uuid[] not null,  -- those that ended well
    ill  uuid[] not null   -- those whose failure counts
);
create index limit_owed_by_key on limit_owed (key);

-- How often claims stepped over work because of a key, and whose; '' is work without a tenant.
create table throttled (
    key     text        not null,
    tenant  text        not null,
    count   bigint      not null,
    last_at timestamptz not null,
    primary key (key, tenant)
);

-- What each bounded pass did.
create table ticks (
    id         uuid        primary key,
    worker     text        not null,
    started_at timestamptz not null,
    ended_at   timestamptz not null,
    claimed    integer     not null,
    processed  integer     not null,
    succeeded  integer     not null,
    failed     integer     not null,
    throttled  integer     not null,
    contention integer     not null,
    depth      bigint      not null,
    tenants    jsonb       not null
);
create index ticks_by_time on ticks (started_at);

-- What the parts of a claim and of an end tell each other: a job found that may be claimed, a job ended that was under limits.
create type candidate as (
    place tid, id uuid, lane bigint, run_at timestamptz, tenant text, task text, keys text[], dedupe_key text,
    held text[]);
create type freed as (id uuid, queue text, lane bigint, keys text[], verdict integer, counts text[]);
