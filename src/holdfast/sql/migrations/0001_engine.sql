-- Works with: schema 1 and later
-- Needed: yes
-- Step: make the tables
-- Locks: none
--
-- The tables. Applied with search_path set to the product's schema, so no name here carries one.
--
-- A job lives in exactly one of four tables, and moves between them in one statement:
--   live     due or running       (claimed when token is set)
--   later    delayed or retrying  (ordered by run_at, promoted into live when due)
--   history  succeeded, canceled or discarded (partitioned by day, dropped by retention)
--   dead     failed or dead       (kept until a person acts)
-- Status is where a job is, so an illegal status cannot be stored.

create type job_status as enum ('queued', 'running', 'retrying', 'succeeded', 'failed', 'dead', 'canceled');
create type dedupe_scope as enum ('queued', 'running', 'success');

-- The names of jobs. Domains are checked when a value is inserted (enqueue, INSERT, COPY), but unlike a table constraint
-- not again when a claim updates the row. Characters are counted only if there are too many bytes: counting costs as
-- much as the rest of the check.
-- Queue names have no comma, which separates the queues of a worker, and no slash: claims use "queue/priority".
create domain queue_name as text check (
    value <> '' and (octet_length(value) <= 100 or length(value) <= 100)
    and strpos(value, '/') = 0 and strpos(value, ',') = 0 and value = btrim(value, E' \t\n\r\f\v'));
create domain task_name as text check (value <> '' and (octet_length(value) <= 200 or length(value) <= 200));
create domain tenant_name as text check (value <> '' and (octet_length(value) <= 200 or length(value) <= 200));
create domain priority_level as smallint check (value between 0 and 3);
create domain attempt_limit as smallint check (value between 1 and 32000);

-- JSON that every reader can decode. The type json accepts "\u0000" and lone surrogates, on which ->> and clients fail:
-- one such row would break the lists of all tenants. The cheapest test is first: a search for a backslash, which most
-- payloads do not have (60 ns a row). Only values with a \u escape are parsed.
create domain readable_json as json check (
    strpos(value::text, E'\\') = 0 or strpos(value::text, E'\\u') = 0 or value::jsonb is not null);

-- Keys that a claim can count: up to 20, each once, one order at most, none of them null, empty or too long. Clients may
-- insert jobs themselves, and one that cannot be counted would stop every claim that meets it. The function is here, not
-- among those that are replaced, because a type depends on it; and not in SQL, which every statement on live would try
-- to inline (50 us).
create function fit_keys(p_keys text[]) returns boolean language plpgsql immutable strict parallel safe as $$
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

-- A failed attempt, kept with its job. outcome: as in settle. Texts are cut to a length.
create type failed_attempt as (
    attempt smallint, started_at timestamptz, ended_at timestamptz, worker text, outcome text, type text, message text,
    code text, frame text, fingerprint text);

-- Distinguishes claims of the same microsecond: the lower ten bits of their tokens (next_token).
create sequence claim_number minvalue 0 maxvalue 1023 cycle;

-- payload is json, not jsonb: it is written once and read once, and jsonb costs both ways (decision 003).
-- headers belong to middleware (a trace id, for example); handlers do not get them as arguments.
-- failures: the last 20 failed attempts; null, the usual case, costs a bit of the row's header (decision 032).
-- keys are the limits a job was enqueued under. held are the limits of its queue, task and tenant that its claim counted
-- it into, if there are any. Lane 0 is for plain jobs, which have neither tenant nor limits: they need no ring.
-- fillfactor 45: a claim writes only unindexed columns, and every page has room for a second version of each of its
-- rows, so each claim is a HOT update (decision 002). Never index token, claimed_at, attempt or held.
-- run_at is the time of the statement, not of its transaction: jobs of callers that lock a row before they enqueue are
-- then in the order of the locks. Not clock_timestamp() either: COPY would insert row by row.
create table live (
    id uuid primary key, queue queue_name not null default 'default', priority priority_level not null default 2,
    lane bigint not null default 0, run_at timestamptz not null default statement_timestamp(),
    created_at timestamptz not null default statement_timestamp(), token bigint, claimed_at timestamptz,
    attempt smallint not null default 0, max_attempts attempt_limit not null default 5, task task_name not null,
    tenant tenant_name, payload readable_json not null default '{}', dedupe_key text, retry jsonb, last_error jsonb,
    deadline timestamptz, batch uuid, headers json, keys limit_keys, held text[], failures failed_attempt[],
    constraint live_has_a_lane check (lane <> 0 or tenant is null and keys is null),
    constraint live_is_sound check (
        attempt between 0 and max_attempts
        and (token is null) = (claimed_at is null) and (token is null or attempt > 0))
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 5000);
create index live_fetch on live (queue, priority, lane, run_at, id);

