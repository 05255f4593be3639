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
    return cardinality(p_keys) between 2 and 21 and array_ndims(p_keys) = 1 and (
        select count(distinct k) filter (where length(k) between 1 and 300) = cardinality(p_keys)
               and count(*) filter (where k not like 'task:%') <= 20  -- a claim may add that of its task
               and count(*) filter (where k like 'order:%') < 2 from unnest(p_keys) k);
end $$;
create domain limit_keys as text[] check (fit_keys(value));

-- keys are the limits a job was enqueued under. held are the limits of its queue, task and tenant that its claim counted
-- it into, if there are any: a claim writes it, so it is never indexed.
alter table live add keys limit_keys, add held text[],
    -- Lane 0 is for plain jobs, which have neither tenant nor limits: they are claimed without the ring.
    add constraint live_has_a_lane check (lane <> 0 or tenant is null and keys is null);
alter table later add keys limit_keys;
alter table dead add keys limit_keys;

-- The ring of lanes (docs/how-claiming-works.md). It is written by one claim at a time, the holder of the ring's lock.

-- All jobs of a lane have one tenant and the same limits; `flow` is the number of the tenant. A lane is open (it may have work), closed by a key
-- without room, or neither: then it is empty. `direct`: its jobs start when they are claimed, because of a rate or a breaker.
-- No job of the lane that waits stands before its mark; scans begin there.
create table lanes (
    queue     text     not null,
    priority  smallint not null,
    lane      bigint   not null,
    flow      bigint   not null,
    direct    boolean  not null default false,
    ordered   boolean  not null default false,
    open      boolean  not null,
    closed_by text     collate "C",
    closed_at bigint,
    mark_at   timestamptz not null default '-infinity',
    mark_id   uuid        not null default '00000000-0000-0000-0000-000000000000',
    tenant    text,
    keys      text[],
    primary key (queue, priority, lane)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index lanes_open on lanes (queue, priority, direct, flow, lane) where open;
create index lanes_closed on lanes (closed_by, queue, priority, direct, closed_at) where closed_by is not null;

-- A tenant's place in a ring: the least recently served goes first. tag: the token of the claim that served it last. credit: jobs left of a turn
-- that a claim had no room for. lane: the lane visited last, where it has several. barren: no lane visited last had room, so few are visited next.
create table flows (
    queue    text     not null,
    priority smallint not null,
    direct   boolean  not null,
    flow     bigint   not null,
    tag      bigint   not null,
    credit   integer  not null default 0,
    lane     bigint   not null default 0,
    open     boolean  not null,
    barren   boolean  not null default false,
    tenant   text,
    primary key (queue, priority, direct, flow)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index flows_ring on flows (queue, priority, direct, tag, flow) where open;

-- No open flow of a ring has a tag below its front. Moved on a few times a second, so that a walk of the ring meets few dead entries.
create table rings (
    queue    text     not null,
    priority smallint not null,
    direct   boolean  not null,
    front    bigint   not null,
    primary key (queue, priority, direct)
) with (fillfactor = 50);

-- Appended by the transaction that puts a job into a lane, and by the one that ends a job under limits or changes a limit. The next claim
-- folds them into the ring and deletes them. New rows are found by transaction, so none is missed and no dead ones are walked.
create table arrivals (
    queue    text     not null,
    xid      xid8     not null default pg_current_xact_id(),
    priority smallint not null,
    lane     bigint   not null,
    run_at   timestamptz not null,
    tenant   text,
    keys     text[]
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
create index arrivals_new on arrivals (queue, xid);
-- What jobs that ended give back to a key. good, bad: how many succeeded, and whose failure counts. probe: how the job ended that tried whether the
-- key works again (1 well, -1 badly, 0 neither), 2 for a breaker that is reset by hand.
create type released as (key text, jobs integer, good integer, bad integer, probe smallint);
create table releases (  -- a row for each call, not for each key: one finish() of 500 jobs gives back hundreds
    xid   xid8       not null default pg_current_xact_id(),
    id    bigint     generated always as identity,
    ended released[] not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
create index releases_new on releases (xid);
-- What of them has been folded: rows of transactions before from_xid, but for those that were open then. "" is for releases.
create table folds (
    queue     text   primary key,
    from_xid  xid8   not null,
    open_xids xid8[] not null,
    token     bigint not null  -- of the claim that moved it on
) with (fillfactor = 50);
-- Closed keys up to `after` have been looked at again since rules of limits changed.
create table reopenings (after text collate "C" not null);

create function announce_lane() returns trigger
language plpgsql security definer
set search_path from current
as $$
begin
    insert into arrivals (queue, priority, lane, run_at, tenant, keys)
    values (new.queue, new.priority, new.lane, new.run_at, new.tenant, new.keys);
    return null;
end $$;
-- Who copies many jobs at once may announce their lanes itself, each once (announce_lanes). In the last lane enqueue holds an id for a moment.
create trigger live_arrival after insert on live for each row
    when (new.lane not in (0, 9223372036854775807) and current_setting('holdfast.announces', true) is distinct from 'on') execute function announce_lane();
create trigger live_moved after update of lane on live for each row when (new.lane <> 0) execute function announce_lane();

-- What limits say: claims read it and never write it, so no open transaction of an operator holds up a claim. The numbers are those
-- in force at this level: what code declares, changed by what operators said of the rule, changed by what they said of the key.
create sequence rule_version;
create table limit_rules (
    template   text        primary key,
    pattern    text        not null,
    code       jsonb       not null,
    override   jsonb       not null default '{}',
    updated_at timestamptz not null,
    version    bigint      not null default nextval('rule_version'),  -- of the patterns: a key's rule is found again after a change
    concurrency   integer          generated always as (((code || override) ->> 'concurrency')::integer) stored,
    rate          double precision generated always as (((code || override) ->> 'rate')::double precision) stored,
    per           double precision generated always as (((code || override) ->> 'per')::double precision) stored,
    burst         double precision generated always as (((code || override) ->> 'burst')::double precision) stored,
    breaker_after integer          generated always as (((code || override) ->> 'breaker_after')::integer) stored,
    breaker_pause double precision generated always as (((code || override) ->> 'breaker_pause')::double precision) stored,
    breaker_cap   double precision generated always as (((code || override) ->> 'breaker_cap')::double precision) stored
);
create table limit_settings (
    key           text    collate "C" primary key check (length(key) between 1 and 300),
    kind          text    not null,
    override      jsonb   not null default '{}',
    paused        boolean not null default false,
    paused_until  timestamptz,
    paused_at     timestamptz,
    paused_by     text,
    paused_reason text,
    concurrency   integer          generated always as ((override ->> 'concurrency')::integer) stored,
    rate          double precision generated always as ((override ->> 'rate')::double precision) stored,
    per           double precision generated always as ((override ->> 'per')::double precision) stored,
    burst         double precision generated always as ((override ->> 'burst')::double precision) stored,
    breaker_after integer          generated always as ((override ->> 'breaker_after')::integer) stored,
    breaker_pause double precision generated always as ((override ->> 'breaker_pause')::double precision) stored,
    breaker_cap   double precision generated always as ((override ->> 'breaker_cap')::double precision) stored,
    weight        double precision generated always as ((override ->> 'weight')::double precision) stored
);
create index limit_settings_by_kind on limit_settings (kind) where kind in ('queue', 'task');
create index limit_settings_breakers on limit_settings (key) where breaker_after is not null;
create index limit_settings_weights on limit_settings (key) where weight is not null;

-- Where each key stands: one row for each key that a job was enqueued under or that has settings, written by the holder of the ring's lock. The keys
-- "queue:NAME", "task:NAME" and "tenant:NAME" apply to all jobs of that queue, task or tenant, "order:..." lets one job at a time go.
-- opens_at: when lanes wait that the key closed, and it opens by itself.
create table limits (
    key             text    collate "C" primary key check (length(key) between 1 and 300),
    kind            text    not null default 'key',
    template        text,
    version         bigint  not null default 0,
    running         integer not null default 0,
    tokens          double precision,
    tokens_at       timestamptz,
    failure_streak  integer not null default 0,
    last_success_at timestamptz,
    last_failure_at timestamptz,
    open_until      timestamptz,       -- the breaker: set while it is open, past when a probe may go
    opens           integer not null default 0,
    probe           uuid,              -- the job that is trying whether it works again
    opens_at        timestamptz,
    created_at      timestamptz not null default now()
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000);
create index limits_by_kind on limits (kind) where kind <> 'key';
create index limits_by_template on limits (template);
create index limits_opening on limits (opens_at) where opens_at is not null;
create index limits_probing on limits (probe) where probe is not null;

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

-- A job that has ended and was under limits. went: 1 well, -1 badly, 0 neither. counts: the keys for which a failure counts, null for all.
create type freed as (id uuid, keys text[], went integer, counts text[]);
-- A claim under way: what was asked for, what is known of limits, and what has been found so far.
create type claim_state as (
    token bigint, most integer, free integer,
    repeats boolean,     -- whether the caller claims again while `more` is set
    only_direct boolean, per_tenant integer,
    cursors jsonb,       -- where scans of plain jobs begin, by "queue/priority"
    tenants boolean, weights boolean,  -- whether there are limits and weights of tenants
    tasks text[],        -- those that have limits of their own
    version bigint,      -- of the rules
    queue_key text,      -- the limit of the queue that is visited
    served jsonb,        -- jobs that each tenant has had, where per_tenant caps them
    places tid[], ids uuid[], direct uuid[], deduped integer,
    held text[],         -- for each job, as text, limits of its queue and tenant that it is counted under; the last may be left out
    closed integer,      -- lanes that limits have closed
    moved boolean,       -- whether lanes have moved to the other ring
    more boolean,        -- whether the next claim would find more
    cut boolean);        -- whether a ring has more to visit, so that lower priorities must wait
