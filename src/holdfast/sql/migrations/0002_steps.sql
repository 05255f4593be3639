-- Works with: schema 1 and later
-- Needed: yes
--
-- Durable steps (decision 036): what a job has done and what it waits for, signals, and jobs that start after others.

-- Step: add the status waiting
-- Locks: none
-- Nothing in this transaction uses the new value.
alter type job_status add value 'waiting' after 'retrying';

-- Step: add what jobs wait for
-- Locks: live, later (access exclusive)
-- Null for jobs that use none of it. durable: the job has rows in steps. followed: another job waits for its end.
-- waits_for: of a job in later, what it waits for: "sleep NAME", "signal NAME", "batch NAME", "call NAME" or "after".
alter table live add column durable boolean, add column followed boolean, add column waits_for text;
alter table later add column durable boolean, add column followed boolean, add column waits_for text;

-- Step: make the tables of steps
-- Locks: none
-- The steps of jobs. A step that runs code is stored when it has ended; sleeps, waits and children when they begin, and
-- finished_at is their end. number: the order of the rows of a job. ref: the child or the batch that it waits for.
-- result: what ctx.step() returns; of a child {"status", "result", "error"}, of a batch its counts. due_at: when a
-- sleep or a wait is over. detail: of a batch the first and last id of its jobs. undo: the job that undoes the step,
-- in the form of enqueue_many; undo_job: its id once it has been enqueued. check_at, in a job's first row: when prune next looks
-- whether the job still exists.
create table steps (
    job uuid not null, name text not null check (length(name) between 1 and 200),
    number bigint generated always as identity,
    kind text not null check (kind in ('step', 'sleep', 'signal', 'batch', 'call')), tenant text, ref uuid,
    result readable_json, detail jsonb, undo jsonb, undo_job uuid, attempt smallint, timed_out boolean,
    started_at timestamptz not null, finished_at timestamptz, due_at timestamptz, check_at timestamptz,
    primary key (job, name)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
-- Partial, so that a plain step is in no other index than the primary key.
create index steps_by_ref on steps (ref) where ref is not null;
create index steps_by_signal on steps (name, tenant) where kind = 'signal' and finished_at is null;
create index steps_to_check on steps (check_at) where check_at is not null;

-- Signals, each a name that was given a value once. tenant: '' for none. Kept until expires_at, also for jobs that wait later.
create table signals (
    tenant text not null, name text not null check (length(name) between 1 and 200), value readable_json not null,
    created_at timestamptz not null, expires_at timestamptz not null,
    primary key (tenant, name));
create index signals_expiring on signals (expires_at);

-- Jobs that start after others: follower waits for job. on_failure: what happens if job does not succeed: cancel, skip
-- (canceled, but its own followers go on) or run; hold: it waits until job has succeeded or was discarded.
create table follows (
    job uuid not null, follower uuid not null, on_failure text not null check (on_failure in ('cancel', 'skip', 'run', 'hold')),
    primary key (job, follower));
create index follows_by_follower on follows (follower);

-- Jobs that have ended and are followed, or have steps to undo: appended by the call that ends them, and processed by
-- it or by the leader (process_endings). Rows are found by transaction, so none waits for another.
create table endings (
    xid xid8 not null default pg_current_xact_id(), job uuid not null, status text not null, durable boolean not null,
    followed boolean not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index endings_by_xid on endings (xid, job);

insert into settings (name, value) values ('signals_days', '30');