-- Has the columns of live in the same order, so that jobs move with "select *". held: the order ("order:...") that a
-- waiting job keeps, so that no later job of that order overtakes it.
create table later (like live including constraints, primary key (id), constraint later_is_unclaimed check (token is null));
create index later_due on later (run_at, id);
-- Partial, so that jobs without a batch or a deadline, the majority, cost nothing. A claim changes neither column.
create index live_batch on live (batch) where batch is not null;
create index later_batch on later (batch) where batch is not null;
create index live_deadline on live (deadline) where deadline is not null;
create index later_deadline on later (deadline) where deadline is not null;

create table dead (
    id uuid primary key, status job_status not null check (status in ('failed', 'dead')), queue queue_name not null,
    priority priority_level not null, lane bigint not null, run_at timestamptz not null, created_at timestamptz not null,
    started_at timestamptz, finished_at timestamptz not null, attempt smallint not null,
    max_attempts attempt_limit not null, worker text, task task_name not null, tenant tenant_name,
    payload readable_json not null, dedupe_key text, dedupe_scope dedupe_scope, dedupe_keep interval, retry jsonb,
    last_error jsonb, batch uuid, headers json, keys limit_keys, failures failed_attempt[], fingerprint text collate "C"
);
create index dead_by_time on dead (finished_at desc, id);
create index dead_by_fingerprint on dead (fingerprint, id);
create index dead_by_tenant on dead (tenant, finished_at desc, id) where tenant is not null;

create table history (
    id uuid not null, status job_status not null check (status in ('succeeded', 'failed', 'dead', 'canceled')),
    priority priority_level not null, attempt smallint not null, max_attempts attempt_limit not null,
    run_at timestamptz not null, created_at timestamptz not null, started_at timestamptz,
    finished_at timestamptz not null, queue queue_name not null, task task_name not null, worker text,
    tenant tenant_name, payload readable_json not null, result jsonb, dedupe_key text, last_error jsonb, batch uuid,
    failures failed_attempt[]
) partition by range (finished_at);
create index history_by_id on history (id);
-- Takes rows of a day without a partition, so that finish cannot fail for lack of one.
create table history_default partition of history default;
-- Only for retention, which drops other partitions but must delete from this one.
create index history_default_by_time on history_default (finished_at);

-- Deliveries of an endpoint, newest first. Partial, so that other jobs cost nothing. The pattern cannot fail: a job must
-- be able to end even with an invalid payload (a text too long for an index, a \u0000).
create index history_deliveries on history (
    substring(payload::text from '"endpoint" ?: ?"([0-9a-f-]{36})"'), finished_at) where task = 'holdfast.webhook';
create index dead_deliveries on dead (
    substring(payload::text from '"endpoint" ?: ?"([0-9a-f-]{36})"'), finished_at) where task = 'holdfast.webhook';

-- Messages of the outbox, newest first, for lists of them among millions of jobs. Partial, as above.
create index live_messages on live (id) where starts_with(task, 'channel:');
create index later_messages on later (id) where starts_with(task, 'channel:');
create index dead_messages on dead (id) where starts_with(task, 'channel:');
create index history_messages on history (id) where starts_with(task, 'channel:');

-- One row per claim: the lease. Renewal touches this row only; live rows carry the token and every later write compares
-- it. Rows are few, and deleted when the claim's last job is finished. Ids do not compress.
create table claims (
    token bigint primary key, worker text not null, claimed_at timestamptz not null, heartbeat_at timestamptz not null,
    expires_at timestamptz not null, ids uuid[] not null
) with (fillfactor = 50);
alter table claims alter column ids set storage external;

create table workers (
    id text primary key, host text not null, pid integer not null, version text not null, queues text[] not null,
    tasks text[] not null, concurrency integer not null, started_at timestamptz not null,
    heartbeat_at timestamptz not null, stopping boolean not null default false
) with (fillfactor = 50);

