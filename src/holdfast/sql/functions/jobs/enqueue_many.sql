-- Accept many jobs, given as a JSON array of objects with the names of enqueue's parameters (task, payload, queue, id,
-- tenant, priority, delay in seconds, run_at, max_attempts, retry, dedupe_key, dedupe_scope, dedupe_keep in seconds,
-- deadline in seconds, batch, headers, keys and after as arrays, on_failure). Return one row for each, in
-- the given order. Clients that need neither dedupe keys nor repeats can COPY into live instead, with the lane that
-- lane_of() returns.
-- Locks: dedupe keys in key order, then the jobs' own rows, then their batches in id order.
-- Wakes: sleepers, through enqueue.
create or replace function enqueue_many(p_jobs jsonb, p_on_conflict text default 'existing',
    p_fresh boolean default false) returns table (id uuid, outcome text)
language plpgsql security definer set search_path from current as $$
declare
    v_now timestamptz := clock();
begin
    return query
        -- One time for all and growing ids keep jobs of an order in the given order, whatever their dedupe keys.
        with named as materialized (
            select j.value as job, j.ordinality as place, coalesce((j.value ->> 'id')::uuid, uuid7()) as id
            from jsonb_array_elements(p_jobs) with ordinality j),
        given as materialized (select n.* from named n order by n.job ->> 'dedupe_key', n.place),
        accepted as materialized (
            select g.place, (g.job ->> 'batch')::uuid as batch, e.* from given g, lateral enqueue(
                p_task => g.job ->> 'task', p_payload => coalesce(g.job -> 'payload', '{}'),
                p_queue => coalesce(g.job ->> 'queue', 'default'),
                p_id => g.id, p_tenant => g.job ->> 'tenant',
                p_priority => coalesce((g.job ->> 'priority')::integer, 2),
                p_run_at => coalesce((g.job ->> 'run_at')::timestamptz,
                    v_now + make_interval(secs => (g.job ->> 'delay')::double precision),
                    case when g.job ->> 'after' is null then v_now end),
                p_max_attempts => (g.job ->> 'max_attempts')::integer, p_retry => nullif(g.job -> 'retry', 'null'),
                p_dedupe_key => g.job ->> 'dedupe_key',
                p_dedupe_scope => coalesce((g.job ->> 'dedupe_scope')::dedupe_scope, 'running'),
                p_dedupe_keep => make_interval(secs => (g.job ->> 'dedupe_keep')::double precision),
                p_on_conflict => p_on_conflict, p_fresh => p_fresh or g.job ->> 'id' is null,
                p_deadline => make_interval(secs => (g.job ->> 'deadline')::double precision),
                p_batch => (g.job ->> 'batch')::uuid, p_headers => nullif(g.job -> 'headers', 'null')::json,
                p_counted => true,
                p_after => case when g.job -> 'after' <> 'null' then array(select jsonb_array_elements_text(g.job -> 'after'))::uuid[] end,
                p_on_failure => coalesce(g.job ->> 'on_failure', 'cancel'),
                p_keys => case when g.job -> 'keys' <> 'null' then
                    array(select k.key from jsonb_array_elements_text(g.job -> 'keys') with ordinality k(key, place)
                          order by k.place) end) e),
        -- One update for all: updating a counter row many times in one transaction gets slower each time.
        counted as materialized (
            select add_to_batch(b.batch, b.jobs) from (
                select a.batch, count(*) as jobs from accepted a
                where a.batch is not null and a.outcome = 'created' group by a.batch order by a.batch) b)
        select a.id, a.outcome from accepted a where (select count(*) from counted) >= 0 order by a.place;
end $$;