-- Operators' requests to stop workers, which they read in each round of upkeep. Not in `workers`: renew updates a row
-- there, and must not wait for an operator's transaction. now: give the jobs back at once; else finish them first.
create table worker_stops (
    worker text primary key, now boolean not null, requested_at timestamptz not null, by text not null, reason text);

-- Workers that are waiting for work. Enqueue notifies only while a row is here: a NOTIFY in every enqueue takes a
-- database-wide lock at commit and halves throughput at 16 clients. backend is the connection on which the worker
-- claims; the worker is gone when it is (forget_sleepers).
create table sleepers (
    queue text not null, worker text not null, backend integer not null default pg_backend_pid(),
    backend_start timestamptz, application text not null default left(current_setting('application_name'), 63),
    primary key (queue, worker)
) with (fillfactor = 50);

create table dedupe (
    key text primary key, id uuid not null, scope dedupe_scope not null, keep interval, expires_at timestamptz);
create index dedupe_expiring on dedupe (expires_at) where expires_at is not null;

-- The tasks that workers have registered, so that SQL alone can settle a job whose worker is gone.
create table tasks (
    name text primary key, queue queue_name not null, max_attempts attempt_limit not null, retry jsonb not null,
    timeout interval, updated_at timestamptz not null default now());

-- look_again_at: when the leader next scans all of later; batch: after which batch walk_batches continues.
create table leader (
    chore text primary key, worker text not null, term bigint not null, expires_at timestamptz not null,
    look_again_at timestamptz, batch uuid
) with (fillfactor = 50);

-- How far tokens are ahead of the clock, in microseconds, and the server's timeline when that was stored. A promotion
-- starts a new timeline, on which tokens are an hour further ahead (clock_lead). 0: no timeline was read yet.
create table token_clock (
    one boolean primary key default true check (one), timeline integer not null default 0, ahead bigint not null default 0,
    changed_at timestamptz not null default now());
insert into token_clock default values;

-- Of the thresholds, a value is a warning from `warning` on, and critical above `critical`. wait_target: seconds that
-- the oldest due job of a queue may wait; wait_targets: the same for some queues, by name.
create table settings (name text primary key, value jsonb not null);
insert into settings (name, value) values
    ('history_retention_days', '7'), ('partitions_ahead_days', '3'), ('usage_retention_days', '35'),
    ('outbox_keys_days', '30'), ('actions_retention_days', '90'), ('webhook_endpoints_per_tenant', '50'), ('responses_hours', '24'),
    ('wait_target', '60'), ('wait_targets', '{}'),
    ('thresholds', '{"wait_over_target": {"warning": 1, "critical": 5}, "failing_share": {"warning": 0.1, "critical": 0.5},
                     "leases_lost": {"warning": 1, "critical": 20}, "upkeep_late": {"warning": 10, "critical": 60}}');

-- Cancel requests for running jobs. The job's row is not changed: its worker is notified, and settle checks this table
-- before the job waits for another attempt.
create table cancels (id uuid primary key, token bigint not null, requested_at timestamptz not null);
create index cancels_by_token on cancels (token);

-- The last progress reported by handlers. Kept as long as history, so that it can be read after the end.
create table progress (
    id uuid primary key, done double precision not null, total double precision, message text,
    updated_at timestamptz not null);
create index progress_by_time on progress (updated_at);

-- What handlers wrote with ctx.log: for each attempt, named by its token, its last 200 lines. Kept as long as history.
create table job_logs (
    id uuid not null, token bigint not null, attempt smallint not null, started_at timestamptz not null,
    last_line integer not null, lines jsonb not null, updated_at timestamptz not null,
    primary key (id, token));
create index job_logs_by_time on job_logs (updated_at);

create table batches (
    id uuid primary key, name text not null check (length(name) between 1 and 200), tenant tenant_name,
    open boolean not null, canceled boolean not null default false, on_done jsonb, created_at timestamptz not null,
    finished_at timestamptz);
create index batches_under_way on batches (id) where finished_at is null;
create index batches_ended on batches (finished_at) where finished_at is not null;
create index batches_by_tenant on batches (tenant, id);

-- A batch's counters, one row per database connection, so that transactions never wait for each other here. The sum is
-- exact once they have committed. An open batch that was not counted for long is abandoned (prune).
create table batch_counts (
    batch uuid not null, backend integer not null, added bigint not null default 0,
    succeeded bigint not null default 0, failed bigint not null default 0, canceled bigint not null default 0,
    first_at timestamptz, counted_at timestamptz,
    primary key (batch, backend)
) with (fillfactor = 50);

-- Keys (a domain, an account) that handlers found blocked: Dead(..., block=KEY). For operators to act on.
create table blocks (
    key text primary key, reason text, count bigint not null, first_seen timestamptz not null,
    last_seen timestamptz not null, last_job uuid not null);

-- Failures in groups. A call that ends attempts appends one row, whose failures fold_errors counts; so no row is
-- written by two transactions (decision 032). attempts: that failed; dead: jobs that became dead, less those retried
-- or discarded.
create type failed as (
    fingerprint text, task text, type text, code text, message text, frame text, attempts bigint, dead bigint, job uuid,
    at timestamptz);
create table error_arrivals (
    xid xid8 not null default pg_current_xact_id(), failed failed[] not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
create index error_arrivals_new on error_arrivals (xid);
-- example: an error as in last_error, with its traceback.
create table error_groups (
    fingerprint text collate "C" primary key, task text not null, type text, code text, message text, frame text,
    attempts bigint not null default 0, dead bigint not null default 0, first_at timestamptz not null,
    last_at timestamptz not null, example_job uuid, example jsonb, example_at timestamptz
) with (fillfactor = 50);
create index error_groups_by_task on error_groups (task);
create table error_counts (
    fingerprint text collate "C" not null, hour timestamptz not null, attempts bigint not null,
    primary key (fingerprint, hour)
) with (fillfactor = 50);
create index error_counts_by_hour on error_counts (hour);

-- Schedules: periodic jobs. Workers register them from code; the database decides when they fire.
-- next_at is the next slot or, right after registration or a resume, the time from which slots count; null if no slot
-- will ever come. Firing compares and advances it in one step, so each slot is fired once.
create type missed_policy as enum ('skip', 'once', 'all');
create table schedules (
    name text primary key check (length(name) between 1 and 200), task task_name not null,
    cron text not null check (length(cron) between 1 and 200), zone text not null check (length(zone) between 1 and 100),
    missed missed_policy not null, payload jsonb not null, options jsonb not null, paused boolean not null default false,
    next_at timestamptz check (next_at between '1970-01-01' and '9999-12-31'), last_at timestamptz, last_job uuid,
    problem text, registered_at timestamptz not null
) with (fillfactor = 50);

-- The ring of lanes (docs/how-claiming-works.md). It is written by one claim at a time, the holder of the ring's lock.

-- All jobs of a lane have one tenant and the same limits; `flow` is the number of the tenant. A lane is open (it may
-- have work), closed by a key without room, or neither: then it is empty. `direct`: its jobs start when they are
-- claimed, because of a rate or a breaker. No job of the lane that waits stands before its mark; scans begin there.
create table lanes (
    queue text not null, priority smallint not null, lane bigint not null, flow bigint not null,
    direct boolean not null default false, ordered boolean not null default false, open boolean not null,
    closed_by text collate "C", closed_at bigint, mark_at timestamptz not null default '-infinity',
    mark_id uuid not null default '00000000-0000-0000-0000-000000000000', tenant text, keys text[],
    primary key (queue, priority, lane)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index lanes_open on lanes (queue, priority, direct, flow, lane) where open;
create index lanes_closed on lanes (closed_by, queue, priority, direct, closed_at) where closed_by is not null;

-- A tenant's place in a ring: the least recently served goes first. tag: the token of the claim that served it last.
-- credit: jobs left of a turn that a claim had no room for. lane: the lane visited last, where it has several. barren:
-- no lane visited last had room, so few are visited next.
create table flows (
    queue text not null, priority smallint not null, direct boolean not null, flow bigint not null, tag bigint not null,
    credit integer not null default 0, lane bigint not null default 0, open boolean not null,
    barren boolean not null default false, tenant text,
    primary key (queue, priority, direct, flow)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index flows_ring on flows (queue, priority, direct, tag, flow) where open;

-- No open flow of a ring has a tag below its front. Moved on a few times a second, so that a walk of the ring meets few
-- dead entries.
create table rings (
    queue text not null, priority smallint not null, direct boolean not null, front bigint not null,
    primary key (queue, priority, direct)
) with (fillfactor = 50);

-- Appended by the transaction that puts a job into a lane, and by the one that ends a job under limits or changes a
-- limit. The next claim folds them into the ring and deletes them. New rows are found by transaction, so none is missed
-- and no dead ones are walked.
create table arrivals (
    queue text not null, xid xid8 not null default pg_current_xact_id(), priority smallint not null, lane bigint not null,
    run_at timestamptz not null, tenant text, keys text[]
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
create index arrivals_new on arrivals (queue, xid);
-- What jobs that ended give back to a key. good, bad: how many succeeded, and whose failure counts. probe: how the job
-- ended that tried whether the key works again (1 well, -1 badly, 0 neither), 2 for a breaker that is reset by hand.
create type released as (key text, jobs integer, good integer, bad integer, probe smallint);
create table releases (  -- a row for each call, not for each key: one finish() of 500 jobs gives back hundreds
    xid xid8 not null default pg_current_xact_id(), id bigint generated always as identity, ended released[] not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
create index releases_new on releases (xid);
-- What of them has been folded: rows of transactions before from_xid, but for those that were open then. "" is for
-- releases. token: of the claim that moved it on.
create table folds (
    queue text primary key, from_xid xid8 not null, open_xids xid8[] not null, token bigint not null
) with (fillfactor = 50);
-- Closed keys up to `after` have been looked at again since rules of limits changed.
create table reopenings (after text collate "C" not null);

create function announce_lane() returns trigger language plpgsql security definer set search_path from current as $$
begin
    insert into arrivals (queue, priority, lane, run_at, tenant, keys)
    values (new.queue, new.priority, new.lane, new.run_at, new.tenant, new.keys);
    return null;
end $$;
-- A client that copies many jobs at once may announce their lanes itself, each once (announce_lanes). In the last lane
-- enqueue holds an id for a moment.
create trigger live_arrival after insert on live for each row
    when (new.lane not in (0, 9223372036854775807)
          and current_setting('holdfast.announces', true) is distinct from 'on') execute function announce_lane();
create trigger live_moved after update of lane on live for each row
    when (new.lane <> 0) execute function announce_lane();

-- What limits say: claims read it and never write it, so no open transaction of an operator holds up a claim. The
-- numbers are those in force at this level: what code declares, changed by what operators said of the rule, changed by
-- what they said of the key. version is of the patterns: a key's rule is found again after a change.
create sequence rule_version;
create table limit_rules (
    template text primary key, pattern text not null, code jsonb not null, override jsonb not null default '{}',
    updated_at timestamptz not null, version bigint not null default nextval('rule_version'),
    concurrency   integer          generated always as (((code || override) ->> 'concurrency')::integer) stored,
    rate          double precision generated always as (((code || override) ->> 'rate')::double precision) stored,
    per           double precision generated always as (((code || override) ->> 'per')::double precision) stored,
    burst         double precision generated always as (((code || override) ->> 'burst')::double precision) stored,
    breaker_after integer          generated always as (((code || override) ->> 'breaker_after')::integer) stored,
    breaker_pause double precision generated always as (((code || override) ->> 'breaker_pause')::double precision) stored,
    breaker_cap   double precision generated always as (((code || override) ->> 'breaker_cap')::double precision) stored
);
create table limit_settings (
    key text collate "C" primary key check (length(key) between 1 and 300), kind text not null,
    override jsonb not null default '{}', paused boolean not null default false, paused_until timestamptz,
    paused_at timestamptz, paused_by text, paused_reason text,
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

-- Where each key stands: one row for each key that a job was enqueued under or that has settings, written by the holder
-- of the ring's lock. The keys "queue:NAME", "task:NAME" and "tenant:NAME" apply to all jobs of that queue, task or
-- tenant, "order:..." lets one job at a time go. open_until: the breaker, set while it is open, past when a probe may
-- go. probe: the job that tries whether it works again. opens_at: when lanes wait that the key closed, and it opens by
-- itself.
create table limits (
    key text collate "C" primary key check (length(key) between 1 and 300), kind text not null default 'key',
    template text, version bigint not null default 0, running integer not null default 0, tokens double precision,
    tokens_at timestamptz, failure_streak integer not null default 0, last_success_at timestamptz,
    last_failure_at timestamptz, open_until timestamptz, opens integer not null default 0, probe uuid,
    opens_at timestamptz, created_at timestamptz not null default now()
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000);
create index limits_by_kind on limits (kind) where kind <> 'key';
create index limits_by_template on limits (template);
create index limits_opening on limits (opens_at) where opens_at is not null;
create index limits_probing on limits (probe) where probe is not null;

-- When breakers opened and closed: the last 50 of each key, for 30 days. opened: after failures in a row; reopened: the
-- probe failed; closed: it succeeded; reset: by an operator. Only inserted, so that a claim, which records what it folds,
-- never waits for an operator's transaction.
create table breaker_events (
    key text collate "C" not null, id bigint generated always as identity, at timestamptz not null,
    event text not null check (event in ('opened', 'reopened', 'closed', 'reset')), failures integer not null,
    open_until timestamptz, by text, reason text,
    primary key (key, id));
create index breaker_events_by_time on breaker_events (at);
-- The argument of record_breakers.
create type breaker_change as (key text, event text, failures integer, open_until timestamptz);

-- The waiting job that keeps an order.
create table kept_orders (key text collate "C" primary key, id uuid not null);

-- How often claims stepped over work because of a key, and whose; '' is work without a tenant.
create table throttled (
    key text not null, tenant text not null, count bigint not null, last_at timestamptz not null,
    primary key (key, tenant));

-- A job that has ended and was under limits. went: 1 well, -1 badly, 0 neither. counts: the keys for which a failure
-- counts, null for all.
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
    held text[],         -- for each job, as text, limits of its queue and tenant that count it; the last may be left out
    closed integer,      -- lanes that limits have closed
    moved boolean,       -- whether lanes have moved to the other ring
    more boolean,        -- whether the next claim would find more
    cut boolean);        -- whether a ring has more to visit, so that lower priorities must wait

-- Where a tenant's events are sent. Secrets are sealed if a key is configured; only the owner can read them. events:
-- types, or "prefix.*"; null: all. secrets: [{"secret": TEXT, "since": TIME, "until": TIME or null}], the newest first.
create table webhook_endpoints (
    id uuid primary key, tenant tenant_name, url text not null check (length(url) between 1 and 2000), events text[],
    prefix text not null default 'Holdfast' check (prefix ~ '^[A-Za-z0-9-]{1,40}$'),
    timeout double precision not null default 30 check (timeout > 0 and timeout <= 300),
    dev boolean not null default false, enabled boolean not null default true, disabled_reason text, description text,
    secrets jsonb not null check (jsonb_array_length(secrets) > 0), created_at timestamptz not null,
    updated_at timestamptz not null);
create index webhook_endpoints_by_tenant on webhook_endpoints (tenant);

-- The body of an event, stored once for all its deliveries. It is kept while any of them exists; prune checks it from
-- expires_at on.
create table webhook_bodies (
    id uuid primary key, tenant tenant_name, body text not null, deliveries uuid[] not null,
    expires_at timestamptz not null);
create index webhook_bodies_expiring on webhook_bodies (expires_at);

-- API tokens. Only the SHA-256 of a token is stored, and its first characters for display. tenant null: all tenants.
-- priority: the highest its jobs may have. rate: requests per second and service process; null: no limit.
create table api_tokens (
    id uuid primary key, name text not null check (length(name) between 1 and 200),
    digest bytea not null unique check (length(digest) = 32), shown text not null check (length(shown) between 1 and 20),
    tenant tenant_name, scopes text[] not null check (cardinality(scopes) > 0),
    priority smallint not null default 0 check (priority between 0 and 3), rate double precision check (rate > 0),
    created_at timestamptz not null, expires_at timestamptz, revoked_at timestamptz, last_used_at timestamptz
) with (fillfactor = 70);

-- Responses to requests with an Idempotency-Key, written in the transaction of the request. owner: a tenant, or the
-- tokens without one. fingerprint: of the method, the path and the body.
create table responses (
    owner text not null, key text not null check (length(key) between 1 and 200), fingerprint bytea not null,
    status smallint, body text, created_at timestamptz not null,
    primary key (owner, key));
create index responses_by_time on responses (created_at);

-- Seals the cursors of lists: a cursor may point at another tenant's job, whose id reveals its creation time.
create table cursor_keys (key text not null check (length(key) >= 64));
insert into cursor_keys (key) values (replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));

-- The activity of workers. A bounded pass writes a row of kind 'tick', a continuous worker one for each window in which
-- it did something.
create table ticks (
    id uuid primary key, worker text not null, started_at timestamptz not null, ended_at timestamptz not null,
    claimed integer not null, processed integer not null, succeeded integer not null, failed integer not null,
    throttled integer not null, contention integer not null, depth bigint not null, tenants jsonb not null,
    kind text not null default 'tick' check (kind in ('tick', 'window')), depth_at_start bigint);
create index ticks_by_time on ticks (started_at);

-- The usage of tenants, a row per minute and, as in batch_counts, per database connection. '' is work without a tenant.
create table usage_counts (
    minute timestamptz not null, tenant text not null, task text not null, backend integer not null, runs bigint not null,
    failures bigint not null, run_seconds double precision not null, queue_seconds double precision not null,
    primary key (minute, tenant, task, backend)
) with (fillfactor = 50);
-- The argument of count_usage.
create type used as (
    tenant text, task text, runs bigint, failures bigint, run_seconds double precision, queue_seconds double precision);

-- Attempts that ended, by minute, queue, task and how long they had waited since they were due: 2 steps for each doubling
-- from 1 ms on (wait_step). Written by the calls that end attempts, a row for each connection as in batch_counts.
create table attempt_counts (
    minute timestamptz not null, queue text not null, task text not null, wait smallint not null,
    backend integer not null, ended bigint not null, failed bigint not null, lost bigint not null,
    run_seconds double precision not null,
    primary key (minute, queue, task, wait, backend)
) with (fillfactor = 50);
-- The argument of count_attempts.
create type counted as (
    queue text, task text, wait smallint, ended bigint, failed bigint, lost bigint, run_seconds double precision);
-- The same once a minute is over, with the jobs that each queue had at its end. Inserted once and never changed, so that
-- a chart is one short scan also while an open transaction keeps dead rows.
create table minutes (
    minute timestamptz not null, queue text not null, ended bigint not null, failed bigint not null, lost bigint not null,
    run_seconds double precision not null, p50 double precision, p95 double precision, p99 double precision,
    ready bigint, running bigint, later bigint, dead bigint,
    primary key (minute, queue));
-- What pages and metrics show: all counts of one moment as one document, made by the leader every second or two.
-- Readers take the newest row, so they never count a table, whatever its size.
create table snapshots (at timestamptz primary key, figures jsonb not null);

-- What operators do, a row for each call: the log for audits (view audit), and the progress of changes of many jobs,
-- which work_actions makes in steps. by, reason: who and why. view_tenant: the tenant whose jobs alone it may change;
-- null: all. deliveries: whether deliveries of webhooks are among them.
create table actions (
    id uuid primary key, kind text not null check (length(kind) between 1 and 60), target text, by text not null,
    reason text, params jsonb not null default '{}', before jsonb,
    state text not null default 'done' check (state in ('running', 'done', 'aborted', 'failed')),
    started_at timestamptz not null, finished_at timestamptz, filter jsonb, ids uuid[], view_tenant tenant_name,
    deliveries boolean not null default true,
    preview integer,     -- jobs that matched at the start, counted up to 10,001
    examples uuid[],
    last_id uuid,        -- the greatest id when it started
    place_id uuid,       -- jobs up to this id have been read
    scanned bigint not null default 0, matched bigint not null default 0, changed bigint not null default 0,
    skipped bigint not null default 0,
    locked uuid[] not null default '{}',  -- jobs that other transactions held; tried again
    worked_at timestamptz, error text,
    constraint actions_end check ((state = 'running') = (finished_at is null))
) with (fillfactor = 50);
create index actions_running on actions (id) where state = 'running';
create index actions_by_target on actions (target, id) where target is not null;
create index actions_by_time on actions (finished_at);
-- A filter, checked (read_filter). status: one or more; null: all that the kind of action changes.
create type job_filter as (
    status job_status[], task text, queue text, tenant text, batch uuid, error text, since timestamptz,
    until timestamptz, finished_since timestamptz, finished_until timestamptz, args jsonb,
    error_group text);
